"""Reads of few rows: those under whole unique keys of tables, computed as tuples.

    SELECT * FROM t WHERE id = $1 LIMIT 1             SELECT count(*) FROM t WHERE id IN (1, $1)
    SELECT ... FROM o JOIN c ON c.id = o.c WHERE o.id = $1        SELECT now(), $1 + 1

A `RowRead` is made when the statement is prepared. It finds rows of one table after the other; the
keys of each are a program's rows (`compute/rows`), over what was found before. Another program
computes the answer. `None` in place of rows says that the pipeline has to read (`pipeline.py`): the
index does not know the rows at that time, they are too many, or one has an error.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from foreshore.adapter.read.access_path import Constant, KeyLookup, PeekPlan
from foreshore.adapter.read.timestamp import read_time
from foreshore.adapter.session.context import StatementContext
from foreshore.catalog.planned import Planned
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.layout import takes_tuples
from foreshore.compute.rows.program import RowFailed, RowProgram, TooMany, compile_rows
from foreshore.constraint import Unique
from foreshore.expr.columns import columns_of
from foreshore.expr.cost import (
    LIGHT,
    LONG,
    cost_of_relation,
    has_growing_call,
    is_heavy,
    size_of,
)
from foreshore.expr.ir import (
    IN_STEP,
    Finishing,
    FlatMap,
    Join,
    Map,
    Reduce,
    Relation,
    Scalar,
    Union,
)
from foreshore.expr.keys import Elements, Key
from foreshore.expr.traversal import walk_relations
from foreshore.ids import GlobalId
from foreshore.sql.optimize.key_steps import KeyStep
from foreshore.table_rows import Row
from foreshore.types import ColumnType, Datum, SqlType
from foreshore.update import Timestamp

SessionValue = Callable[[str], Datum]
# Types of which a value has one form. A numeric, for example, may have digits to be added.
SIMPLE = frozenset(
    "bool int2 int4 int8 oid date time timestamp timestamptz float8 text varchar name uuid".split()
)
_INTEGERS = frozenset({"int2", "int4", "int8"})


@dataclass(frozen=True, slots=True, eq=False)
class KeyedTable:
    """A table of which the rows are read whose whole key is a row of `keys`."""

    table: GlobalId
    constraint: Unique
    planned: Planned  # the table as it was planned
    names: frozenset[str]  # of all its unique constraints
    keys: RowProgram

    @property
    def lock(self) -> tuple[GlobalId, str]:
        """The name under which its keys are read and locked."""
        return self.table, self.constraint.name


Find = Callable[[KeyedTable, Sequence[Row]], Sequence[Row] | None]  # rows under keys


@dataclass(frozen=True, slots=True, eq=False)
class RowRead:
    """The tables that are read, in this order, and the program over their rows."""

    tables: tuple[KeyedTable, ...]
    program: RowProgram
    limit: RowProgram | None
    offset: RowProgram | None
    cut: tuple[int | None, int]  # LIMIT and OFFSET where they are constants
    grows: bool  # whether it may make much longer values of those that are given
    is_exact: bool  # whether its rows are in the forms of their columns' types
    is_settled: bool  # whether the same arguments and rows give the same answer

    @classmethod
    def of(
        cls,
        tables: Sequence[KeyedTable],
        programs: tuple[RowProgram, RowProgram | None, RowProgram | None],
        relation: Relation,
        finishing: Finishing,
    ) -> "RowRead":
        """Return the read of `relation` by programs of it, of LIMIT and of OFFSET."""
        given = [*(each for each in programs if each is not None), *(each.keys for each in tables)]
        return cls(
            tuple(tables),
            *programs,
            (finishing.limit, finishing.offset),
            has_growing_call(relation),
            _is_exact(relation, finishing),
            all(each.is_settled for each in given),
        )

    def rows(self, args: Sequence[Datum], value: SessionValue, find: Find) -> list[Row] | None:
        """Return the finished rows; None if they are to be read another way."""
        if any(size_of(each) > LONG for each in args):  # functions of it may take long
            return None
        found: dict[GlobalId, Sequence[Row]] = {}
        try:
            for each in self.tables:
                keys = _run(each.keys, found, args, value)
                if len(keys) > 1:
                    keys = list(dict.fromkeys(keys))
                rows = find(each, [key for key in keys if None not in key])
                if rows is None:
                    return None
                found[each.table] = rows
            if self.grows and not _are_short(found):
                return None
            limit, offset = self.cut
            if self.limit is not None:
                limit = _bound(self.limit, args, value)
            if self.offset is not None:
                offset = _bound(self.offset, args, value) or 0
            return _run(self.program, found, args, value, limit, offset)
        except (TooMany, RowFailed):
            return None


def _run(
    program: RowProgram,
    found: Mapping[GlobalId, Sequence[Row]],
    args: Sequence[Datum],
    value: SessionValue,
    limit: int | None = None,
    offset: int = 0,
) -> list[Row]:
    given = [found[id] for id in program.collections]
    return program.run(given, args, [value(name) for name in program.session_values], limit, offset)


def _bound(program: RowProgram, args: Sequence[Datum], value: SessionValue) -> int | None:
    """Return the value of LIMIT or OFFSET; a negative one raises RowFailed."""
    ((bound,),) = _run(program, {}, args, value)
    if bound is None:
        return None
    number = int(str(bound))
    if number < 0:
        raise RowFailed
    return number


def _are_short(found: Mapping[GlobalId, Sequence[Row]]) -> bool:
    """Whether no value is so long that making it longer would take much."""
    rows = chain.from_iterable(found.values())
    return all(size_of(each) <= LONG for each in chain.from_iterable(rows))


# --- planning ------------------------------------------------------------------------------


def plan_row_read(peek: PeekPlan, planned: Mapping[GlobalId, Planned]) -> RowRead | None:
    """Return `peek` compiled, if it reads rows under whole keys of tables, or nothing."""
    query, path = peek.query, peek.path
    if peek.is_large or peek.has_side_effects or peek.has_arrays or query.init_plans:
        return None
    if query.changes or query.row_outputs or query.recursions:
        return None
    steps: Sequence[object]
    match path:
        case KeyLookup(steps=steps, relation=relation):
            pass
        case Constant(relation=relation) if not peek.is_timed:
            steps = ()
        case _:
            return None
    cost = cost_of_relation(relation)[1]  # for one row of each table
    if is_heavy(relation) or cost > LIGHT:
        return None
    tables = []
    for step in steps:
        table = _keyed_table(step, planned) if isinstance(step, KeyStep) else None
        if table is None:
            return None
        tables.append(table)
    bounds = (query.limit, query.offset, query.finishing.limit, query.finishing.offset or None)
    program = compile_rows(relation, query.finishing, is_cut=bounds != (None,) * 4)
    limit, offset = _compiled(query.limit), _compiled(query.offset)
    if program is None or (query.limit is not None and limit is None):
        return None
    if query.offset is not None and offset is None:
        return None
    if not {id for id in program.collections} <= {each.table for each in tables}:
        return None
    program = replace(program, most=min(program.most, LIGHT // max(cost, 1)))
    return RowRead.of(tables, (program, limit, offset), relation, query.finishing)


def _keyed_table(step: KeyStep, planned: Mapping[GlobalId, Planned]) -> KeyedTable | None:
    table, constraint = planned[step.table], step.constraint
    if constraint is None or not all(takes_tuples(each, table.desc) for each in table.unique):
        return None
    types = [table.desc.columns[i].type for i in constraint.columns]
    relation = _keys(step, types)
    program = None if relation is None or is_heavy(relation) else compile_rows(relation)
    if program is None:
        return None
    names = frozenset(each.name for each in table.unique)
    return KeyedTable(step.table, constraint, table, names, program)


def _keys(step: KeyStep, types: Sequence[SqlType]) -> Relation | None:
    """Return the relation of the keys of a step; None if they are not as the key's columns."""
    parts = [_key(each) for each in step.keys]
    for source in step.sources:
        columns = columns_of(source)
        if len(columns) != len(types) or not all(
            _is_same(column.type, type) for column, type in zip(columns, types, strict=True)
        ):
            return None
        parts.append(source)
    return parts[0] if len(parts) == 1 else Union(tuple(parts)) if parts else None


