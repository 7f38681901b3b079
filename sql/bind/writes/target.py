"""The target of statements that change rows: its columns, defaults, SET and RETURNING."""

from collections.abc import Sequence
from typing import Literal as OneOf

from foreshore.errors import (
    DataError,
    DuplicateColumn,
    FeatureNotSupported,
    GeneratedAlways,
    InsufficientPrivilege,
    SyntaxError_,
    UndefinedColumn,
    WrongObjectType,
    append_only_error,
)
from foreshore.expr.columns import columns_of
from foreshore.expr.evaluate import constant, is_constant
from foreshore.expr.ir import (
    Call,
    Column,
    Finishing,
    Literal,
    LocalGet,
    Project,
    Relation,
    Scalar,
    ScalarSubquery,
)
from foreshore.expr.traversal import walk_scalars
from foreshore.item_view import ItemView
from foreshore.sql import ast
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.bound_query import plain_relation
from foreshore.sql.bind.coerce import assign
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.from_clause import origins_in
from foreshore.sql.bind.needs import Origin
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.random_rows import is_random
from foreshore.sql.bind.result import lower_and_optimize, query_over
from foreshore.sql.bind.scope import Scope, Slot, Table
from foreshore.sql.bind.select import project_targets
from foreshore.sql.bind.sequence_calls import RIGHTS_OF_CALLS, need_sequence
from foreshore.sql.bind.side_effects import (
    RemainingCalls,
    calls_in_scalars,
    distinct_calls,
    split_calls,
)
from foreshore.sql.bind.with_clause import Lets, with_lets
from foreshore.sql.bind.writes.assigned_parts import with_part
from foreshore.sql.optimize.once import computed_once
from foreshore.sql.plan import Query
from foreshore.sql.rewrite.scalars import map_scalar
from foreshore.types import ColumnType, RelationDesc


def target_table(planning: Planning, ref: ast.TableRef, verb: str) -> ItemView:
    """Return the table that a statement changes."""
    with located(ref.at):
        item = planning.catalog.resolve_item(ref.name)
        name = item.name.item
        match item.kind:
            case "table":
                if verb in ("update", "delete"):
                    require_deletable(item)
                return item
            case "view":
                preposition = {"insert": "into ", "delete": "from "}.get(verb, "")
                raise WrongObjectType(f'cannot {verb} {preposition}view "{name}"', sqlstate="55000")
            case "materialized view":
                raise WrongObjectType(f'cannot change materialized view "{name}"')
            case "index":
                raise WrongObjectType(f'"{name}" is an index')
            case "builtin":
                raise InsufficientPrivilege(f'permission denied: "{name}" is a system catalog')
            case _:
                raise WrongObjectType(f'cannot change {item.kind} "{name}"')


def require_deletable(item: ItemView) -> None:
    """Raise an error if rows of a table are never updated or deleted."""
    if item.desc.append_only:
        raise append_only_error(item.name.item)


def positions_of(item: ItemView, columns: Sequence[tuple[str, int]]) -> tuple[int, ...]:
    """Return the positions in the table of the columns that a statement names."""
    positions: list[int] = []
    for name, at in columns:
        if name not in item.desc.names:
            raise UndefinedColumn(
                f'column "{name}" of relation "{item.name.item}" does not exist', position=at + 1
            )
        index = item.desc.names.index(name)
        if index in positions:
            raise DuplicateColumn(f'column "{name}" specified more than once', position=at + 1)
        positions.append(index)
    return tuple(positions)


def default_of(planning: Planning, item: ItemView, index: int) -> Scalar:
    """Return the default of a column, with new numbers for calls that have side effects."""
    if item.defaults:
        if not item.generated or item.generated[index] in (None, "stored"):
            for call in walk_scalars(item.defaults[index]):
                if isinstance(call, Call) and call.function in RIGHTS_OF_CALLS and call.args:
                    need_sequence(planning, call.function, call.args[0])
        return map_scalar(item.defaults[index], distinct_calls(planning))
    return Literal(None, item.desc.columns[index].type)


def is_stored(item: ItemView, index: int) -> bool:
    """Whether a column is computed from others."""
    return bool(item.generated) and item.generated[index] == "stored"


def refuse_generated(item: ItemView, index: int, verb: OneOf["insert", "update"]) -> None:
    """Raise an error if a GENERATED ALWAYS or a stored column is given a value."""
    if not item.generated or item.generated[index] not in ("always", "stored"):
        return
    name = item.desc.names[index]
    insert = verb == "insert"
    raise GeneratedAlways(
        f'cannot insert a non-DEFAULT value into column "{name}"'
        if insert
        else f'column "{name}" can only be updated to DEFAULT',
        detail=f'Column "{name}" is an identity column defined as GENERATED ALWAYS.'
        if item.generated[index] == "always"
        else f'Column "{name}" is a generated column.',
        hint="Use OVERRIDING SYSTEM VALUE to override."
        if insert and item.generated[index] == "always"
        else None,
    )


