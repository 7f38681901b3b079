"""Bind INSERT."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import msgspec

from foreshore.constraint import Unique
from foreshore.errors import (
    DatabaseError,
    FeatureNotSupported,
    InvalidColumnReference,
    SyntaxError_,
    UndefinedColumn,
    UndefinedObject,
    WrongObjectType,
)
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.ir import (
    TRUE,
    Column,
    LocalGet,
    Map,
    OrderKey,
    Project,
    Relation,
    Scalar,
)
from foreshore.expr.traversal import sources_of
from foreshore.item_view import ItemView
from foreshore.sql import ast
from foreshore.sql.bind.argument_rows import bind_rows
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.bound_query import filtered, relation_and_order
from foreshore.sql.bind.coerce import assign
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.form_rows import (
    Cell,
    Convert,
    Piece,
    bind_cell,
    pieces_of,
    relation_of,
)
from foreshore.sql.bind.near_columns import hint_for
from foreshore.sql.bind.needs import moved
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.query import bind_query, rows_relation
from foreshore.sql.bind.result import lower_and_optimize
from foreshore.sql.bind.scope import Scope, Slot, Table
from foreshore.sql.bind.sets import selected_row
from foreshore.sql.bind.side_effects import (
    check_order_is_known,
    has_side_effects,
    split_calls,
)
from foreshore.sql.bind.subquery import without_rows
from foreshore.sql.bind.time import bind_as_of
from foreshore.sql.bind.writes.row_security import new_row_checks, reads_target, row_checks
from foreshore.sql.bind.writes.target import (
    assigned_columns,
    default_of,
    is_stored,
    positions_of,
    refuse_generated,
    require_deletable,
    returning_over,
    row_of,
    target_table,
)
from foreshore.sql.lower.outer_columns import has_subquery
from foreshore.sql.plan import Insert, OnConflict, RowCheck
from foreshore.types import INT8, ColumnType

T = TypeVar("T")


def bind_insert(planning: Planning, statement: ast.InsertStatement) -> Insert:
    """Return the plan of INSERT."""
    item = target_table(planning, statement.table, "insert")
    positions = (
        tuple(range(len(item.desc.names)))
        if statement.columns is None
        else positions_of(item, statement.columns)
    )
    query = statement.source
    order_by: tuple[OrderKey, ...] = ()
    if query is None:
        planning.needs.change(item, "INSERT", ())
        values = [default_of(planning, item, i) for i in range(len(item.desc.names))]
        source = rows_relation([values])
    else:
        if statement.ctes:
            query = ast.Query(query, query.at, statement.ctes, statement.recursive)
        source, order_by, width = _source(planning, item, positions, statement, query)
        planning.needs.change(item, "INSERT", positions[:width])
    source, over, order_by = _split(source, order_by, len(item.desc.names), statement)
    relation = lower_and_optimize(source, is_maintained=False)
    row = row_of(planning, item, statement.table, item.desc.columns)
    returning = returning_over(planning, statement.returning, row)
    on_conflict, reads = None, False
    if statement.on_conflict is not None:
        on_conflict, reads = _on_conflict(planning, item, statement.table, statement.on_conflict)
    checks: tuple[RowCheck, ...] = ()
    if item.policies is not None:
        selects = reads or reads_target(row)
        checks = new_row_checks(planning, item, "insert", selects=selects)
        if on_conflict is not None:
            on_conflict = _secured(planning, item, on_conflict, selects=selects)
    return Insert(
        item.id,
        relation,
        returning,
        not sources_of(relation),
        on_conflict,
        over,
        None if statement.as_of is None else bind_as_of(planning, statement.as_of),
        order_by,
        checks=checks,
    )


def _secured(
    planning: Planning, item: ItemView, conflict: OnConflict, *, selects: bool
) -> OnConflict:
    """Return ON CONFLICT with the conditions of row-level security on the rows that it updates."""
    if conflict.update is None:
        return conflict
    existing = row_checks(planning, item, "update", "new row by USING", using=True)
    if selects:
        existing += row_checks(planning, item, "select", "new row by USING", using=True)
    checks = new_row_checks(planning, item, "update", selects=selects)
    return replace(conflict, existing_checks=existing, checks=checks)


def _split(
    source: Relation, order_by: tuple[OrderKey, ...], width: int, statement: ast.InsertStatement
) -> tuple[Relation, tuple[Scalar, ...], tuple[OrderKey, ...]]:
    """Return the relation to compute first, the table's columns over it, and the rows' order.

    `source` has the columns of `order_by` after the table's, of which there are `width`.
    """
    split = split_calls(source)
    if split is not None:
        source, over = split
        check_order_is_known([key.expr for key in order_by], over)
        keys = zip(order_by, over[width:], strict=True)
        return (
            source,
            over[:width],
            tuple(msgspec.structs.replace(key, expr=scalar) for key, scalar in keys),
        )
    if statement.on_conflict is None and statement.returning is None:
        order_by = ()
    if not order_by and len(columns_of(source)) > width:
        source = Project(source, tuple(range(width)))
    return source, (), order_by


def _on_conflict(
    planning: Planning, item: ItemView, ref: ast.TableRef, clause: ast.OnConflict
) -> tuple[OnConflict, bool]:
    """Return ON CONFLICT, and whether it needs the right SELECT on the table."""
    arbiters, reads = _arbiters(item, ref, clause), bool(clause.columns or clause.constraint)
    if clause.columns or clause.constraint:
        found = (each for each in item.constraints if each.name in arbiters)
        columns_ = {at for each in found if isinstance(each, Unique) for at in each.columns}
        planning.needs.add(item.id, "SELECT", (item.desc.names[at] for at in sorted(columns_)))
    if clause.assignments is None:
        return OnConflict(arbiters, None), reads
    if not (clause.columns or clause.constraint):
        raise SyntaxError_(
            "ON CONFLICT DO UPDATE requires inference specification or constraint name",
            hint="For example, ON CONFLICT (column_name).",
            position=clause.at + 1,
        )
    require_deletable(item)
    columns = item.desc.columns
    width = len(columns)
    there = row_of(planning, item, ref, columns)
    slots = tuple(Slot(name, width + i) for i, name in enumerate(item.desc.names))
    excluded = Table("excluded", None, slots)
    scope = Scope(
        [*columns, *columns],
        [*there.tables, excluded],
        [*there.visible, *slots],
        # As in PostgreSQL, who reads a value proposed for a column needs the right to read it.
        origins={**there.origins, **moved(there.origins, width)},
    )
    number = ColumnType(INT8, False)
    relation: Relation = LocalGet(0, (*columns, *columns, number))
    given = assigned_columns(planning, item, clause.assignments, scope)
    new = tuple(without_rows(given[i]) if i in given else scope.unread(i) for i in range(width))
    where: Scalar = TRUE
    if clause.where is not None:
        binder = ExpressionBinder(planning, scope, Clause("WHERE"))
        where = without_rows(binder.condition(clause.where))
        relation = filtered(relation, where)
    if any(map(has_subquery, (*new, where))):
        raise FeatureNotSupported(
            "a subquery in ON CONFLICT DO UPDATE is not supported", position=clause.at + 1
        )
    start = 2 * width + 1
    relation = Project(Map(relation, new), (start - 1, *range(start, start + width)))
    reads = reads or any(origin.entry.columns for origin in there.origins.values())
    return OnConflict(arbiters, lower_and_optimize(relation)), reads


def _arbiters(item: ItemView, ref: ast.TableRef, clause: ast.OnConflict) -> tuple[str, ...]:
    """Return the names of the unique constraints that detect conflicts."""
    unique = [each for each in item.constraints if isinstance(each, Unique)]
    if clause.constraint is not None:
        name, _ = clause.constraint
        found = next((each for each in item.constraints if each.name == name), None)
        if found is None or (isinstance(found, Unique) and found.is_index):
            raise UndefinedObject(
                f'constraint "{name}" for table "{item.name.item}" does not exist'
            )
        if not isinstance(found, Unique):
            raise WrongObjectType("constraint in ON CONFLICT clause has no associated index")
        return (name,)
    if not clause.columns:
        return tuple(each.name for each in unique)
    wanted = set()
    for name, at in clause.columns:
        if name not in item.desc.names:
            slots = tuple(Slot(each, i) for i, each in enumerate(item.desc.names))
            row = Scope([], [Table(ref.alias or item.name.item, None, slots)], [])
            raise UndefinedColumn(
                f'column "{name}" does not exist', position=at + 1, hint=hint_for(row, name)
            )
        wanted.add(item.desc.names.index(name))
    matching = tuple(each.name for each in unique if set(each.columns) == wanted)
    if not matching:
        raise InvalidColumnReference(
            "there is no unique or exclusion constraint matching the ON CONFLICT specification"
        )
    return matching


def _source(
    planning: Planning,
    item: ItemView,
    positions: tuple[int, ...],
    statement: ast.InsertStatement,
    query: ast.Query,
) -> tuple[Relation, tuple[OrderKey, ...], int]:
    """Return rows of the table, perhaps with more columns, their order, and how many are given."""
    explicit = statement.columns is not None
    body = query.body
    plain = not (query.ctes or query.order_by or query.limit or query.offset or query.locks)
    selected = selected_row(body) if isinstance(body, ast.Values) and plain else None
    if selected is not None:
        query = ast.Query(selected, query.at)
    elif isinstance(body, ast.Values) and plain:
        return _values(planning, item, positions, statement, body), (), len(body.rows[0])
    wanted = [item.desc.columns[i].type for i in positions]
    bound = bind_query(planning, query, None, wanted, locking=True)
    relation, order_by = relation_and_order(bound)
    columns = columns_of(relation)
    _check_width(len(bound.project), positions, statement, query.at, explicit=explicit)
    given: dict[int, Scalar] = {}
    for i, (position, place) in enumerate(zip(positions, bound.project, strict=False)):
        if _ignores_given_value(item, position, statement):
            continue
        if statement.overriding is None or is_stored(item, position):
            refuse_generated(item, position, "insert")
        scalar = Column(place, columns[place].type, columns[place].nullable)
        at = bound.offsets[i] if bound.offsets else query.at
        given[position] = assign(
            planning, scalar, item.desc.columns[position].type, item.desc.names[position], at
        )
    rows = _with_defaults(planning, item, relation, given, [key.expr for key in order_by])
    places = range(len(item.desc.names), len(columns_of(rows)))
    order = tuple(
        msgspec.structs.replace(key, expr=Column(place, type_of(key.expr)))
        for key, place in zip(order_by, places, strict=True)
    )
    return rows, order, len(bound.project)


def _ignores_given_value(item: ItemView, position: int, statement: ast.InsertStatement) -> bool:
    """Return whether OVERRIDING USER VALUE makes a column ignore the value given."""
    return (
        statement.overriding == "user"
        and bool(item.generated)
        and item.generated[position] in ("always", "by default")
    )


def _check_width(
    width: int,
    positions: tuple[int, ...],
    statement: ast.InsertStatement,
    at: int,
    *,
    explicit: bool,
) -> None:
    if width > len(positions):
        raise SyntaxError_("INSERT has more expressions than target columns", position=at + 1)
    if width < len(positions) and explicit:
        assert statement.columns is not None
        raise SyntaxError_(
            "INSERT has more target columns than expressions",
            position=statement.columns[width][1] + 1,
        )


def _with_defaults(
    planning: Planning,
    item: ItemView,
    relation: Relation,
    given: dict[int, Scalar],
    others: Sequence[Scalar] = (),
) -> Relation:
    """Return rows of the table: given values, defaults for the others, then `others`."""
    scalars = [
        *(
            given[i] if i in given else default_of(planning, item, i)
            for i in range(len(item.desc.names))
        ),
        *others,
    ]
    width = len(columns_of(relation))
    if all(isinstance(s, Column) and s.index == i for i, s in enumerate(scalars)) and (
        len(scalars) == width
    ):
        return relation
    return Project(Map(relation, tuple(scalars)), tuple(range(width, width + len(scalars))))


def _values(
    planning: Planning,
    item: ItemView,
    positions: tuple[int, ...],
    statement: ast.InsertStatement,
    values: ast.Values,
) -> Relation:
    """Return rows of the table."""
    arguments = _rows_of_arguments(planning, item, positions, statement, values)
    if arguments is not None:
        return arguments
    pieces = _value_pieces(planning, item, positions, statement, values)
    given = values.rows if pieces is not None else values.whole
    rows = (
        []
        if pieces is not None
        else _value_rows(planning, item, positions, statement, values, given)
    )
    places = {position: place for place, position in enumerate(positions[: len(given[0])])}
    # A column generated in every row is generated for all of them at once.
    numbered = {
        i
        for i in range(len(item.desc.names))
        if has_side_effects(default_of(planning, item, i))
        and (i not in places or all(_is_default(exprs[places[i]]) for exprs in given))
    }
    others = [i for i in range(len(item.desc.names)) if i not in numbered]

    def of_table(cells: Sequence[T]) -> list[T | Scalar]:
        return [cells[places[i]] if i in places else default_of(planning, item, i) for i in others]

    if pieces is None:
        relation = rows_relation(list(map(of_table, rows)))
    else:
        relation = relation_of([(count, of_table(cells)) for count, cells in pieces])
    columns = columns_of(relation)
    return _with_defaults(
        planning,
        item,
        relation,
        {i: Column(k, columns[k].type, columns[k].nullable) for k, i in enumerate(others)},
    )


def _value_rows(
    planning: Planning,
    item: ItemView,
    positions: tuple[int, ...],
    statement: ast.InsertStatement,
    values: ast.Values,
    given: Sequence[Sequence[ast.Expression]],
) -> list[list[Scalar]]:
    """Return the scalars of VALUES, row by row."""
    binder = ExpressionBinder(planning, Scope(), Clause("VALUES"))
    rows: list[list[Scalar]] = []
    for exprs in given:
        if len(exprs) != len(given[0]):
            raise SyntaxError_(
                "VALUES lists must all be the same length", position=at_of(exprs[0]) + 1
            )
        if len(exprs) > len(positions):
            raise SyntaxError_(
                "INSERT has more expressions than target columns",
                position=at_of(exprs[len(positions)]) + 1,
            )
        _check_width(
            len(exprs),
            positions,
            statement,
            values.at,
            explicit=statement.columns is not None,
        )
        rows.append(
            [
                _value(binder, item, position, statement, expr)
                for position, expr in zip(positions, exprs, strict=False)
            ]
        )
    return rows


def _value(
    binder: ExpressionBinder,
    item: ItemView,
    position: int,
    statement: ast.InsertStatement,
    expr: ast.Expression,
) -> Scalar:
    """Return the value that is given for a column, or its default."""
    if not _takes_value(item, position, statement, expr):
        return default_of(binder.planning, item, position)
    return _assign_to(binder.planning, item, position)(binder.bind(expr), at_of(expr))


def _takes_value(
    item: ItemView, position: int, statement: ast.InsertStatement, expr: ast.Expression
) -> bool:
    """Return whether a column takes what is given; raises an error if it is always generated."""
    if isinstance(expr, ast.Default) or _ignores_given_value(item, position, statement):
        return False
    if statement.overriding is None or is_stored(item, position):
        refuse_generated(item, position, "insert")
    return True


def _assign_to(planning: Planning, item: ItemView, position: int) -> Convert:
    """Return what assigns a scalar to a column."""
    type, name = item.desc.columns[position].type, item.desc.names[position]
    return lambda scalar, at: assign(planning, scalar, type, name, at)


def _value_pieces(
    planning: Planning,
    item: ItemView,
    positions: tuple[int, ...],
    statement: ast.InsertStatement,
    values: ast.Values,
) -> list[Piece] | None:
    """Return the rows of long VALUES, bound by their forms; None if that has to be by row."""
    more, rows = values.more, values.rows
    if more is None or not _have_width_of(positions, statement, rows):
        return None
    binder = ExpressionBinder(planning, Scope(), Clause("VALUES"))
    kept: list[list[Cell]] = []
    try:
        for number, exprs in enumerate(rows):
            columns = more.columns.get(number)
            cells: list[Cell] = []
            for i, (position, expr) in enumerate(zip(positions, exprs, strict=False)):
                texts = None if columns is None else columns[i]
                if texts is None or not _takes_value(item, position, statement, expr):
                    scalar = _value(binder, item, position, statement, expr)
                    if columns is not None and has_side_effects(scalar) and (
                        not all(_is_default(row[i]) for row in rows)
                    ):  # fmt: skip
                        return None
                    cells.append(scalar)
                    continue
                type = item.desc.columns[position].type
                convert = _assign_to(planning, item, position)
                cell = bind_cell(binder, expr, texts, type, convert)
                if cell is None:
                    return None
                cells.append(cell)
            kept.append(cells)
    except DatabaseError:
        return None
    return pieces_of(more, kept)


def _have_width_of(
    positions: tuple[int, ...],
    statement: ast.InsertStatement,
    rows: Sequence[Sequence[ast.Expression]],
) -> bool:
    """Return whether all rows have a value for each of the columns that are to have one."""
    width = len(rows[0])
    if width > len(positions) or any(len(row) != width for row in rows):
        return False
    return width == len(positions) or statement.columns is None


def _rows_of_arguments(
    planning: Planning,
    item: ItemView,
    positions: tuple[int, ...],
    statement: ast.InsertStatement,
    values: ast.Values,
) -> Relation | None:
    """Return rows of the table of long VALUES with parameters; None if that has to be by row."""
    more, first = values.more, values.rows[0]
    columns = None if more is None or not more.has_parameters else more.only_form
    if columns is None or not _have_width_of(positions, statement, values.rows):
        return None
    if not all(
        _takes_value(item, position, statement, expr)
        for position, expr in zip(positions, first, strict=False)
    ):
        return None
    binder = ExpressionBinder(planning, Scope(), Clause("VALUES"))
    found = bind_rows(
        binder, first, columns, lambda i, scalar, at: _assign_to(planning, item, positions[i])
    )
    if found is None:
        return None
    rows, scalars = found
    return _with_defaults(planning, item, rows, dict(zip(positions, scalars, strict=False)))


def _is_default(expr: ast.Expression) -> bool:
    return isinstance(expr, ast.Default)