def _is_same(a: SqlType, b: SqlType) -> bool:
    return a.name == b.name or {a.name, b.name} <= _INTEGERS


def _key(key: Key) -> Relation:
    relation: Relation = Join(())
    for part in key:
        if isinstance(part, Elements):
            relation = FlatMap(relation, IN_STEP, (part.array,), (ColumnType(part.type),))
        else:
            relation = Map(relation, (part,))
    return relation


def _compiled(bound: Scalar | None) -> RowProgram | None:
    return None if bound is None else compile_rows(Map(Join(()), (bound,)))


def are_simple(columns: Sequence[ColumnType]) -> bool:
    """Whether rows of these columns can be sent as they are computed."""
    return all(column.type.name in SIMPLE for column in columns)


def _is_exact(relation: Relation, finishing: Finishing) -> bool:
    columns = columns_of(relation)
    if are_simple([columns[i] for i in finishing.project]):
        return True
    return not any(isinstance(node, Map | Reduce) for node in walk_relations(relation))


# --- reading -------------------------------------------------------------------------------


async def rows_by_keys(context: StatementContext, read: RowRead) -> list[Row] | None:
    """Return the finished rows, of the transaction's time and with its own writes."""
    indexes: dict[GlobalId, KeyIndex] = {}
    for each in read.tables:
        index = await _index(context, each)
        if index is None:
            return None
        indexes[each.table] = index
    time: Timestamp = 0
    if read.tables:
        time = read_time(context, indexes, None, by_key=True, at_once=True)

    def find(table: KeyedTable, keys: Sequence[Row]) -> Sequence[Row] | None:
        return _find(context, indexes[table.table], table, keys, time)

    return read.rows(context.args, context.session_value(time), find)


async def _index(context: StatementContext, table: KeyedTable) -> KeyIndex | None:
    """Return the index of a table's key; None if the table is not as it was planned."""
    coordinator = context.coordinator
    if context.transaction.catalog is not None:
        return None
    await coordinator.keys.ready(table.table)
    if coordinator.catalog.planned.get(table.table) is not table.planned:
        return None
    found = coordinator.keys.of(table.table)
    return found.get(table.constraint.name) if found.keys() == table.names else None


def _find(
    context: StatementContext,
    index: KeyIndex,
    table: KeyedTable,
    keys: Sequence[Row],
    time: Timestamp,
) -> Sequence[Row] | None:
    """Return the rows under keys at `time`, and note that these were read.

    None if one has changed since, or the transaction has written rows that are no tuples.
    """
    written = context.transaction.rows(index.table)
    own = written.by_key(index.layout).newest if written else {}
    if own is None or not index.readable(time):
        return None
    rows, hashes = [], set()
    for key in keys:
        hash = index.layout.hash(key)
        hashes.add(hash)
        if key in own:
            row = own[key]
        else:
            entry = index.newest.newest(hash, key)
            if entry.time > time:
                return None
            row = entry.row
        if row is not None:
            rows.append(row)
    context.transaction.read_keys({table.lock: hashes})
    return rows
