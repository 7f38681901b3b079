"""Long lists of constants: `x IN (1, 2, ...)` as one comparison of x with an array.

A test for each constant would make each pass over the plan as long as the list.
"""

from collections.abc import Sequence

from foreshore.expr.functions.comparison import PLAIN
from foreshore.expr.ir import Call, Literal, Scalar, type_of
from foreshore.sql.bind.row_values import RowValue
from foreshore.types import BOOL, array_of

LONG_LIST = 100  # constants beyond which they are an array

_WHOLE = {"eq": "eq_any", "ne": "ne_all"}


def over_array(
    first: Scalar, items: Sequence[Scalar | RowValue], tests: Sequence[Scalar] = ()
) -> Scalar | None:
    """Return `x = ANY (items)` or `x <> ALL (items)` if `first` compares x with the first item.

    `items` have to be constants of the type in which they are compared, which needs no more than
    their bytes; None if they are not. `tests` are the comparisons with each of them, if known.
    """
    if not isinstance(first, Call) or first.function not in _WHOLE:
        return None
    left, right = first.args
    type = type_of(right)
    if not isinstance(right, Literal) or type != type_of(left) or type.name not in PLAIN:
        return None
    if tests and not (
        len(tests) == len(items)
        and all(isinstance(e, Call) and e.function == first.function for e in tests)
        and all(e.args[0] == left for e in tests if isinstance(e, Call))
    ):
        return None
    if not tests and items[0] != right:  # items are converted
        return None
    values = [item.value for item in items if isinstance(item, Literal) and item.type == type]
    if len(values) < len(items):
        return None
    array = Literal(tuple(dict.fromkeys(values)), array_of(type))
    return Call(_WHOLE[first.function], (left, array), BOOL)
