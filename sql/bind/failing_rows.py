"""Bind FAILING_ROWS(view): the rows for which expressions of a view fail, as rows.

    relation    the relation that has the row; several of a join; NULL if it has none of its columns
    sqlstate, error
    row         the row as JSON

It is a query over the relations that the view reads, and needs the right to read all of them. The
errors of another materialized view that the view reads are found by FAILING_ROWS of that one.
"""

from foreshore.errors import FeatureNotSupported, UndefinedFunction, WrongObjectType
from foreshore.expr.columns import columns_of
from foreshore.expr.failing_rows import FailingRows, Origin, failing_rows
from foreshore.expr.ir import Column, Constant, Literal, Map, Project, Relation, Scalar, Union
from foreshore.expr.recursion import has_recursion
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from foreshore.item_view import ItemView
from foreshore.sql import ast
from foreshore.sql.bind.expression import Clause, ExpressionBinder
from foreshore.sql.bind.row_security import policies_of
from foreshore.sql.bind.scope import Scope
from foreshore.sql.planning import Planning, located
from foreshore.sql.rewrite.full_names import dotted
from foreshore.types import INT4, JSONB, TEXT, ColumnType

NAME = "failing_rows"
NAMES = ("relation", "sqlstate", "error", "row")
COLUMNS = tuple(ColumnType(type, True) for type in (TEXT, TEXT, TEXT, JSONB))


def bind_failing_rows(
    planning: Planning, call: ast.FunctionCall
) -> tuple[Relation, tuple[str, ...]]:
    """Return the relation of the rows, and its names."""
    at = call.at + 1
    if planning.in_view or planning.in_function:
        raise FeatureNotSupported("FAILING_ROWS cannot be used in a view or function", position=at)
    name = call.args[0] if len(call.args) == 1 else None
    if not isinstance(name, ast.ColumnRef) or call.star or call.distinct or call.order_by:
        raise UndefinedFunction("FAILING_ROWS takes the name of a view", position=at)
    with located(name.at):
        view = planning.catalog.resolve_item(name.parts)
        if view.kind not in ("view", "materialized view"):
            raise WrongObjectType(f'"{view.name.item}" is not a view')
    planning.depends_on.add(view.id)
    planning.needs.entry(view).read_all()
    from foreshore.sql.bind.from_clause import relation_of_item, renumbered

    if view.kind == "view":
        definition = relation_of_item(planning, view)
    else:
        definition = planning.catalog.definition_of(view.id, with_errors=True)
        definition = renumbered(planning, definition)
    if has_recursion(definition):
        raise FeatureNotSupported("FAILING_ROWS of a recursive query is not supported", position=at)
    inputs = {id: planning.catalog.item(id) for id in sorted(sources_of(definition))}
    for each in inputs.values():
        _take_right(planning, each, at)
    binder = ExpressionBinder(planning, Scope(), Clause("FAILING_ROWS"))
    parts = [_shown(binder, part, inputs) for part in failing_rows(definition)]
    return Union(tuple(parts)) if parts else Constant((), COLUMNS), NAMES


def _take_right(planning: Planning, read: ItemView, at: int) -> None:
    """Let the statement need the right to read all of a relation."""
    if policies_of(planning, read) is not None:
        raise FeatureNotSupported(
            f'FAILING_ROWS over table "{read.name.item}" is not supported with row-level security',
            position=at,
        )
    planning.depends_on.add(read.id)
    planning.needs.entry(read).read_all()


def _shown(
    binder: ExpressionBinder, part: FailingRows, inputs: dict[GlobalId, ItemView]
) -> Relation:
    """Return rows as `COLUMNS`."""
    columns = columns_of(part.relation)
    width = len(part.origins)
    relations = list(dict.fromkeys(each[0] for each in part.origins if each is not None))
    named = ", ".join(dotted(inputs[id].name.parts[-2:]) for id in relations)
    members: dict[str, Scalar] = {}  # of a column that is there twice, the first
    for i, origin in enumerate(part.origins):
        if origin is not None:
            value = Column(i, columns[i].type, columns[i].nullable)
            members.setdefault(_key(inputs, origin, is_one=len(relations) == 1), value)
    text = Column(width, TEXT)
    args = [each for name, value in members.items() for each in (Literal(name, TEXT), value)]
    scalars = (
        Literal(named or None, TEXT),
        binder.call("left", (text, Literal(5, INT4)), 0),
        binder.call("substr", (text, Literal(7, INT4)), 0),
        binder.call("jsonb_build_object", args, 0) if args else Literal("{}", JSONB),
    )
    return Project(Map(part.relation, scalars), tuple(range(width + 1, width + 1 + len(COLUMNS))))


def _key(inputs: dict[GlobalId, ItemView], origin: Origin, *, is_one: bool) -> str:
    """Return what a column is called: RELATION.COLUMN if there are several relations."""
    read = inputs[origin[0]]
    name = read.desc.names[origin[1]]
    return name if is_one else f"{read.name.item}.{name}"
