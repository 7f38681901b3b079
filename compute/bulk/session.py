"""Sessions: statements on a bulk engine, and the external tables that they read.

Each evaluation and each dataflow has one. It turns inputs and constants into FROM items, and
registers the Arrow functions that statements call. Subclasses implement how an engine registers a
table, reads Parquet files, registers a function and runs a statement.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from typing import Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.delta.tables import (
    by_position,
    cast_to_schema,
    consolidate_select,
    constant_table,
    row_layout,
)
from foreshore.compute.engine import ALL_ROWS, Extent, Input, result_schema
from foreshore.compute.render.aggregates import Idioms, Sort
from foreshore.compute.render.dialect import ArrowFunction, Dialect
from foreshore.compute.render.evaluate import adds_only, has_single_rows, takes_away
from foreshore.compute.render.render import Renderer, has_entries_of_rows
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Column, Constant, Get, OrderKey, Reduce, Relation
from foreshore.expr.python_calls import calls_volatile
from foreshore.expr.traversal import sources_of, walk_relations
from foreshore.ids import GlobalId
from foreshore.types import ColumnType
from foreshore.update import DIFF, TIME, update_schema

Columns = Sequence[tuple[str, str]]  # names, and the engine's type names
_Ids: TypeAlias = frozenset[GlobalId]
# As the renderer has it, and in `first_entries` by which bounds.
Form: TypeAlias = Literal[
    "statement", "consolidated", "settled", "count_cancelled", "first_entries"
]
_Statement: TypeAlias = tuple[Relation, tuple[str, ...], Form, str, _Ids, _Ids]

MOST_TAKEN = 5_000  # entries; DuckDB sorts all rows where it is asked for more of the first ones


class Session(ABC):
    """The statements of one evaluation or dataflow; used by one thread at a time."""

    def __init__(self, dialect: Dialect, idioms: Idioms) -> None:
        self.dialect = dialect
        self.idioms = idioms
        self._constants = count()
        self._registered = 0
        self._items: dict[GlobalId, tuple[Input, int, str]] = {}  # the last one of each input
        # By the items that they read.
        self._selects: dict[_Statement, str] = {}

    @abstractmethod
    def show(self, name: str, table: pa.Table, columns: Columns) -> None:
        """Register an Arrow table with these `columns` under `name`."""

    @abstractmethod
    def files(self, name: str, paths: Sequence[str], columns: Columns) -> str:
        """Return a FROM item, perhaps `name`, for Parquet files that have the columns `columns`."""

    @abstractmethod
    def release(self) -> None:
        """Drop the tables registered by `sources` and `constant`."""

    @abstractmethod
    def register(self, functions: Sequence[ArrowFunction]) -> None:
        """Register those of `functions` that are not registered yet."""

    @abstractmethod
    def fetch(self, select: str, max_bytes: int | None = None) -> pa.Table:
        """Return the result of `select`, after registering the functions that it may call.

        Raises OutOfMemory if it exceeds `max_bytes`.
        """

    def stream(self, select: str, max_bytes: int | None = None) -> Iterator[pa.Table]:
        """Yield what `select` gives, part by part: at least one."""
        yield self.fetch(select, max_bytes)

    def register_used(self) -> None:
        """Register the functions called by statements rendered since the last time."""
        if len(self.dialect.used) > self._registered:
            self.register(list(self.dialect.used.values()))
            self._registered = len(self.dialect.used)

    def read(self, select: str, schema: pa.Schema, max_bytes: int | None = None) -> pa.Table:
        """Return the result of `select` as a table of `schema`, column by column."""
        return cast_to_schema(self.fetch(select, max_bytes), schema)

    def evaluate(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        max_bytes: int | None = None,
    ) -> pa.Table:
        """Return the rows of an infallible relation as of a time, by `result_schema`."""
        select = self._select(relation, inputs, as_of, "consolidated")
        return self.read(select, result_schema(columns_of(relation)), max_bytes)

    def evaluate_parts(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        max_bytes: int | None = None,
        extent: Extent = ALL_ROWS,
    ) -> Iterator[pa.Table]:
        """Yield the rows of an infallible relation as of a time, part by part: at least one.

        They come in the order of `extent`, and those beyond it may be left out.

        Equal rows are added up only where some entries may cancel others. Otherwise each part
        comes as soon as it is computed, and the engine holds no table of all rows. Without columns
        all rows are equal, and are one.
        """
        columns = columns_of(relation)
        consolidated = (
            not columns
            or takes_away(relation)
            or not all(adds_only(inputs[id]) for id in sources_of(relation))
        )
        select = None
        if not consolidated:
            select = self._select(relation, inputs, as_of, "statement")
        elif extent.most is not None and columns and has_entries_of_rows(relation):
            select = self._first(relation, inputs, as_of, extent)
        if select is None:
            select = self._select(relation, inputs, as_of, "settled")
        if extent != ALL_ROWS:
            select = f"SELECT * FROM ({select}) AS r{self._bounds(extent)}"
        for part in self.stream(select, max_bytes):
            yield cast_to_schema(part, result_schema(columns))

    def _first(
        self, relation: Relation, inputs: Mapping[GlobalId, Input], as_of: int, extent: Extent
    ) -> str | None:
        """Return the statement for rows with those of an extent; None if many are taken away.

        An entry that takes a row away cancels one of the entries that add rows: where so many more
        of these are taken, enough rows are left.
        """
        taken = self._select(relation, inputs, as_of, "count_cancelled")
        count = self.read(taken, pa.schema([(DIFF, pa.int64())])).column(0)[0].as_py()
        if count > MOST_TAKEN:
            return None
        assert extent.most is not None
        bounds = self._bounds(replace(extent, most=extent.most + count))
        return self._select(relation, inputs, as_of, "first_entries", bounds)

    def _bounds(self, extent: Extent) -> str:
        """Return ORDER BY and LIMIT; an entry is a row at least once."""
        keys = [self._sorted_by(key).sql for key in extent.order]
        ordered = f" ORDER BY {', '.join(keys)}" if keys else ""
        return ordered if extent.most is None else f"{ordered} LIMIT {extent.most}"

    def _sorted_by(self, key: OrderKey) -> Sort:
        assert isinstance(key.expr, Column), key
        sql = self.dialect.key(f"c{key.expr.index}", key.expr.type)
        return Sort(sql, key.descending, key.nulls_first)

    def unconsolidated(
        self, relation: Relation, inputs: Mapping[GlobalId, Input], as_of: int
    ) -> str:
        """Return the statement for the rows of an infallible relation, equal ones perhaps apart."""
        return self._select(relation, inputs, as_of, "statement")

    def _select(
        self,
        relation: Relation,
        inputs: Mapping[GlobalId, Input],
        as_of: int,
        form: Form,
        bounds: str = "",
    ) -> str:
        """Return the statement for the rows of a relation over inputs, rendered once."""
        columns = {n.id: n.columns for n in walk_relations(relation) if isinstance(n, Get)}
        sources = {id: self._kept_source(id, inputs[id], columns[id], as_of) for id in columns}
        single = frozenset(id for id in columns if has_single_rows(inputs[id]))
        retracting = frozenset(id for id in columns if not adds_only(inputs[id]))
        if calls_volatile(relation):  # equal rows that are added up would be one call
            retracting = frozenset()
        key = (relation, tuple(sources.values()), form, bounds, single, retracting)
        select = self._selects.get(key)
        if select is None:
            renderer = Renderer(
                self.dialect,
                self.idioms,
                sources,
                constant=self.constant,
                single=single,
                retracting=retracting,
            )
            if isinstance(relation, Reduce):  # groups differ
                form = "statement"
            arguments = (bounds,) if form == "first_entries" else ()
            select = self._selects[key] = getattr(renderer, form)(relation, *arguments)
        return select

    def _kept_source(
        self, id: GlobalId, input: Input, columns: Sequence[ColumnType], as_of: int
    ) -> str:
        """Return the FROM item of an input, which is registered again only if it changed."""
        kept = self._items.get(id)
        if kept is not None and kept[0] is input and kept[1] == as_of:
            return kept[2]
        item = self._source(id, input, columns, as_of)
        self._items[id] = (input, as_of, item)
        return item

    def sources(
        self,
        inputs: Mapping[GlobalId, Input],
        columns: Mapping[GlobalId, Sequence[ColumnType]],
        as_of: int,
    ) -> Mapping[GlobalId, str]:
        """Return FROM items for those inputs that `columns` has, with their contents as of a time.

        Their columns are c0, ..., d.
        """
        return {id: self._source(id, inputs[id], columns[id], as_of) for id in columns}

    def _source(self, id: GlobalId, input: Input, columns: Sequence[ColumnType], as_of: int) -> str:
        types = [self.dialect.type_name(column.type) for column in columns]
        names = input.file_names
        selects = []
        if input.files:
            stored = [*zip(names, types, strict=True), (TIME, "BIGINT"), (DIFF, "BIGINT")]
            item = self.files(f"files_{id}", input.files, stored)
            items = [f"{self.dialect.identifier(name)} AS c{i}" for i, name in enumerate(names)]
            items.append(f"{DIFF} AS d")
            selects.append(f"SELECT {', '.join(items)} FROM {item} WHERE {TIME} <= {as_of}")
        tail = [by_position(table) for table in input.tail if table.num_rows]
        if not selects and not tail:
            tail = [by_position(update_schema(input.schema).empty_table())]
        if tail:
            placed = [(f"c{i}", type) for i, type in enumerate(types)]
            name, table = f"tail_{id}", pa.concat_tables(tail)
            self.show(name, table, [*placed, ("t", "BIGINT"), ("d", "BIGINT")])
            items = [*(column for column, _ in placed), "d"]
            select = f"SELECT {', '.join(items)} FROM {name} WHERE t <= {as_of}"
            if pc.any(pc.less(table["d"], 0)).as_py():
                # A row that changed often has many entries, all of which a join would process.
                layout = row_layout(columns, self.dialect, timed=False)
                select = consolidate_select(f"({select}) AS y", layout, self.dialect)
            selects.append(select)
        return f"({' UNION ALL '.join(selects)})"

    def constant(self, constant: Constant) -> str:
        """Return a FROM item for a constant: c0, ..., d."""
        name = f"constant{next(self._constants)}"
        types = [self.dialect.type_name(column.type) for column in constant.columns]
        columns = [(f"c{i}", type) for i, type in enumerate(types)]
        self.show(name, constant_table(constant), [*columns, ("d", "BIGINT")])
        return name
