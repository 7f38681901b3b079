"""Sources of the rows of row reads.

    KeyedTable     rows of a table under whole keys of a unique constraint
    IndexedTable   those under values of other columns: an index's, or the first ones of a key
    RangedTable    those between two values of such columns, in their order
    IndexedView    rows under keys of an index of a cluster, or all, in its mirror
    CatalogRows    rows of a relation of the catalog under values of columns
    RecursedRows   rows of a recursion, whose base and steps have sources of their own

Each has a program whose rows are the keys, or the ends of the range. `find_rows` finds the rows of
a time in the key index of a table. None in place of rows says that the pipeline has to read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TypeAlias

from foreshore.adapter.plans.catalog_relations import NAMED, depends_on_catalog_alone
from foreshore.catalog.builtin.parts import PARTED
from foreshore.catalog.builtin.registry import BUILTINS
from foreshore.catalog.planned import Planned
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.layout import SecondaryName, has_all_rows, takes_tuples
from foreshore.compute.keys.own_rows import OwnRows
from foreshore.compute.rows.program import RowProgram, TooMany, compile_rows
from foreshore.compute.span import Span
from foreshore.constraint import Unique
from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.cost import LIGHT, cost_of_a_row, takes_long_for_a_row
from foreshore.expr.equality import is_plain
from foreshore.expr.ir import (
    IN_STEP,
    Column,
    Filter,
    FlatMap,
    Get,
    Join,
    Literal,
    Map,
    Project,
    Relation,
    Scalar,
    Union,
)
from foreshore.expr.keys import Elements, End, Key, KeyRange
from foreshore.expr.traversal import inputs_of, walk_relations
from foreshore.ids import GlobalId
from foreshore.sql.optimize.key_steps import (
    KeyStep,
    Page,
    RangeStep,
    Step,
    TableKey,
    TableKeys,
    WholeStep,
)
from foreshore.sql.optimize.table_range import ORDERED
from foreshore.table_rows import Row
from foreshore.types import ColumnType, SqlType
from foreshore.update import Timestamp

_INTEGERS = frozenset({"int2", "int4", "int8"})
_TEXTS = frozenset({"text", "varchar", "name"})
# Ends of names of columns whose values many objects have in common.
_SHARED = (
    *("catalog", "schema", "namespace", "owner", "classid", "classoid", "tablespace", "collation"),
    *("typid", "parentid", "relam", "lang", "schema_id", "database_id", "owner_id", "cluster_id"),
)


@dataclass(frozen=True, slots=True, eq=False)
class KeyedTable:
    """A table of which the rows are read whose whole key is a row of `keys`."""

    id: GlobalId
    rows: GlobalId  # the collection whose rows it finds
    constraint: Unique
    planned: Planned  # the table as it was planned
    names: frozenset[str]  # of all its unique constraints
    keys: RowProgram
    by_columns: bool = False  # whether keys of the table are not comparable as Python data

    @property
    def lock(self) -> tuple[GlobalId, str]:
        """The name under which its keys are read and locked."""
        return self.id, self.constraint.name


@dataclass(frozen=True, slots=True, eq=False)
class IndexedTable:
    """A table of which the rows are read whose `columns` are a row of `keys`."""

    id: GlobalId
    rows: GlobalId  # the collection whose rows it finds
    constraint: Unique  # whose index has all rows
    planned: Planned
    names: frozenset[str]
    keys: RowProgram
    columns: tuple[int, ...]
    used: frozenset[int]  # the columns that are read

    @property
    def lock(self) -> tuple[GlobalId, SecondaryName]:
        """The name under which its keys are read and locked."""
        return self.id, SecondaryName(self.constraint.name, self.columns)


@dataclass(frozen=True, slots=True, eq=False)
class PageProgram:
    """The first rows of a range that make a page: as `Page`, compiled."""

    program: RowProgram | None  # whose rows are those of the page; None: each row is one
    limit: RowProgram
    offset: RowProgram | None
    ties: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RangedTable:
    """A table of which the rows are read that are in a range of `columns`, or begin it as a `page`.

    The only row of `keys` has the values of both ends.
    """

    id: GlobalId
    rows: GlobalId  # the collection whose rows it finds
    constraint: Unique
    planned: Planned
    names: frozenset[str]
    keys: RowProgram
    columns: tuple[int, ...]
    used: frozenset[int]
    range: KeyRange
    page: PageProgram | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it is all of the table, in any order."""
        return not (self.range.low.values or self.range.high.values or self.range.is_ordered)

    def span(self, ends: Row) -> Span | None:
        """Return the range; None if no row can be in it. Raises TooMany for NULL beyond that."""
        low, high = self.range.low, self.range.high
        width = len(low.values)
        if None in ends[: low.decisive] or None in ends[width : width + high.decisive]:
            return None
        if None in ends:  # what is compared with it decides
            raise TooMany
        types = [self.planned.desc.columns[i].type for i in self.columns]
        lows = tuple(map(Literal, ends[:width], types))
        highs, inclusive = tuple(map(Literal, ends[width:], types)), high.inclusive
        if high.before_null and len(highs) < len(types):
            highs, inclusive = (*highs, Literal(None, types[len(highs)])), False
        return Span(
            lows, low.inclusive, highs, inclusive, self.range.descending, self.range.is_ordered
        )


