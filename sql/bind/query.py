"""Queries: SELECT, VALUES, set operations, WITH, ORDER BY and LIMIT, as relations.

A bound query is a relation that may have more columns than the query, those it is ordered by; which
of them are the query's own, `project` says. What orders and limits it is kept apart: at the top it
finishes the result, elsewhere `plain_relation` makes a TopK of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

from foreshore.errors import (
    AmbiguousColumn,
    DatatypeMismatch,
    FeatureNotSupported,
    GroupingError,
    InvalidColumnReference,
    SyntaxError_,
    UndefinedColumn,
)
from foreshore.expr.ir import (
    And,
    Column,
    Constant,
    Filter,
    Let,
    Literal,
    LocalGet,
    Map,
    Negate,
    OrderKey,
    Project,
    Recursive,
    Reduce,
    Relation,
    Scalar,
    Threshold,
    TopK,
    Union,
    columns_of,
    type_of,
    walk_relations,
)
from foreshore.sql import ast
from foreshore.sql.bind.aggregates import Aggregates, CoreRef, Grouping, SetRef
from foreshore.sql.bind.expression import Clause, ExpressionBinder, SetCall, at_of
from foreshore.sql.bind.from_clause import UNIT, bind_from, flat_map, in_step
from foreshore.sql.coerce import coerce, common_type, is_unknown, to_common, to_known
from foreshore.sql.names import column_name
from foreshore.sql.planning import CommonTable, Planning
from foreshore.sql.rewrite import map_scalar, push_down, uses_row
from foreshore.sql.scope import Scope, Slot, Table, resolve_table
from foreshore.types import INT8, ColumnType, SqlType, format_type

Body = ast.Select | ast.Values | ast.SetOperation | ast.Query
Wanted = Sequence[SqlType] | None  # the types that outputs of unknown type are to have


@dataclass
class BoundQuery:
    """A query as a relation, and what remains to be done with its rows."""

    relation: Relation
    project: tuple[int, ...]
    names: tuple[str, ...]
    order_by: tuple[OrderKey, ...] = ()
    limit: Scalar | None = None
    offset: Scalar | None = None
    ats: tuple[int, ...] = ()  # where the output columns stand, if they stand anywhere
    scope: Scope | None = None  # what LIMIT must not use


@dataclass
class Branch:
    """An operand of a set operation: outputs over a relation, of unknown type where they are."""

    relation: Relation
    outputs: tuple[Scalar, ...]
    names: tuple[str, ...]
    ats: tuple[int, ...]


def bind_query(
    planning: Planning, query: ast.Query, parent: Scope | None, wanted: Wanted = None
) -> BoundQuery:
    """Return `query`, bound within `parent`."""
    lets: list[tuple[int, Relation]] = []
    if query.ctes:
        planning.common_tables.append({})
    try:
        for common in query.ctes:
            lets.append(_common_table(planning, common, query, parent))
        bound = _bind_body(planning, query, parent, wanted)
        _limit(planning, query, bound, parent)
    finally:
        if query.ctes:
            planning.common_tables.pop()
    for number, value in reversed(lets):
        bound.relation = Let(number, value, bound.relation)
    return bound


def _common_table(
    planning: Planning, common: ast.CommonTable, query: ast.Query, parent: Scope | None
) -> tuple[int, Relation]:
    tables = planning.common_tables[-1]
    if common.name in tables:
        raise AmbiguousColumn(
            f'WITH query name "{common.name}" specified more than once',
            sqlstate="42712",
            position=common.at + 1,
        )
    if query.recursive and _mentions(common.query, common.name):
        return _recursive(planning, common, parent)
    bound = bind_query(planning, common.query, parent)
    names = _common_names(common, bound)
    relation = plain_relation(bound)
    number = planning.new_let()
    tables[common.name] = CommonTable(number, names, columns_of(relation))
    return number, relation


def _common_names(common: ast.CommonTable, bound: BoundQuery) -> tuple[str, ...]:
    if len(common.columns) > len(bound.names):
        raise InvalidColumnReference(
            f'WITH query "{common.name}" has {len(bound.names)} columns available '
            f"but {len(common.columns)} columns specified",
            position=common.at + 1,
        )
    return common.columns + bound.names[len(common.columns) :]


def _recursive(
    planning: Planning, common: ast.CommonTable, parent: Scope | None
) -> tuple[int, Relation]:
    """Return a query of WITH RECURSIVE that reads itself."""
    tables = planning.common_tables[-1]
    base_body, step_body, all = _recursive_parts(common)
    bound = bind_query(planning, ast.Query(base_body, common.query.at), parent)
    names = _common_names(common, bound)
    base = plain_relation(bound)
    columns = tuple(ColumnType(column.type) for column in columns_of(base))
    types = [column.type for column in columns]
    number = planning.new_let()
    tables[common.name] = CommonTable(number, names, columns)
    step_query = ast.Query(step_body, step_body.at)
    step = plain_relation(bind_query(planning, step_query, parent, types))
    if len(columns_of(step)) != len(types):
        raise SyntaxError_(
            "each UNION query must have the same number of columns", position=step_query.at + 1
        )
    for i, (column, type) in enumerate(zip(columns_of(step), types, strict=True)):
        if column.type != type:
            raise DatatypeMismatch(
                f'recursive query "{common.name}" column {i + 1} has type {format_type(type)} '
                f"in non-recursive term but type {format_type(column.type)} overall",
                hint="Cast the output of the non-recursive term to the correct type.",
                position=common.at + 1,
            )
    if any(
        isinstance(node, Reduce)
        and node.aggregates
        and any(each == LocalGet(number, columns) for each in walk_relations(node))
        for node in walk_relations(step)
    ):
        raise _ill_formed(
            "aggregate functions are not allowed in a recursive query's recursive term",
            step_query.at,
        )
    result = planning.new_let()
    tables[common.name] = CommonTable(result, names, columns)
    return result, Recursive(number, base, step, all)


def _recursive_parts(common: ast.CommonTable) -> tuple[Body, Body, bool]:
    """Return what a recursive query begins with, what it goes on with, and whether by UNION ALL."""
    query, name = common.query, common.name
    body = query.body
    if not (isinstance(body, ast.SetOperation) and body.kind == "union") or query.ctes:
        raise _ill_formed(
            f'recursive query "{name}" does not have the form non-recursive-term UNION [ALL] '
            "recursive-term",
            common.at,
        )
    for clause, there in (
        ("ORDER BY", bool(query.order_by)),
        ("OFFSET", query.offset is not None),
        ("LIMIT", query.limit is not None),
    ):
        if there:
            raise FeatureNotSupported(
                f"{clause} in a recursive query is not implemented", position=query.at + 1
            )
    *first, step = body.inputs
    if any(_mentions(each, name) for each in first):
        raise _ill_formed(
            f'recursive reference to query "{name}" must not appear within its non-recursive term',
            common.at,
        )
    while isinstance(step, ast.Query) and not (
        step.ctes or step.order_by or step.limit or step.offset
    ):
        step = step.body
    count = _mentions(step, name)
    if count > 1:
        raise _ill_formed(
            f'recursive reference to query "{name}" must not appear more than once', common.at
        )
    if not isinstance(step, ast.Select) or not any(_reads(item, name) for item in step.from_):
        raise FeatureNotSupported(
            f'recursive reference to query "{name}" anywhere but in the FROM list of its '
            "recursive term, or in an outer join, is not supported",
            position=common.at + 1,
        )
    base: Body = first[0]
    if len(first) > 1:
        base = ast.SetOperation(body.kind, body.all, tuple(first), body.at)
    return base, step, body.all


def _reads(item: ast.FromItem, name: str) -> bool:
    """Whether `item` is the relation `name`, or joins it by inner joins."""
    match item:
        case ast.TableRef():
            return item.name == (name,)
        case ast.JoinRef(kind="inner" | "cross"):
            return _reads(item.left, name) or _reads(item.right, name)
        case _:
            return False


def _ill_formed(message: str, at: int) -> SyntaxError_:
    return SyntaxError_(message, sqlstate="42P19", position=at + 1)


def _mentions(node: object, name: str) -> int:
    """Return how many table references below `node` are to `name`."""
    count = 0
    stack = [node]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.TableRef):
            count += node.name == (name,)
        elif isinstance(node, tuple | list):
            stack.extend(node)
        elif isinstance(node, ast.Syntax):
            stack.extend(getattr(node, field) for field in node.__struct_fields__)
    return count


def plain_relation(bound: BoundQuery) -> Relation:
    """Return the query as a relation of just its own columns."""
    relation = _limited(bound)
    if bound.project == tuple(range(len(columns_of(relation)))):
        return relation
    return Project(relation, bound.project)


def relation_and_order(bound: BoundQuery) -> tuple[Relation, tuple[OrderKey, ...]]:
    """Return the query as a relation with the columns it is ordered by, and that order."""
    return _limited(bound), bound.order_by


def _limited(bound: BoundQuery) -> Relation:
    if bound.limit is None and bound.offset is None:
        return bound.relation
    return TopK(bound.relation, (), bound.order_by, bound.limit, bound.offset)


def _limit(planning: Planning, query: ast.Query, bound: BoundQuery, parent: Scope | None) -> None:
    def one(expr: ast.Expression | None, what: str) -> Scalar | None:
        if expr is None:
            return None
        binder = ExpressionBinder(planning, bound.scope or Scope(parent=parent), Clause(what))
        scalar = binder.bind(expr)
        if uses_row(scalar, 0):
            raise InvalidColumnReference(
                f"argument of {what} must not contain variables", position=at_of(expr) + 1
            )
        result = coerce(planning, scalar, INT8, "assignment", at_of(expr))
        if result is None:
            raise InvalidColumnReference(
                f"argument of {what} must be type bigint, not type {type_of(scalar)}",
                sqlstate="42804",
                position=at_of(expr) + 1,
            )
        if isinstance(result, Literal):
            if result.value is None:
                return None
            if result.value < 0:
                raise InvalidColumnReference(
                    f"{what} must not be negative", sqlstate="2201W" if what == "LIMIT" else "2201X"
                )
            if what == "OFFSET" and result.value == 0:
                return None
        return result

    bound.limit = one(query.limit, "LIMIT")
    bound.offset = one(query.offset, "OFFSET")


def _bind_body(
    planning: Planning, query: ast.Query, parent: Scope | None, wanted: Wanted
) -> BoundQuery:
    match query.body:
        case ast.Select() as select:
            return _SelectBinder(planning, select, parent).bind(query.order_by, wanted)
        case ast.Values() as values:
            relation, names = bind_values(planning, values, parent, wanted)
            return _ordered(planning, query, relation, names, parent, expressions=True)
        case ast.SetOperation() as operation:
            branch = _set_operation(planning, operation, parent)
            relation = _project(branch.relation, branch.outputs)
            return _ordered(planning, query, relation, branch.names, parent, expressions=False)
        case ast.Query() as inner:
            bound = bind_query(planning, inner, parent, wanted)
            relation = plain_relation(bound)
            return _ordered(planning, query, relation, bound.names, parent, expressions=True)
        case _:
            assert_never(query.body)


def _ordered(
    planning: Planning,
    query: ast.Query,
    relation: Relation,
    names: tuple[str, ...],
    parent: Scope | None,
    *,
    expressions: bool,
) -> BoundQuery:
    """Return a relation as a query, ordered by its output columns."""
    columns = columns_of(relation)
    project = tuple(range(len(columns)))
    slots = [Slot(name, i) for i, name in enumerate(names)]
    scope = Scope(list(columns), [Table("*VALUES*", None, tuple(slots))], slots, parent)
    outputs = tuple(Column(i, c.type, c.nullable) for i, c in enumerate(columns))
    extra: list[Scalar] = []
    keys: list[OrderKey] = []
    for key in query.order_by:
        index = _output_index(key.expr, names, outputs, "ORDER BY")
        if index is None:
            if not expressions:
                raise _only_names(key)
            binder = ExpressionBinder(planning, scope, Clause("ORDER BY"))
            scalar = to_known(planning, binder.bind(key.expr), key.at)
            extra.append(scalar)
            keys.append(_order_key(key, Column(len(columns) + len(extra) - 1, type_of(scalar))))
        else:
            keys.append(_order_key(key, outputs[index]))
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


def _order_key(key: ast.SortKey, scalar: Scalar) -> OrderKey:
    nulls_first = key.descending if key.nulls_first is None else key.nulls_first
    return OrderKey(scalar, key.descending, nulls_first)


def _output_index(
    expr: ast.Expression, names: Sequence[str], outputs: Sequence[Scalar], clause: str
) -> int | None:
    """Return which output an ordinal or an alias in ORDER BY or GROUP BY means, if it is one."""
    match expr:
        case ast.Number(text=text, at=at):
            if not text.lstrip("-").isdigit():
                raise SyntaxError_(f"non-integer constant in {clause}", position=at + 1)
            if not 1 <= int(text) <= len(names):
                raise InvalidColumnReference(
                    f"{clause} position {text} is not in select list", position=at + 1
                )
            return int(text) - 1
        case ast.String(at=at) | ast.Boolean(at=at) | ast.Null(at=at):
            raise SyntaxError_(f"non-integer constant in {clause}", position=at + 1)
        case ast.ColumnRef(parts=(name,), at=at):
            found = [i for i, other in enumerate(names) if other == name]
            if not found:
                return None
            if any(outputs[i] != outputs[found[0]] for i in found):
                raise AmbiguousColumn(f'{clause} "{name}" is ambiguous', position=at + 1)
            return found[0]
        case _:
            return None


# --- VALUES --------------------------------------------------------------------------------


def bind_values(
    planning: Planning, values: ast.Values, parent: Scope | None, wanted: Wanted = None
) -> tuple[Relation, tuple[str, ...]]:
    """Return VALUES as a relation and its column names."""
    binder = ExpressionBinder(planning, Scope(parent=parent), Clause("VALUES"))
    width = len(values.rows[0])
    for row in values.rows:
        if len(row) != width:
            raise SyntaxError_(
                "VALUES lists must all be the same length", position=at_of(row[0]) + 1
            )
    rows = [[binder.bind(expr) for expr in row] for row in values.rows]
    for i in range(width):
        ats = [at_of(row[i]) for row in values.rows]
        if wanted is not None and i < len(wanted) and all(is_unknown(row[i]) for row in rows):
            common = wanted[i]
        else:
            common = common_type([type_of(row[i]) for row in rows], "VALUES", ats)
        for bound, at in zip(rows, ats, strict=True):
            bound[i] = to_common(planning, bound[i], common, "VALUES", at)
    return rows_relation(rows), tuple(f"column{i + 1}" for i in range(width))


def rows_relation(rows: Sequence[Sequence[Scalar]]) -> Relation:
    """Return rows of scalars as a relation; a Constant where all of them are constants."""
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
        body.ctes or body.order_by or body.limit or body.offset
    ):  # fmt: skip
        body = body.body
    match body:
        case ast.Select(distinct=None) as select:
            return _SelectBinder(planning, select, parent).branch()
        case ast.SetOperation() as operation:
            return _set_operation(planning, operation, parent)
        case ast.Values(at=at) as values:
            relation, names = bind_values(planning, values, parent)
        case ast.Query(at=at) as query:
            bound = bind_query(planning, query, parent)
            relation, names = plain_relation(bound), bound.names
        case ast.Select(at=at) as select:
            bound = _SelectBinder(planning, select, parent).bind((), None)
            relation, names = plain_relation(bound), bound.names
        case _:
            assert_never(body)
    columns = columns_of(relation)
    outputs = tuple(Column(i, c.type, c.nullable) for i, c in enumerate(columns))
    return Branch(relation, outputs, names, (at,) * len(outputs))


def _set_operation(planning: Planning, operation: ast.SetOperation, parent: Scope | None) -> Branch:
    branches = [_branch(planning, body, parent) for body in operation.inputs]
    what = operation.kind.upper()
    width = len(branches[0].outputs)
    for branch in branches[1:]:
        if len(branch.outputs) != width:
            raise SyntaxError_(
                f"each {what} query must have the same number of columns",
                position=(branch.ats[0] if branch.ats else operation.at) + 1,
            )
    outputs = [list(branch.outputs) for branch in branches]
    for i in range(width):
        types = [type_of(each[i]) for each in outputs]
        ats = [branch.ats[i] for branch in branches]
        common = common_type(types, what, ats)
        for each, at in zip(outputs, ats, strict=True):
            each[i] = to_common(planning, each[i], common, what, at)
    inputs = [
        _project(branch.relation, scalars)
        for branch, scalars in zip(branches, outputs, strict=True)
    ]
    relation = _combined(planning, operation, inputs)
    columns = columns_of(relation)
    return Branch(
        relation,
        tuple(Column(i, c.type, c.nullable) for i, c in enumerate(columns)),
        branches[0].names,
        branches[0].ats,
    )


def _combined(planning: Planning, operation: ast.SetOperation, inputs: list[Relation]) -> Relation:
    if operation.kind == "union":
        together = Union(tuple(inputs))
        return together if operation.all else distinct(together)
    left, right = inputs
    if not operation.all:
        left, right = distinct(left), distinct(right)
    if operation.kind == "except":
        return Threshold(Union((left, Negate(right))))
    # What is in both is what the left has beyond what it has alone.
    number = planning.new_let()
    get = LocalGet(number, columns_of(left))
    alone = Threshold(Union((get, Negate(right))))
    return Let(number, left, Union((get, Negate(alone))))


def distinct(relation: Relation) -> Relation:
    """Return the relation with each row once."""
    columns = columns_of(relation)
    return Reduce(relation, tuple(Column(i, c.type, c.nullable) for i, c in enumerate(columns)), ())


def _project(relation: Relation, scalars: Sequence[Scalar]) -> Relation:
    """Return just `scalars` over the relation."""
    placing = Placing(columns_of(relation))
    positions = tuple(map(placing.place, scalars))
    relation = placing.relation(relation)
    if positions == tuple(range(placing.width)):
        return relation
    return Project(relation, positions)


@dataclass
class Placing:
    """Columns beside those of a relation, each computed once."""

    columns: Sequence[ColumnType]
    added: list[Scalar] = field(default_factory=list)

    @property
    def width(self) -> int:
        """How many columns there are, with those added."""
        return len(self.columns) + len(self.added)

    def place(self, scalar: Scalar) -> int:
        """Return the position at which `scalar` is to be found."""
        if isinstance(scalar, Column):
            return scalar.index
        if scalar not in self.added:
            self.added.append(scalar)
        return len(self.columns) + self.added.index(scalar)

    def relation(self, input: Relation) -> Relation:
        """Return `input` with the added columns."""
        return Map(input, tuple(self.added)) if self.added else input


def project_targets(
    planning: Planning,
    targets: tuple[ast.Target, ...],
    scope: Scope,
    relation: Relation,
    clause: str,
) -> tuple[Relation, tuple[str, ...]]:
    """Return a list of targets over a relation, and their names."""
    scalars: list[Scalar] = []
    names: list[str] = []
    binder = ExpressionBinder(planning, scope, Clause(clause))
    for target in targets:
        if isinstance(target.expr, ast.Star):
            slots: Sequence[Slot] = scope.visible
            if target.expr.qualifier:
                slots = resolve_table(scope, target.expr.qualifier, target.expr.at)[0].slots
            scalars.extend(scope.column(slot.index) for slot in slots)
            names.extend(slot.name for slot in slots)
            continue
        scalars.append(to_known(planning, binder.bind(target.expr), target.at))
        names.append(target.alias if target.alias is not None else column_name(target.expr))
    return _project(relation, scalars), tuple(names)


# --- SELECT --------------------------------------------------------------------------------


class _SelectBinder:
    """Binds one SELECT: FROM, WHERE, then all that sees groups if there are any."""

    def __init__(self, planning: Planning, select: ast.Select, parent: Scope | None) -> None:
        self.planning = planning
        self.select = select
        self.relation, self.scope = bind_from(planning, select.from_, parent)
        self.aggregates = Aggregates()
        self.sets: list[SetCall] = []
        self._where()
        self.names: list[str] = []
        self.ats: list[int] = []
        self.targets: list[Scalar] = []
        for target in select.targets:
            self._target(target)

    def _binder(self, clause: str, *, aggregates: bool, sets: bool = False) -> ExpressionBinder:
        return ExpressionBinder(
            self.planning,
            self.scope,
            Clause(
                clause,
                self.aggregates if aggregates else None,
                sets=self.sets if sets else None,
            ),
        )

    def _where(self) -> None:
        if self.select.where is not None:
            condition = self._binder("WHERE", aggregates=False).condition(self.select.where)
            self.relation = filtered(self.relation, condition)

    def _target(self, target: ast.Target) -> None:
        expr = target.expr
        if isinstance(expr, ast.Star):
            self._star(expr)
            return
        binder = self._binder("SELECT", aggregates=True, sets=True)
        self.targets.append(binder.bind(expr))
        self.names.append(target.alias if target.alias is not None else column_name(expr))
        self.ats.append(at_of(expr))

    def _star(self, star: ast.Star) -> None:
        if star.qualifier:
            table, level, scope = resolve_table(self.scope, star.qualifier, star.at)
            if level:
                raise FeatureNotSupported(
                    "the columns of an outer query's table are not supported here",
                    position=star.at + 1,
                )
            slots: Sequence[Slot] = table.slots
        else:
            if not self.select.from_:
                raise SyntaxError_(
                    "SELECT * with no tables specified is not valid", position=star.at + 1
                )
            scope, slots = self.scope, self.scope.visible
        for slot in slots:
            self.targets.append(scope.column(slot.index))
            self.names.append(slot.name)
            self.ats.append(star.at)
            owner = next((t for t in scope.tables if slot in t.slots), None)
            shown = f"{owner.alias}.{slot.name}" if owner is not None else slot.name
            scope.named.setdefault(slot.index, (shown, star.at))

    # --- two ends

    def branch(self) -> Branch:
        """Return the SELECT as an operand of a set operation."""
        having, _, _ = self._group([])
        if having is not None:
            self.relation = filtered(self.relation, having)
        self._put_sets([])
        return Branch(self.relation, tuple(self.targets), tuple(self.names), tuple(self.ats))

    def bind(self, order_by: tuple[ast.SortKey, ...], wanted: Wanted) -> BoundQuery:
        """Return the SELECT with its ORDER BY."""
        for i, (scalar, at) in enumerate(zip(self.targets, self.ats, strict=True)):
            if is_unknown(scalar):
                self.targets[i] = self._known(scalar, i, wanted, at)
        keys = [self._sort_key(key) for key in order_by]
        ons: list[Scalar] = []
        if isinstance(self.select.distinct, tuple):
            ons = [self._distinct_on(expr) for expr in self.select.distinct]
        having, sorted_by, ons = self._group([key.expr for key in keys], ons)
        if having is not None:
            self.relation = filtered(self.relation, having)
        sorted_by = self._put_sets(sorted_by)
        keys = [
            OrderKey(expr, key.descending, key.nulls_first)
            for expr, key in zip(sorted_by, keys, strict=True)
        ]
        return self._finished(keys, ons, order_by)

    def _known(self, scalar: Scalar, i: int, wanted: Wanted, at: int) -> Scalar:
        if wanted is not None and i < len(wanted):
            result = coerce(self.planning, scalar, wanted[i], "assignment", at)
            if result is not None:
                return result
        return to_known(self.planning, scalar, at)

    def _sort_key(self, key: ast.SortKey) -> OrderKey:
        index = _output_index(key.expr, self.names, self.targets, "ORDER BY")
        if index is not None:
            return _order_key(key, self.targets[index])
        binder = self._binder("ORDER BY", aggregates=True, sets=True)
        return _order_key(key, to_known(self.planning, binder.bind(key.expr), key.at))

    def _distinct_on(self, expr: ast.Expression) -> Scalar:
        index = _output_index(expr, self.names, self.targets, "SELECT DISTINCT ON")
        if index is not None:
            return self.targets[index]
        binder = self._binder("DISTINCT ON", aggregates=True)
        return to_known(self.planning, binder.bind(expr), at_of(expr))

    # --- groups

    def _group(
        self, others: list[Scalar], ons: list[Scalar] | None = None
    ) -> tuple[Scalar | None, list[Scalar], list[Scalar]]:
        """Make groups if the query has any; return HAVING and the other scalars over them."""
        ons = ons or []
        select = self.select
        having = None
        if select.having is not None:
            having = self._binder("HAVING", aggregates=True).condition(select.having)
        keys = [self._group_key(expr) for expr in select.group_by]
        if not keys and not self.aggregates.cores and having is None:
            return having, others, ons
        unique = tuple(dict.fromkeys(keys))
        grouping = Grouping(self.scope, unique, self.aggregates)
        self.targets = [grouping.over_groups(scalar) for scalar in self.targets]
        others = [grouping.over_groups(scalar) for scalar in others]
        ons = [grouping.over_groups(scalar) for scalar in ons]
        for call in self.sets:
            call.args = tuple(grouping.over_groups(arg) for arg in call.args)
        if having is not None:
            having = grouping.over_groups(having)
        self.relation = grouping.relation(self.relation)
        return having, others, ons

    def _group_key(self, expr: ast.Expression) -> Scalar:
        binder = self._binder("GROUP BY", aggregates=False)
        scalar: Scalar | None = None
        if isinstance(expr, ast.ColumnRef) and len(expr.parts) == 1:
            try:
                scalar = binder.bind(expr)
            except UndefinedColumn:
                if expr.parts[0] not in self.names:
                    raise
        if scalar is None:
            index = _output_index(expr, self.names, self.targets, "GROUP BY")
            if index is None:
                scalar = binder.bind(expr)
            else:
                scalar = self.targets[index]
                if _has(scalar, CoreRef):
                    raise GroupingError(
                        "aggregate functions are not allowed in GROUP BY",
                        position=self.ats[index] + 1,
                    )
                if _has(scalar, SetRef):
                    raise FeatureNotSupported(
                        "grouping by a set-returning function is not supported",
                        position=self.ats[index] + 1,
                    )
        return to_known(self.planning, scalar, at_of(expr))

    # --- set-returning functions

    def _put_sets(self, others: list[Scalar]) -> list[Scalar]:
        """Put the rows of set-returning calls beside the query's; return `others` over that."""
        if not self.sets:
            return others
        values: tuple[Scalar, ...]
        if len(self.sets) == 1:
            (call,) = self.sets
            self.relation, values = flat_map(self.relation, call.function, call.args)
        else:
            binder = self._binder("SELECT", aggregates=False)
            calls = [(call.function, call.args) for call in self.sets]
            self.relation, values = in_step(binder, self.relation, calls, self.select.at)

        def replace(node: Scalar, depth: int) -> Scalar | None:
            if not isinstance(node, SetRef):
                return None
            value = values[node.index]
            return push_down(value, depth) if depth else value

        self.targets = [map_scalar(scalar, replace) for scalar in self.targets]
        return [map_scalar(scalar, replace) for scalar in others]

    # --- the end

    def _finished(
        self, keys: list[OrderKey], ons: list[Scalar], order_by: tuple[ast.SortKey, ...]
    ) -> BoundQuery:
        placing = Placing(columns_of(self.relation))
        project = tuple(map(placing.place, self.targets))
        names = tuple(self.names)
        if self.select.distinct is True:
            for key, syntax in zip(keys, order_by, strict=True):
                if key.expr not in self.targets:
                    raise InvalidColumnReference(
                        "for SELECT DISTINCT, ORDER BY expressions must appear in select list",
                        position=syntax.at + 1,
                    )
            relation = distinct(Project(placing.relation(self.relation), project))
            columns = columns_of(relation)
            moved = tuple(
                OrderKey(
                    Column(i := self.targets.index(key.expr), columns[i].type, columns[i].nullable),
                    key.descending,
                    key.nulls_first,
                )
                for key in keys
            )
            return BoundQuery(relation, tuple(range(len(columns))), names, moved)
        positions = [placing.place(key.expr) for key in keys]
        on_positions = [placing.place(on) for on in ons]
        relation = placing.relation(self.relation)
        columns = columns_of(relation)
        placed = tuple(
            OrderKey(
                Column(position, columns[position].type, columns[position].nullable),
                key.descending,
                key.nulls_first,
            )
            for position, key in zip(positions, keys, strict=True)
        )
        if ons:
            self._check_distinct_on(on_positions, positions, order_by)
            relation = TopK(
                relation, tuple(dict.fromkeys(on_positions)), placed, Literal(1, INT8), None
            )
        return BoundQuery(relation, project, names, placed, ats=tuple(self.ats), scope=self.scope)

    def _check_distinct_on(
        self, ons: list[int], keys: list[int], order_by: tuple[ast.SortKey, ...]
    ) -> None:
        wanted = set(ons)
        for i, position in enumerate(keys):
            if not wanted - set(keys[:i]):
                return
            if position not in wanted:
                assert isinstance(self.select.distinct, tuple)
                raise InvalidColumnReference(
                    "SELECT DISTINCT ON expressions must match initial ORDER BY expressions",
                    position=at_of(self.select.distinct[0]) + 1,
                )


def _has(scalar: Scalar, kind: type) -> bool:
    found = False

    def look(node: Scalar, depth: int) -> Scalar | None:
        nonlocal found
        found = found or isinstance(node, kind)
        return None

    map_scalar(scalar, look)
    return found


def filtered(relation: Relation, condition: Scalar) -> Relation:
    """Return the rows for which `condition` is TRUE."""
    predicates: list[Scalar] = []
    stack = [condition]
    while stack:
        scalar = stack.pop()
        if isinstance(scalar, And):
            stack.extend(reversed(scalar.args))
        else:
            predicates.append(scalar)
    return Filter(relation, tuple(predicates))
