"""Arithmetic of constants: computed as numerics of any digits when it is bound.

A constant has a planned scale where that holds its digits, so that it costs declared columns
nothing. What is computed of constants is a constant again, with PostgreSQL's digits: of a planned
scale if that shows the same, else a number.
"""

from collections.abc import Sequence

from foreshore.expr.evaluate import constant, is_constant
from foreshore.expr.functions.registry import Resolved, resolve
from foreshore.expr.ir import Call, Literal, Scalar
from foreshore.sql.bind.coerce import coerce, literal_of_number
from foreshore.sql.bind.planning import Planning
from foreshore.types import NUMBER, SqlType

_OPERATORS = frozenset(("+", "-", "*", "/", "%", "^"))
_FUNCTIONS = frozenset(
    "abs ceil ceiling div exp floor gcd lcm ln log log10 mod pow power round sign sqrt trunc"
    " trim_scale".split()
)
_COMPUTED = _OPERATORS | _FUNCTIONS


def computed_number(
    planning: Planning, name: str, args: Sequence[Scalar], found: Resolved, at: int
) -> Scalar | None:
    """Return the arithmetic `name` of constant numerics, resolved as `found`, as a constant.

    It is the call over numbers if that fails, and None if it is no such arithmetic.
    """
    if name not in _COMPUTED or not planning.keeps_digits:
        return None
    if found.result.name not in ("numeric", "number"):
        return None
    types: list[SqlType] = []
    for arg, type in zip(args, found.arg_types, strict=True):
        if not isinstance(arg, Literal) or arg.value is None:
            return None
        types.append(NUMBER if type.name == "numeric" else type)
    over = resolve(name, types)
    operands = [
        coerce(planning, arg, type, "implicit", at)
        for arg, type in zip(args, over.arg_types, strict=True)
    ]
    call = Call(over.key, tuple(each for each in operands if each is not None), over.result)
    if len(call.args) != len(args) or over.result != NUMBER or not is_constant(call):
        return None
    value = constant(call)
    return call if isinstance(value, str) else literal_of_number(value.value)
