"""Find optional conditions that name keys of a table: a constant may say that they hold.

    $1 IS NULL OR id = $1       unless $1 is NULL: rows with id = $1

Only an execution knows whether the constant is TRUE. Unless it is, the other side has to hold.
"""

from collections.abc import Sequence

from foreshore.expr.ir import Filter, Literal, Or, Relation, Scalar, single_input
from foreshore.expr.split import columns_used
from foreshore.sql.optimize.either import are_unique
from foreshore.sql.optimize.key_steps import KeysOf, Restricted
from foreshore.sql.optimize.lookup import predicates_of
from foreshore.sql.optimize.restrict import restricted


def optional_steps(relation: Relation, keys: KeysOf) -> tuple[tuple[Scalar, Restricted], ...]:
    """Return how optional conditions restrict the only table, whole keys first.

    Each restriction holds unless the scalar before it is TRUE.
    """
    get = single_input(relation)
    predicates = [] if get is None else predicates_of(relation)
    found = []
    for each in predicates:
        if get is None or not isinstance(each, Or):
            continue
        constants = [arg for arg in each.args if not columns_used(arg)]
        rest = [arg for arg in each.args if columns_used(arg)]
        if not constants or not rest or any(isinstance(arg, Literal) for arg in constants):
            continue
        others = [other for other in predicates if other is not each]
        part = restricted(Filter(get, (_any_of(rest), *others)), keys)
        if part is not None:
            found.append((_any_of(constants), Restricted(part.steps, relation)))
    return tuple(sorted(found, key=lambda each: not are_unique(each[1].steps)))


def _any_of(scalars: Sequence[Scalar]) -> Scalar:
    return scalars[0] if len(scalars) == 1 else Or(tuple(scalars))
