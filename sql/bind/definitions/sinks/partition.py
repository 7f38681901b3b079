"""Bind PARTITION BY of a topic that a sink writes: a number whose remainder is the partition."""

from collections.abc import Mapping

from foreshore.errors import DatatypeMismatch, FeatureNotSupported, InvalidParameterValue
from foreshore.expr.columns import type_of
from foreshore.expr.ir import Environment, Scalar
from foreshore.expr.split import columns_used
from foreshore.expr.traversal import walk_scalars
from foreshore.item_view import Name
from foreshore.sql import ast
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.binding import BINDING
from foreshore.sql.bind.coerce import coerce
from foreshore.sql.bind.definitions.sinks.written import Written
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.scope import row_scope
from foreshore.sql.bind.side_effects import has_side_effects
from foreshore.sql.bind.subquery import check_no_subquery
from foreshore.sql.bind.type_names import qualified_types
from foreshore.sql.catalog_reader import CatalogReader
from foreshore.sql.parse.parse import parse
from foreshore.sql.rewrite.column_names import with_column_renamed, without_qualifiers
from foreshore.types import UINT8, RelationDesc

_CLAUSE = "PARTITION BY"
_BEGINS = "SELECT "


def bind_partition_by(planning: Planning, written: ast.PartitionBySyntax, rows: Written) -> str:
    """Return the text of PARTITION BY as it is kept; raises DatabaseError if it is wrong."""
    desc, before = rows.desc, set(planning.depends_on)
    value = _bound(planning, written.expression, rows.name, desc)
    if planning.depends_on - before:
        raise FeatureNotSupported(
            f"{_CLAUSE} can only use functions and types of the system", position=written.at + 1
        )
    used = (desc.names[each] for each in columns_used(value))
    others = sorted(each for each in used if each not in rows.key)
    if rows.key and others and rows.envelope == "debezium":
        raise InvalidParameterValue(
            f'{_CLAUSE} with ENVELOPE DEBEZIUM can only use columns of the key, not "{others[0]}"',
            hint="A message has the row before and the row after, which only agree on the key.",
            position=written.at + 1,
        )
    types = qualified_types(planning, written.text, written.at)
    return without_qualifiers(written.text, written.at, written.expression, types).strip()


def partition_hash(catalog: CatalogReader, text: str, desc: RelationDesc) -> Scalar:
    """Return PARTITION BY, of which this is the text, over the rows of a sink."""
    return _bound(
        Planning(catalog, f"{_BEGINS}{text}", binding=BINDING),
        _parsed(text),
        Name(None, None, ""),
        desc,
    )


def with_columns_renamed(text: str, now: Mapping[str, str]) -> str:
    """Return the text of PARTITION BY with the present names of columns, by those that it has."""
    changed = [name for name, present in now.items() if present != name]
    between = {name: f"{name} (before)" for name in changed}  # as two may have swapped their names
    for name in changed:
        text = with_column_renamed(text, len(_BEGINS), _parsed(text), name, between[name])
    for name in changed:
        text = with_column_renamed(text, len(_BEGINS), _parsed(text), between[name], now[name])
    return text


def _parsed(text: str) -> ast.Expression:
    """Return an expression, with places in a text that begins with `_BEGINS`."""
    (statement,) = parse(f"{_BEGINS}{text}")
    (target,) = (each for each in ast.nodes_of(statement.ast) if isinstance(each, ast.Target))
    return target.expr


def _bound(
    planning: Planning, expression: ast.Expression, name: Name, desc: RelationDesc
) -> Scalar:
    """Return an expression over a row as uint8; raises DatabaseError if it cannot be one."""
    scope = row_scope(name, desc.names, desc.columns)
    scalar = ExpressionBinder(planning, scope, Clause(_CLAUSE)).bind(expression)
    at = at_of(expression)
    check_no_subquery(scalar, _CLAUSE, at)
    if has_side_effects(scalar) or any(isinstance(e, Environment) for e in walk_scalars(scalar)):
        raise InvalidParameterValue(f"{_CLAUSE} is not immutable", position=at + 1)
    value = coerce(planning, scalar, UINT8, "assignment", at)
    if value is None:
        raise DatatypeMismatch(
            f"{_CLAUSE} must be of type uint8, not {type_of(scalar)}",
            hint="Use a hash, such as seahash(column::text), or cast the expression.",
            position=at + 1,
        )
    return value