@dataclass(frozen=True, slots=True, eq=False)
class IndexedView:
    """A collection of which the rows are read whose key in an `index` is a row of `keys`.

    If it is read as a `whole`, the only key is empty.
    """

    id: GlobalId
    rows: GlobalId  # the collection whose rows it finds
    index: GlobalId
    keys: RowProgram
    is_whole: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class CatalogRows:
    """A relation of the catalog of which the rows are read whose `columns` are a row of `keys`.

    Without columns these are all its rows.
    """

    id: GlobalId
    rows: GlobalId  # the collection whose rows it finds
    keys: RowProgram
    columns: tuple[int, ...]
    used: frozenset[int]


TableSource: TypeAlias = KeyedTable | IndexedTable | RangedTable


@dataclass(frozen=True, slots=True, eq=False)
class RowsPart:
    """A program over the rows of some tables, and of what was found before."""

    sources: tuple[TableSource, ...]
    program: RowProgram


@dataclass(frozen=True, slots=True, eq=False)
class RecursedRows:
    """The result of a recursion; its step reads the rows of the step before as `working`.

    If it is `distinct` it has each row once.
    """

    rows: GlobalId  # the collection whose rows it finds
    working: GlobalId
    base: RowsPart
    step: RowsPart
    distinct: bool

    @property
    def tables(self) -> tuple[TableSource, ...]:
        """The tables that it reads."""
        return self.base.sources + self.step.sources


RowsSource: TypeAlias = TableSource | IndexedView | CatalogRows


# --- planning ------------------------------------------------------------------------------


def source_of(
    step: Step, over: Sequence[Relation], planned: Mapping[GlobalId, Planned]
) -> RowsSource | None:
    """Return the source of a step's rows; None if they are not found as tuples.

    `over` are the relations that read them.
    """
    if isinstance(step, KeyStep) and step.by.index is not None:
        found = indexed_view(step.table, step.by.index, step.keys, step.sources, planned)
        return None if found is None else replace(found, rows=step.rows)
    if isinstance(step, WholeStep) and step.index is not None:
        return replace(whole_view(step.table, step.index), rows=step.rows)
    if isinstance(step, KeyStep | WholeStep) and step.table in BUILTINS:
        return _catalog_rows(step, over)
    table = planned.get(step.table)
    if table is None:
        return None
    names = frozenset(each.name for each in table.unique)
    complete = next((each for each in table.unique if has_all_rows(each, table.desc)), None)
    columns, used = table.desc.columns, _used(step.rows, over)
    match step:
        case KeyStep(constraint=Unique() as constraint):
            types = [columns[i].type for i in constraint.columns]
            program = _program(_keys(step.keys, step.sources, types))
            if program is None:
                return None
            by_columns = not all(takes_tuples(each, table.desc) for each in table.unique)
            return KeyedTable(step.table, step.rows, constraint, table, names, program, by_columns)
        case KeyStep(columns=places) if complete is not None:
            types = [columns[i].type for i in places]
            program = _program(_keys(step.keys, step.sources, types))
            if program is None or not all(map(is_plain, types)):
                return None
            return IndexedTable(
                step.table, step.rows, complete, table, names, program, places, used
            )
        case WholeStep() if complete is not None:
            order = [i for i, each in enumerate(columns) if each.type.name in ORDERED]
            if not order:
                return None
            return RangedTable(
                step.table,
                step.rows,
                complete,
                table,
                names,
                compiled_row(),
                (order[0],),
                used,
                KeyRange(End(), End()),
            )
        case RangeStep(columns=places, range=range) if complete is not None:
            types = [columns[i].type for i in places]
            program = _program(_ends(range, types))
            page = None if step.page is None else _page_program(step.page)
            if program is None or (page is None) != (step.page is None):
                return None
            return RangedTable(
                step.table, step.rows, complete, table, names, program, places, used, range, page
            )
        case _:
            return None