def returning_over(
    planning: Planning,
    targets: tuple[ast.Target, ...],
    scope: Scope,
    lets: Lets = (),
    merge_action: Column | None = None,
) -> Query | None:
    """Return RETURNING over the changed rows, which `scope` describes."""
    if not targets:
        return None
    relation: Relation = LocalGet(0, tuple(scope.columns))
    clause = Clause("RETURNING", merge_action=merge_action)
    outputs, names, origins = project_targets(planning, targets, scope, relation, clause)
    relation = with_lets(lets, outputs)
    split = split_calls(relation)
    if split is None or not all(map(is_random, calls_in_scalars(split[1]))):
        return query_over(lower_and_optimize(relation), names, origins)
    below, over = split
    columns = columns_of(relation)
    finishing = Finishing((), None, 0, tuple(range(len(columns))))
    desc = RelationDesc(names, columns, origins=origins)
    return Query(lower_and_optimize(below), finishing, desc, row_outputs=over)


def row_of(
    planning: Planning, item: ItemView, ref: ast.TableRef, columns: Sequence[ColumnType]
) -> Scope:
    """Return the scope of a row of the changed table; reading its columns needs a right."""
    entry = planning.needs.entry(item, reads=False)
    named = zip(item.desc.names, origins_in(item), strict=True)
    slots = tuple(Slot(name, i, origin) for i, (name, origin) in enumerate(named))
    schema = None if ref.alias else item.name.schema
    table = Table(ref.alias or item.name.item, schema, slots, oid=item.oid or None)
    origins = {i: Origin(entry, i) for i in range(len(item.desc.names))}
    return Scope(list(columns), [table], list(slots), origins=origins)


def assigned_columns(
    planning: Planning,
    item: ItemView,
    assignments: Sequence[ast.Assignment],
    scope: Scope,
    start: int = 0,
) -> dict[int, Scalar]:
    """Return the values that SET assigns, by column position; the right to UPDATE is needed.

    The columns of the changed row follow `start` others in the scope.
    """
    binder = ExpressionBinder(planning, scope, Clause("UPDATE"))
    given: dict[int, Scalar] = {}
    in_parts: set[int] = set()
    for assignment in assignments:
        positions = positions_of(item, assignment.columns)
        if assignment.subscripts:
            (position,) = positions
            name = item.desc.names[position]
            if position in given and position not in in_parts:
                raise SyntaxError_(f'multiple assignments to same column "{name}"')
            refuse_generated(item, position, "update")
            whole = given[position] if position in in_parts else scope.column(start + position)
            given[position] = with_part(binder, whole, name, assignment)
            in_parts.add(position)
            continue
        values = _assigned(binder, item, assignment, positions)
        for position, (scalar, at) in zip(positions, values, strict=True):
            name = item.desc.names[position]
            if position in given:
                raise SyntaxError_(f'multiple assignments to same column "{name}"')
            value = assign(planning, scalar, item.desc.columns[position].type, name, at)
            given[position] = _computed(value)
    planning.needs.change(item, "UPDATE", given)
    return given


def _computed(value: Scalar) -> Scalar:
    """Return a constant computed; raises DataError if it fails, which no row need show.

    One of arguments is computed once, whatever rows there are.
    """
    if not isinstance(value, Call) or not is_constant(value):
        return computed_once(value)
    found = constant(value)
    if isinstance(found, str):
        raise DataError.parse(found)
    return found


def _columns_of_row(binder: ExpressionBinder, row: ast.Subquery, count: int) -> list[Scalar]:
    """Return the columns of a subquery's only row, each as a subquery of its own."""
    from foreshore.sql.bind.query import bind_query

    with binder.scope.seen_from(binder.clause):
        bound = bind_query(binder.planning, row.query, binder.scope)
    if len(bound.names) != count:
        raise SyntaxError_("number of columns does not match number of values", position=row.at + 1)
    relation = plain_relation(bound)
    # Random values are the same in each of the subqueries, as calls have one number in all.
    if not all(is_random(call) for call, _ in RemainingCalls.of(relation).calls):
        raise FeatureNotSupported(
            "functions with side effects in a subquery for several columns are not supported",
            position=row.at + 1,
        )
    return [
        ScalarSubquery(Project(relation, (place,)), column.type)
        for place, column in enumerate(columns_of(relation))
    ]


def _assigned(
    binder: ExpressionBinder,
    item: ItemView,
    assignment: ast.Assignment,
    positions: tuple[int, ...],
) -> list[tuple[Scalar, int]]:
    expr = assignment.value

    def one(value: ast.Expression, position: int) -> tuple[Scalar, int]:
        if isinstance(value, ast.Default):
            return default_of(binder.planning, item, position), value.at
        refuse_generated(item, position, "update")
        return binder.bind(value), at_of(value)

    if not assignment.multiple:
        return [one(expr, positions[0])]
    if isinstance(expr, ast.Row):
        if len(expr.items) != len(positions):
            raise SyntaxError_(
                "number of columns does not match number of values", position=expr.at + 1
            )
        return [one(e, p) for e, p in zip(expr.items, positions, strict=True)]
    if isinstance(expr, ast.Subquery) and expr.kind == "scalar":
        for position in positions:
            refuse_generated(item, position, "update")
        return [(value, expr.at) for value in _columns_of_row(binder, expr, len(positions))]
    if len(positions) == 1:
        return [one(expr, positions[0])]
    raise FeatureNotSupported(
        "source for a multiple-column UPDATE item must be a sub-SELECT or ROW() expression",
        position=at_of(expr) + 1,
    )
