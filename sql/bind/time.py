"""Bind times in statements: AS OF, UP TO and the bounds of CHANGES."""

from foreshore.digits import is_digits
from foreshore.errors import DatatypeMismatch, FeatureNotSupported
from foreshore.expr.columns import type_of
from foreshore.expr.ir import Literal, Relation, Scalar
from foreshore.expr.traversal import sources_of
from foreshore.sql import ast
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.coerce import coerce, is_unknown
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.scope import Scope
from foreshore.sql.bind.subquery import check_no_subquery
from foreshore.sql.plan import AsOf
from foreshore.types import MZ_TIMESTAMP, TIMESTAMPTZ


def bind_as_of(planning: Planning, as_of: ast.AsOf, written: Relation | None = None) -> AsOf:
    """Return AS OF with its time bound; for rows to be `written`, the time must be readable."""
    if written is not None and not sources_of(written):
        raise FeatureNotSupported(
            "AS OF in a statement that reads no rows is not supported",
            detail="AS OF sets the time at which a query reads. Writes take that of their commit.",
            position=at_of(as_of.time) + 1,
        )
    return AsOf(bind_time(planning, as_of.time, "AS OF"), as_of.at_least)


def bind_time(planning: Planning, expr: ast.Expression, what: str) -> Scalar:
    """Return a scalar without columns, of type mz_timestamp or timestamptz.

    A parameter of unknown type becomes an mz_timestamp, whose text is a number or a date.
    """
    binder = ExpressionBinder(planning, Scope(), Clause(what))
    scalar = binder.bind(expr)
    check_no_subquery(scalar, what, at_of(expr))
    target = MZ_TIMESTAMP if _is_number(scalar) else TIMESTAMPTZ
    result = coerce(planning, scalar, target, "assignment", at_of(expr))
    if result is None:
        raise DatatypeMismatch(
            f"argument of {what} must be a time, not type {type_of(scalar)}",
            position=at_of(expr) + 1,
        )
    return result


def _is_number(scalar: Scalar) -> bool:
    """Return whether a time is given in milliseconds, as far as is known."""
    if is_unknown(scalar):
        return not isinstance(scalar, Literal) or is_digits(str(scalar.value))
    return type_of(scalar).name in ("int2", "int4", "int8", "numeric", "mz_timestamp")