def indexed_by(id: GlobalId, table: Planned, columns: tuple[int, ...]) -> IndexedTable | None:
    """Return the source of whole rows of a table by values of columns, which are known otherwise.

    None if its rows are not found as tuples.
    """
    complete = next((each for each in table.unique if has_all_rows(each, table.desc)), None)
    if complete is None or not all(takes_tuples(each, table.desc) for each in table.unique):
        return None
    names, used = frozenset(each.name for each in table.unique), range(len(table.desc.columns))
    return IndexedTable(id, id, complete, table, names, compiled_row(), columns, frozenset(used))


def keys_of_catalog(id: GlobalId) -> TableKeys:
    """Return the keys of a relation of the catalog: all its columns, one by one.

    One that has no rows for each item is read whole, if need be.
    """
    builtin = BUILTINS[id]
    if not depends_on_catalog_alone(builtin) and builtin.name not in NAMED:
        return TableKeys()
    columns = builtin.desc.columns
    names = builtin.desc.names
    places = [i for i, column in enumerate(columns) if is_plain(column.type)]
    places.sort(key=lambda i: _commonness(names[i], columns[i].type))
    rows = None if builtin.name in PARTED else len(columns)
    return TableKeys(tuple(TableKey(names[i], (i,)) for i in places), rows)


def _commonness(name: str, type: SqlType) -> int:
    """Return a greater number for a column of the catalog that more rows have in common."""
    if name in ("oid", "id"):
        return 0
    if name.endswith(_SHARED):
        return 3
    if type.name in _TEXTS:
        return 1 if name.endswith("_id") else 2
    return 1 if type.name == "oid" else 4


def _catalog_rows(step: KeyStep | WholeStep, over: Sequence[Relation]) -> CatalogRows | None:
    if isinstance(step, WholeStep):
        return CatalogRows(step.table, step.rows, compiled_row(), (), _used(step.rows, over))
    types = [BUILTINS[step.table].desc.columns[i].type for i in step.columns]
    program = _program(_keys(step.keys, step.sources, types))
    if program is None:
        return None
    used = _used(step.rows, over)
    return CatalogRows(step.table, step.rows, program, step.columns, used)


def _used(id: GlobalId, over: Sequence[Relation]) -> frozenset[int]:
    """Return the columns of a table that relations use."""
    used: set[int] = set()
    for relation in over:
        for node in walk_relations(relation):
            for input in inputs_of(node):
                if isinstance(input, Get) and input.id == id:
                    every = range(len(input.columns))
                    used.update(node.outputs if isinstance(node, Project) else every)
        if isinstance(relation, Get):
            used.update(range(len(relation.columns)))
    return frozenset(used)


