"""Arguments in the places of a function's parameters.

PostgreSQL evaluates an argument once for each row, and what a body calls as well. A call with side
effects keeps its number wherever its argument is put, so it is made once for each row. But a
subquery that reads nothing of the row is computed once for all rows, so there it must not be.
"""

from foreshore.errors import FeatureNotSupported, StatementTooComplex
from foreshore.expr.ir import Scalar
from foreshore.sql.bind.scope import Scope
from foreshore.sql.bind.side_effects import acts, has_side_effects
from foreshore.sql.bind.sql_functions import applied, parameter_of
from foreshore.sql.rewrite.scalars import map_scalar, push_down

MOST_NODES = 1_000  # of a body with arguments that have side effects


class _ActsBelow(Exception):
    """A subquery of a function calls a function with side effects."""


def with_arguments(
    name: str, body: Scalar, values: tuple[Scalar, ...], scope: Scope, at: int
) -> Scalar:
    """Return a function's `body` with `values` for its parameters, for a call in `scope`.

    Raises FeatureNotSupported if there are rows for each of which a subquery would have to act.
    """
    acting = frozenset(i for i, value in enumerate(values) if has_side_effects(value))
    if not acting and not _acts_anywhere(body):
        return applied(body, values)
    try:
        return _repeated(name, body, values, acting, at)
    except _ActsBelow:
        if not scope.columns:
            return applied(body, values, acting)
        raise FeatureNotSupported(
            f"function {name} cannot be called for each row: "
            "a subquery in it calls a function with side effects",
            position=at + 1,
        ) from None


def _repeated(
    name: str, body: Scalar, values: tuple[Scalar, ...], acting: frozenset[int], at: int
) -> Scalar:
    """Return `body` with its arguments wherever they are used, raises if it acts in a subquery."""
    sizes = [_size(value) for value in values]
    nodes = 0

    def argument(node: Scalar, depth: int) -> Scalar | None:
        nonlocal nodes
        index = parameter_of(node, depth)
        if depth and (acts(node) if index is None else index in acting):
            raise _ActsBelow
        nodes += 1 if index is None else sizes[index]
        if nodes > MOST_NODES:
            raise StatementTooComplex(
                f"function {name} repeats an argument too often", position=at + 1
            )
        if index is None:
            return None
        return push_down(values[index], depth) if depth else values[index]

    return map_scalar(body, argument)


def _acts_anywhere(scalar: Scalar) -> bool:
    """Return whether `scalar` or a subquery in it calls a function with side effects."""
    found = False

    def look(node: Scalar, depth: int) -> Scalar | None:
        nonlocal found
        found = found or acts(node)
        return node if found else None

    map_scalar(scalar, look)
    return found


def _size(scalar: Scalar) -> int:
    nodes = 0

    def count(node: Scalar, depth: int) -> Scalar | None:
        nonlocal nodes
        nodes += 1
        return node if nodes > MOST_NODES else None

    map_scalar(scalar, count)
    return nodes
