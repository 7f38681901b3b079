"""Bind COPY: its columns."""

from msgspec.structs import replace as with_fields

from foreshore.errors import FeatureNotSupported, InvalidColumnReference
from foreshore.expr.ir import Scalar
from foreshore.expr.split import columns_used
from foreshore.item_view import ItemView
from foreshore.sql import ast
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.row_security import policies_of
from foreshore.sql.bind.scope import row_scope
from foreshore.sql.bind.subquery import check_no_subquery
from foreshore.sql.bind.writes.copy_options import check_forced_columns, copy_options
from foreshore.sql.bind.writes.target import default_of, is_stored, positions_of, target_table
from foreshore.sql.plan import CopyFrom

_WHERE = "COPY FROM WHERE conditions"


def bind_copy_from(planning: Planning, statement: ast.CopyStatement) -> CopyFrom:
    """Return the plan of COPY ... FROM STDIN."""
    assert isinstance(statement.source, ast.TableRef)
    item = target_table(planning, statement.source, "insert")
    columns = copied_columns(item, statement)
    planning.needs.change(item, "INSERT", columns)
    names = item.desc.names
    options = copy_options(statement)
    check_forced_columns(options, [names[i] for i in columns], names.__contains__)
    defaults = tuple(default_of(planning, item, i) for i in range(len(names)))
    if policies_of(planning, item) is not None:
        raise FeatureNotSupported(
            "COPY FROM not supported with row-level security", hint="Use INSERT statements instead."
        )
    return CopyFrom(
        item.id, columns, defaults, options, _condition(planning, item, statement.where)
    )


def _condition(planning: Planning, item: ItemView, where: ast.Expression | None) -> Scalar | None:
    """Return the condition of COPY FROM ... WHERE over the table's columns."""
    if where is None:
        return None
    scope = row_scope(item.name, item.desc.names, item.desc.columns)
    condition = ExpressionBinder(planning, scope, Clause(_WHERE)).boolean(where, "WHERE")
    check_no_subquery(condition, "COPY FROM WHERE condition", at_of(where))
    for i in sorted(columns_used(condition)):
        if is_stored(item, i):
            raise InvalidColumnReference(
                f"generated columns are not supported in {_WHERE}",
                detail=f'Column "{item.desc.names[i]}" is a generated column.',
            )
    return condition


def copied_columns(item: ItemView, statement: ast.CopyStatement) -> tuple[int, ...]:
    """Return the positions of the columns to copy; those computed from others are not."""
    if statement.columns is None:
        return tuple(i for i in range(len(item.desc.names)) if not is_stored(item, i))
    found = positions_of(item, statement.columns)
    for place, (name, at) in zip(found, statement.columns, strict=True):
        if is_stored(item, place):
            raise InvalidColumnReference(
                f'column "{name}" is a generated column',
                detail="Generated columns cannot be used in COPY.",
                position=at + 1,
            )
    return found


def columns_to_copy(
    planning: Planning, tree: ast.CopyStatement, source: ast.TableRef
) -> tuple[tuple[str, int], ...]:
    """Return the columns of COPY table TO: all but those computed from others."""
    with located(source.at):
        item = planning.catalog.resolve_item(source.name)
    if "stored" not in item.generated:
        return (("*", source.at),)
    tree = with_fields(tree, columns=None)
    return tuple((item.desc.names[i], source.at) for i in copied_columns(item, tree))