def indexed_view(
    id: GlobalId,
    index: GlobalId,
    keys: Sequence[Key],
    sources: Sequence[Relation],
    planned: Mapping[GlobalId, Planned],
) -> IndexedView | None:
    """Return the source of the rows under keys of an index; None if they are no tuples."""
    by = planned[index].key
    types = [type_of(each) for each in by]
    program = _program(_keys(keys, sources, types))
    if program is None or not all(
        isinstance(each, Column) and is_plain(type_of(each)) for each in by
    ):
        return None
    return IndexedView(id, id, index, program)


def whole_view(id: GlobalId, index: GlobalId) -> IndexedView:
    """Return the source of all rows of an index."""
    return IndexedView(id, id, index, compiled_row(), is_whole=True)


@cache
def compiled_row() -> RowProgram:
    """Return the program of the empty row, the key of what is read whole."""
    program = compile_rows(Join(()))
    assert program is not None
    return program


def _program(keys: Relation | None) -> RowProgram | None:
    if keys is None or takes_long_for_a_row(keys) or cost_of_a_row(keys) > LIGHT:
        return None
    return compile_rows(keys)


def _page_program(page: Page) -> PageProgram | None:
    """Return a page compiled; None if a part of it is not."""
    limit = compile_rows(Map(Join(()), (page.limit,)))
    offset = None if page.offset is None else compile_rows(Map(Join(()), (page.offset,)))
    if limit is None or (offset is None) != (page.offset is None):
        return None
    if not any(isinstance(node, Filter) for node in walk_relations(page.relation)):
        return PageProgram(None, limit, offset, page.ties)
    program = compile_rows(page.relation)
    return None if program is None else PageProgram(program, limit, offset, page.ties)


def _keys(
    keys: Sequence[Key], sources: Sequence[Relation], types: Sequence[SqlType]
) -> Relation | None:
    """Return the relation of keys and of sources' rows; None if these are not as the columns."""
    parts = [_key(each) for each in keys]
    for source in sources:
        columns = columns_of(source)
        if len(columns) != len(types) or not all(
            _is_same(column.type, type) for column, type in zip(columns, types, strict=True)
        ):
            return None
        parts.append(source)
    return parts[0] if len(parts) == 1 else Union(tuple(parts)) if parts else None


def _key(key: Key) -> Relation:
    relation: Relation = Join(())
    for part in key:
        if isinstance(part, Elements):
            relation = FlatMap(relation, IN_STEP, (part.array,), (ColumnType(part.type),))
        else:
            relation = Map(relation, (part,))
    return relation


def _ends(range: KeyRange, types: Sequence[SqlType]) -> Relation | None:
    """Return the relation of the values of both ends of a range, likewise."""
    relation: Relation = Join(())
    for end in (range.low, range.high):
        if not _are_compared(end.values, types):
            return None
        for scalar in end.values:
            relation = Map(relation, (scalar,))
    return relation


def _are_compared(values: Sequence[Scalar], types: Sequence[SqlType]) -> bool:
    """Whether values are compared with columns of these types as their data are."""
    given = [type_of(each) for each in values]
    return all(
        _is_same(one, other) or {one.name, other.name} <= _TEXTS
        for one, other in zip(given, types, strict=False)
    )


def _is_same(a: SqlType, b: SqlType) -> bool:
    return a.name == b.name or {a.name, b.name} <= _INTEGERS


# --- reading -------------------------------------------------------------------------------


def find_rows(
    source: IndexedTable | RangedTable,
    index: KeyIndex,
    keys: Sequence[Row],
    time: Timestamp,
    own: OwnRows | None,
    most: int | None,
) -> Iterable[Row] | None:
    """Return the rows at `time`, with a transaction's own, one by one; None: not at once.

    Raises TooMany if there are more than `most`.
    """
    if isinstance(source, IndexedTable):
        find = index.rows_by(source.columns, source.used, own)
        if find is None:
            return None
        count, rows = find(keys, time)
        if most is not None and count > most:
            raise TooMany
        return rows
    (ends,) = keys
    span = source.span(ends)
    if span is None:
        return ()
    view = index.in_order(source.columns, own)
    if view is None:
        return None
    return view.rows(span, source.used, time, most)
