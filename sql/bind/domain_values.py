"""Values of domains: the checks of a cast, and the constraints of a column."""

from collections.abc import Iterator
from itertools import islice

from foreshore.constraint import Check
from foreshore.domain import Domain
from foreshore.errors import StatementTooComplex
from foreshore.expr.columns import type_of
from foreshore.expr.ir import Call, Case, Column, Literal, Scalar
from foreshore.expr.traversal import walk_scalars
from foreshore.sql.bind.coerce import cast
from foreshore.sql.bind.planning import Planning
from foreshore.sql.rewrite.scalars import map_scalar
from foreshore.types import BOOL, TEXT

MAX_NODES = 5_000  # of a value with its checks, each of which repeats the value


def checked(planning: Planning, scalar: Scalar, domain: Domain, at: int) -> Scalar:
    """Return `scalar`, of the base type, with an error where it is no value of the domain.

    Raises StatementTooComplex if that has too many nodes, as those of nested casts multiply.
    """
    type = type_of(scalar)
    branches = []
    for name, condition in _conditions(domain):
        message, sqlstate = f"domain {domain.name} does not allow null values", "23502"
        if name:
            sqlstate = "23514"
            message = f'value for domain {domain.name} violates check constraint "{name}"'
        raised = Call("_raised(text,text)", (Literal(sqlstate, TEXT), Literal(message, TEXT)), TEXT)
        failed = Call("is_false", (_over(condition, scalar),), BOOL)
        branches.append((failed, cast(planning, raised, type, at)))
    if not branches:
        return scalar
    result = Case(tuple(branches), scalar, type)
    if next(islice(walk_scalars(result), MAX_NODES, None), None) is not None:
        raise StatementTooComplex(
            "statement too complex",
            detail=f"The value of a cast to domain {domain.name} is computed for each check.",
            hint="Compute the value in a subquery, and cast its column.",
            position=at + 1,
        )
    return result


def column_checks(domain: Domain, column: str, place: int) -> tuple[Check, ...]:
    """Return the constraints of a column of the domain at `place` of its table."""
    value = Column(place, domain.base)
    return tuple(
        Check(name, _over(condition, value), f"{column} {domain.parts} {name}", domain.name)
        for name, condition in _conditions(domain)
    )


def _conditions(domain: Domain) -> Iterator[tuple[str, Scalar]]:
    """Yield the names and conditions of the checks in order; that of NOT NULL has no name."""
    if domain.not_null:
        yield "", Call("is_not_null", (Column(0, domain.base),), BOOL)
    for check in domain.checks:
        yield check.name, check.condition


def _over(condition: Scalar, value: Scalar) -> Scalar:
    """Return a condition over the value of a domain with `value` in its place."""

    def put(node: Scalar, depth: int) -> Scalar | None:
        return value if isinstance(node, Column) and depth == 0 else None

    return map_scalar(condition, put)
