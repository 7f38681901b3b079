"""Bind columns whose values are computed: generated columns, and conversions of ALTER COLUMN TYPE.

CREATE TABLE t (a int, b int GENERATED ALWAYS AS (a * 2) STORED)
ALTER TABLE t ALTER COLUMN a TYPE text USING 'x' || a
"""

from collections.abc import Sequence

from foreshore.errors import (
    DatatypeMismatch,
    FeatureNotSupported,
    InvalidTableDefinition,
    SyntaxError_,
)
from foreshore.expr.columns import type_of
from foreshore.expr.ir import Column, Environment, Scalar
from foreshore.expr.traversal import walk_scalars
from foreshore.item_view import Name
from foreshore.sql import ast
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.coerce import assign
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.scope import row_scope
from foreshore.sql.bind.side_effects import has_side_effects
from foreshore.sql.bind.subquery import check_no_subquery
from foreshore.sql.bind.type_names import qualified_types
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.rewrite.column_names import column_refs, without_qualifiers
from foreshore.types import ColumnType, SqlType, format_type


def generated_column(
    planning: Planning,
    table: Name,
    columns: Sequence[ast.ColumnDefinition],
    types: Sequence[ColumnType],
    place: int,
) -> tuple[Scalar, str]:
    """Return the value of a generated column over the table's row, and its text."""
    column = columns[place]
    assert column.generated is not None
    described = f'for column "{column.name}" of table "{table.item}"'
    if column.default is not None:
        raise SyntaxError_(
            f"both default and generation expression specified {described}", position=column.at + 1
        )
    if column.identity is not None:
        raise SyntaxError_(
            f"both identity and generation expression specified {described}",
            position=column.at + 1,
        )
    generated = {each.name for each in columns if each.generated is not None}
    for ref in column_refs(column.generated):
        if ref.parts[-1] in generated:
            raise InvalidTableDefinition(
                f'cannot use generated column "{ref.parts[-1]}" in column generation expression',
                detail="A generated column cannot reference another generated column.",
                sqlstate="42P17",
                position=ref.at + 1,
            )
    names = [each.name for each in columns]
    clause = Clause("column generation expressions")
    binder = ExpressionBinder(planning, row_scope(table, names, types), clause)
    scalar = binder.bind(column.generated)
    at = at_of(column.generated)
    check_no_subquery(scalar, "column generation expression", at)
    if has_side_effects(scalar) or any(isinstance(e, Environment) for e in walk_scalars(scalar)):
        raise InvalidTableDefinition("generation expression is not immutable", sqlstate="42P17")
    try:
        value = assign(planning, scalar, types[place].type, column.name, at)
    except DatatypeMismatch:
        raise DatatypeMismatch(
            f'column "{column.name}" is of type {types[place].type} but default expression is of'
            f" type {type_of(scalar)}",
            hint="You will need to rewrite or cast the expression.",
            position=at + 1,
        ) from None
    kinds = qualified_types(planning, column.generated_text, column.generated_at)
    text = column.generated_text, column.generated_at, column.generated
    return value, without_qualifiers(*text, kinds).strip()


def converted(
    planning: Planning,
    table: Name,
    names: Sequence[str],
    columns: Sequence[ColumnType],
    action: ast.AlterColumnType,
    place: int,
    target: SqlType,
) -> Scalar:
    """Return the new value of a column whose type changes, over the old row."""
    old = Column(place, columns[place].type, columns[place].nullable)
    quoted = quote_identifier(action.column)
    if action.using is None:
        try:
            return assign(planning, old, target, action.column, 0)
        except DatatypeMismatch:
            raise DatatypeMismatch(
                f'column "{action.column}" cannot be cast automatically to type {target}',
                hint=f'You might need to specify "USING {quoted}::{format_type(target)}".',
            ) from None
    clause = Clause("transform expressions")
    binder = ExpressionBinder(planning, row_scope(table, names, columns), clause)
    scalar = binder.bind(action.using)
    check_no_subquery(scalar, "transform expression", at_of(action.using))
    if has_side_effects(scalar):
        raise FeatureNotSupported("functions with side effects are not supported in USING")
    try:
        return assign(planning, scalar, target, action.column, at_of(action.using))
    except DatatypeMismatch:
        raise DatatypeMismatch(
            f'result of USING clause for column "{action.column}" cannot be cast automatically'
            f" to type {target}",
            hint="You might need to add an explicit cast.",
        ) from None
