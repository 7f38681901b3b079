"""Bind queries: WITH, VALUES, set operations, ORDER BY and LIMIT around SELECTs."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import assert_never

from foreshore.errors import (
    DatabaseError,
    FeatureNotSupported,
    SyntaxError_,
)
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.equality import has_one_form
from foreshore.expr.functions.registry import select_common_type
from foreshore.expr.ir import (
    Column,
    Constant,
    FlatMap,
    Let,
    Literal,
    LocalGet,
    Map,
    Negate,
    OrderKey,
    Project,
    Relation,
    Scalar,
    Threshold,
    Union,
)
from foreshore.sql import ast
from foreshore.sql.ast.form_rows import FormRows
from foreshore.sql.bind.argument_rows import bind_rows, with_columns
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.bound_query import (
    Body,
    BoundQuery,
    Branch,
    Wanted,
    distinct,
    order_key,
    output_index,
    plain_relation,
    project,
)
from foreshore.sql.bind.coerce import common_type, is_unknown, to_common, to_known
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.form_rows import (
    Cell,
    ColumnValues,
    Convert,
    Piece,
    bind_cell,
    kinds_of_cell,
    pieces_of,
    relation_of,
)
from foreshore.sql.bind.limit import bind_limit
from foreshore.sql.bind.locking import bind_init_plan, locking_not_allowed
from foreshore.sql.bind.order import ascending
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.scope import Scope, Slot, Table
from foreshore.sql.bind.select import SelectBinder
from foreshore.sql.bind.sets import UNIT
from foreshore.sql.bind.stars import order_of_all
from foreshore.sql.bind.widths import check_targets
from foreshore.sql.bind.with_clause import common_tables, with_lets
from foreshore.types import INT8, NUMBER, ColumnType, SqlType


def bind_query(
    planning: Planning,
    query: ast.Query,
    parent: Scope | None,
    wanted: Wanted = None,
    *,
    locking: bool = False,
) -> BoundQuery:
    """Return `query` bound within `parent`; with `locking` it may have FOR UPDATE."""
    if query.locks and query is not planning.locked:
        if not locking:
            raise locking_not_allowed(query)
        return bind_init_plan(planning, query, parent, wanted)
    with common_tables(planning, query.ctes, parent, recursive=query.recursive) as lets:
        bound = _bind_body(planning, query, parent, wanted)
        bind_limit(planning, query, bound, parent)
    bound.relation = with_lets(lets, bound.relation)
    return bound


def _bind_body(
    planning: Planning, query: ast.Query, parent: Scope | None, wanted: Wanted
) -> BoundQuery:
    match query.body:
        case ast.Select() as select:
            binder = SelectBinder(planning, select, parent)
            bound = binder.bind(query.order_by, wanted)
            _refuse_locking(query, _why_not_lockable(select, binder))
            return bound
        case ast.Values() as values:
            _refuse_locking(query, "cannot be applied to VALUES")
            if not query.order_by:
                return _values_in_order(planning, values, parent, wanted)
            relation, names = bind_values(planning, values, parent, wanted)
            return _ordered(planning, query, relation, names, parent, expressions=True)
        case ast.SetOperation() as operation:
            _refuse_locking(query, "is not allowed with UNION/INTERSECT/EXCEPT")
            branch = _set_operation(planning, operation, parent)
            relation = project(branch.relation, branch.outputs)
            return _ordered(planning, query, relation, branch.names, parent, expressions=False)
        case ast.Query() as inner:
            bound = bind_query(planning, inner, parent, wanted)
            relation = plain_relation(bound)
            return _ordered(planning, query, relation, bound.names, parent, expressions=True)
        case _:
            assert_never(query.body)


def _why_not_lockable(select: ast.Select, binder: SelectBinder) -> str | None:
    """Return why the rows of a SELECT are not single rows of its tables, or None if they are."""
    reasons = (
        (select.distinct is not None, "DISTINCT clause"),
        (bool(select.group_by) or select.groups_all, "GROUP BY clause"),
        (select.having is not None, "HAVING clause"),
        (bool(binder.aggregates.cores), "aggregate functions"),
        (bool(binder.windows.calls), "window functions"),
        (bool(binder.sets.calls), "set-returning functions in the target list"),
    )
    return next((f"is not allowed with {what}" for found, what in reasons if found), None)


def _refuse_locking(query: ast.Query, why: str | None) -> None:
    """Raise an error if rows should be locked and cannot be, with the reason."""
    if query.locks and why is not None:
        raise FeatureNotSupported(f"{query.locks[0].strength} {why}")


def _ordered(
    planning: Planning,
    query: ast.Query,
    relation: Relation,
    names: tuple[str, ...],
    parent: Scope | None,
    *,
    expressions: bool,
) -> BoundQuery:
    """Return a relation as a query ordered by its output columns."""
    columns = columns_of(relation)
    project = tuple(range(len(columns)))
    slots = [Slot(name, i) for i, name in enumerate(names)]
    scope = Scope(list(columns), [Table("*VALUES*", None, tuple(slots))], slots, parent)
    outputs = tuple(Column(i, c.type, c.nullable) for i, c in enumerate(columns))
    extra: list[Scalar] = []
    keys: list[OrderKey] = []
    for key in order_of_all(query.order_by, len(names)):
        index = output_index(key.expr, names, outputs, "ORDER BY")
        if index is None:
            if not expressions:
                raise _only_names(key)
            binder = ExpressionBinder(planning, scope, Clause("ORDER BY"))
            scalar = to_known(planning, binder.bind(key.expr), key.at)
            extra.append(scalar)
            keys.append(order_key(key, Column(len(columns) + len(extra) - 1, type_of(scalar))))
        else:
            keys.append(order_key(key, outputs[index]))
    if extra:
        relation = Map(relation, tuple(extra))
    return BoundQuery(relation, project, names, tuple(keys))


def _only_names(key: ast.SortKey) -> FeatureNotSupported:
    if isinstance(key.expr, ast.ColumnRef):
        name = ".".join(key.expr.parts)
        return FeatureNotSupported(
            f'column "{name}" does not exist', sqlstate="42703", position=key.at + 1
        )
    return FeatureNotSupported(
        "invalid UNION/INTERSECT/EXCEPT ORDER BY clause",
        detail="Only result column names can be used, not expressions or functions.",
        hint="Add the expression/function to every SELECT, or move the UNION into a FROM clause.",
        position=key.at + 1,
    )


# --- VALUES --------------------------------------------------------------------------------


def bind_values(
    planning: Planning, values: ast.Values, parent: Scope | None, wanted: Wanted = None
) -> tuple[Relation, tuple[str, ...]]:
    """Return VALUES as a relation and its column names."""
    check_targets(len(values.rows[0]), defined=planning.defined)
    found = _rows_of_arguments(planning, values, parent, wanted)
    if found is not None:
        return with_columns(*found), _value_names(len(found[1]))
    names = _value_names(len(values.rows[0]))
    pieces = _value_pieces(planning, values, parent, wanted)
    if pieces is not None:
        return relation_of(pieces), names
    return rows_relation(_value_rows(planning, values, parent, wanted)), names


def _values_in_order(
    planning: Planning, values: ast.Values, parent: Scope | None, wanted: Wanted
) -> BoundQuery:
    """Return VALUES as a query whose rows keep their order."""
    check_targets(len(values.rows[0]), defined=planning.defined)
    width = len(values.rows[0])
    names, places = _value_names(width), tuple(range(width))
    by_number = ascending(Column(width, INT8, False)).keys
    found = _rows_of_arguments(planning, values, parent, wanted, numbered=True)
    if found is not None:
        return BoundQuery(with_columns(*found), places, names, by_number)
    pieces = _value_pieces(planning, values, parent, wanted)
    if pieces is not None:
        starts = accumulate((count for count, _ in pieces), initial=0)
        numbered = [
            (count, (*cells, ColumnValues(range(start, start + count), INT8)))
            for (count, cells), start in zip(pieces, starts, strict=False)
        ]
        return BoundQuery(relation_of(numbered), places, names, by_number)
    rows = _value_rows(planning, values, parent, wanted)
    if len(rows) == 1:
        return BoundQuery(rows_relation(rows), places, names, ())
    in_order = [[*row, Literal(number, INT8)] for number, row in enumerate(rows)]
    return BoundQuery(rows_relation(in_order), places, names, by_number)


def _value_names(width: int) -> tuple[str, ...]:
    return tuple(f"column{i + 1}" for i in range(width))


def _value_pieces(
    planning: Planning, values: ast.Values, parent: Scope | None, wanted: Wanted
) -> list[Piece] | None:
    """Return the rows of long VALUES, bound by their forms; None if that has to be by row."""
    more = values.more
    if more is None or any(len(row) != len(values.rows[0]) for row in values.rows):
        return None
    binder = binder_of_values(planning, parent)
    kept: list[list[Cell]] = [[] for _ in values.rows]
    try:
        for column in zip(*values.rows, strict=True):
            for cells, cell in zip(
                kept, _value_cells(binder, column, more, len(kept[0]), wanted), strict=True
            ):
                if cell is None:
                    return None
                cells.append(cell)
    except DatabaseError:
        return None
    return pieces_of(more, kept)


def _value_cells(
    binder: ExpressionBinder,
    column: Sequence[ast.Expression],
    more: FormRows,
    place: int,
    wanted: Wanted,
) -> Iterator[Cell | None]:
    """Yield a column of VALUES: its cells in the rows that are kept, and those of their forms."""
    planning = binder.planning
    columns = [more.columns.get(number) for number in range(len(column))]
    texts = [None if each is None else each[place] for each in columns]
    kinds = [
        [binder.bind(expr)] if given is None else kinds_of_cell(binder, expr, given)
        for expr, given in zip(column, texts, strict=True)
    ]
    scalars = [kind for each in kinds for kind in each]
    offsets = [at_of(expr) for expr, each in zip(column, kinds, strict=True) for _ in each]
    if wanted is not None and place < len(wanted) and all(map(is_unknown, scalars)):
        common = wanted[place]
    else:
        common = _type_of_values(planning, scalars, offsets, wanted, place)

    def convert(scalar: Scalar, at: int) -> Scalar:
        return to_common(planning, scalar, common, "VALUES", at)

    for expr, given, (first, *_) in zip(column, texts, kinds, strict=True):
        if given is None:
            yield convert(first, at_of(expr))
        else:
            yield bind_cell(binder, expr, given, common, convert)


def _type_of_values(
    planning: Planning, kinds: Sequence[Scalar], offsets: Sequence[int], wanted: Wanted, place: int
) -> SqlType:
    """Return the common type of a column of VALUES; a column with a scale gets numerics of one."""
    keeps_digits = planning.keeps_digits
    common = common_type(kinds, "VALUES", offsets, keeps_digits=keeps_digits)
    if common == NUMBER and wanted is not None and wanted[place : place + 1]:
        planned = select_common_type(list(map(type_of, kinds)))
        if wanted[place].name == "numeric" and planned is not None and planned.name == "numeric":
            return planned
    return common


def _rows_of_arguments(
    planning: Planning,
    values: ast.Values,
    parent: Scope | None,
    wanted: Wanted,
    *,
    numbered: bool = False,
) -> tuple[FlatMap, list[Scalar]] | None:
    """Return long VALUES with parameters, bound by column; None if that has to be by row."""
    more = values.more
    columns = None if more is None or not more.has_parameters else more.only_form
    if columns is None:
        return None

    def convert_of(i: int, scalar: Scalar, at: int) -> Convert:
        texts = columns[i]
        kinds = [scalar]
        if texts is not None and texts[0][0] != "$":
            kinds = kinds_of_cell(binder, values.rows[0][i], texts)
        if wanted is not None and i < len(wanted) and all(map(is_unknown, kinds)):
            common = wanted[i]
        else:
            common = _type_of_values(planning, kinds, [at] * len(kinds), wanted, i)
        return lambda value, at: to_common(planning, value, common, "VALUES", at)

    binder = binder_of_values(planning, parent)
    return bind_rows(binder, values.rows[0], columns, convert_of, numbered=numbered)


def binder_of_values(planning: Planning, parent: Scope | None) -> ExpressionBinder:
    """Return what binds the scalars of VALUES."""
    return ExpressionBinder(planning, Scope(parent=parent), Clause("VALUES"))


def _value_rows(
    planning: Planning, values: ast.Values, parent: Scope | None, wanted: Wanted
) -> list[list[Scalar]]:
    """Return the scalars of VALUES, with a common type per column."""
    binder = binder_of_values(planning, parent)
    width, given = len(values.rows[0]), values.whole
    for row in given:
        if len(row) != width:
            raise SyntaxError_(
                "VALUES lists must all be the same length", position=at_of(row[0]) + 1
            )
    rows = [[binder.bind(expr) for expr in row] for row in given]
    for i in range(width):
        offsets = [at_of(row[i]) for row in given]
        if wanted is not None and i < len(wanted) and all(is_unknown(row[i]) for row in rows):
            common = wanted[i]
        else:
            common = _type_of_values(planning, [row[i] for row in rows], offsets, wanted, i)
        for bound, at in zip(rows, offsets, strict=True):
            bound[i] = to_common(planning, bound[i], common, "VALUES", at)
    return rows


def rows_relation(rows: Sequence[Sequence[Scalar]]) -> Relation:
    """Return rows of scalars as a relation, a Constant if all are constants."""
    constants = [[s.value for s in row if isinstance(s, Literal)] for row in rows]
    if all(len(values) == len(row) for values, row in zip(constants, rows, strict=True)):
        columns = tuple(
            ColumnType(type_of(scalar), any(values[i] is None for values in constants))
            for i, scalar in enumerate(rows[0])
        )
        return Constant(tuple((tuple(values), 1) for values in constants), columns)
    each: list[Relation] = [Map(UNIT, tuple(row)) for row in rows]
    return each[0] if len(each) == 1 else Union(tuple(each))


# --- set operations ------------------------------------------------------------------------


def _branch(planning: Planning, body: Body, parent: Scope | None) -> Branch:
    if isinstance(body, ast.Query) and isinstance(body.body, ast.Select) and not (
        body.ctes or body.order_by or body.limit or body.offset or body.locks
    ):  # fmt: skip
        body = body.body
    match body:
        case ast.Select(distinct=None) as select:
            return SelectBinder(planning, select, parent).branch()
        case ast.SetOperation() as operation:
            return _set_operation(planning, operation, parent)
        case ast.Values(at=at) as values:
            relation, names = bind_values(planning, values, parent)
        case ast.Query(at=at) as query:
            bound = bind_query(planning, query, parent)
            relation, names = plain_relation(bound), bound.names
        case ast.Select(at=at) as select:
            bound = SelectBinder(planning, select, parent).bind((), None)
            relation, names = plain_relation(bound), bound.names
        case _:
            assert_never(body)
    columns = columns_of(relation)
    outputs = tuple(Column(i, c.type, c.nullable) for i, c in enumerate(columns))
    return Branch(relation, outputs, names, (at,) * len(outputs))


def _set_operation(planning: Planning, operation: ast.SetOperation, parent: Scope | None) -> Branch:
    for body in operation.inputs[1:]:
        if isinstance(body, ast.Select) and body.into is not None:
            raise SyntaxError_(
                "INTO is only allowed on first SELECT of UNION/INTERSECT/EXCEPT",
                position=body.into.name.at + 1,
            )
    branches = [_branch(planning, body, parent) for body in operation.inputs]
    what = operation.kind.upper()
    width = len(branches[0].outputs)
    for branch in branches[1:]:
        if len(branch.outputs) != width:
            raise SyntaxError_(
                f"each {what} query must have the same number of columns",
                position=(branch.offsets[0] if branch.offsets else operation.at) + 1,
            )
    outputs = [list(branch.outputs) for branch in branches]
    for i in range(width):
        offsets = [branch.offsets[i] for branch in branches]
        common = _type_of_union(planning, branches, i, what)
        for each, at in zip(outputs, offsets, strict=True):
            each[i] = to_common(planning, each[i], common, what, at)
    inputs = [
        project(branch.relation, scalars) for branch, scalars in zip(branches, outputs, strict=True)
    ]
    relation = _combined(planning, operation, inputs)
    columns = columns_of(relation)
    return Branch(
        relation,
        tuple(Column(i, c.type, c.nullable) for i, c in enumerate(columns)),
        branches[0].names,
        branches[0].offsets,
    )


_EXACT = frozenset(("int2", "int4", "int8", "numeric"))


def _type_of_union(
    planning: Planning, branches: Sequence[Branch], place: int, what: str
) -> SqlType:
    """Return the common type of a column of branches; constants keep the digits they show."""
    outputs = [branch.outputs[place] for branch in branches]
    shown = [_constant_at(b.relation, output) for b, output in zip(branches, outputs, strict=True)]
    numerics = all(isinstance(s, Literal) and type_of(s).name in _EXACT for s in shown)
    offsets = [branch.offsets[place] for branch in branches]
    keeps_digits = numerics and planning.keeps_digits
    return common_type(shown if numerics else outputs, what, offsets, keeps_digits=keeps_digits)


def _constant_at(relation: Relation, output: Scalar) -> Scalar:
    """Return the constant that a column of all rows is, else the column."""
    if not isinstance(output, Column):
        return output
    match relation:
        case Project(input=input, outputs=outputs):
            column = Column(outputs[output.index], output.type, output.nullable)
            found = _constant_at(input, column)
        case Map(input=input, scalars=scalars):
            place = output.index - len(columns_of(input))
            found = scalars[place] if place >= 0 else _constant_at(input, output)
        case Constant(rows=[(row, _)]):
            found = Literal(row[output.index], output.type)
        case _:
            return output
    return found if isinstance(found, Literal) else output


def _combined(planning: Planning, operation: ast.SetOperation, inputs: list[Relation]) -> Relation:
    if operation.kind == "union":
        together = Union(tuple(inputs))
        return together if operation.all else distinct(together)
    left, right = inputs
    if not operation.all:
        left, right = distinct(left), distinct(right)
    if operation.kind == "except":
        return Threshold(Union((left, Negate(right))))
    # The intersection is the left side minus the rows that only the left side has.
    number = planning.new_let()
    get = LocalGet(number, columns_of(left))
    alone = Threshold(Union((get, Negate(right))))
    both: Relation = Union((get, Negate(alone)))
    if not all(has_one_form(column.type) for column in get.columns):
        both = Threshold(both)  # equal rows may differ in representation
    return Let(number, left, both)
