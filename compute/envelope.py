"""Envelopes: a collection's updates as the rows that a SUBSCRIBE statement shows.

An envelope sees all updates of one time together and keeps nothing between times, so equal updates
give equal rows for every subscriber. With a key, all updates of a key at one time become one row:
one insertion, one deletion, or one of each. Anything else means that several rows have the key and
gives `key_violation`. A second row that comes at a later time is not noticed.

Updates are row columns, time and diff. Rows are ordered by time, then by key or by WITHIN TIMESTAMP
ORDER BY.
"""

from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np
import pyarrow as pa

from foreshore import blocking
from foreshore.compute.arrange.arrangement import consolidate
from foreshore.compute.arrange.key import hash_columns
from foreshore.compute.engine import output_schema, rows_schema
from foreshore.compute.finish import places_in_order
from foreshore.compute.inputs import conform
from foreshore.compute.linear import Rows, apply
from foreshore.compute.result import BATCH_ROWS
from foreshore.expr.columns import columns_of
from foreshore.expr.envelope import Debezium, Diffs, Envelope, Upsert
from foreshore.expr.ir import Column, OrderKey, Relation
from foreshore.types import INT8, ColumnType, RelationDesc, arrow_type
from foreshore.update import Timestamp

INLINE_ROWS = 2_048  # up to so many rows are rendered on the event loop
INSERT, UPDATE, DELETE, VIOLATION = range(4)

_UPSERT_STATES = pa.array(["upsert", "upsert", "delete", "key_violation"])
_DEBEZIUM_STATES = pa.array(["insert", "upsert", "delete", "key_violation"])

Pieces = tuple[pa.RecordBatch, ...]


class Rendering:
    """Renders a collection's updates as a statement's rows; shared by equal statements.

    `relation` is Map, Filter and Project over the collection, None if its columns stay as they are.
    """

    def __init__(self, relation: Relation | None, form: "Form") -> None:
        self.relation = relation
        self.form = form
        self._progress: tuple[Timestamp, Pieces] = (-1, ())

    def rows(self, updates: pa.Table) -> Pieces:
        """Return the rows, in pieces that are sent as they are."""
        if self.relation is not None:
            found = apply(self.relation, lambda _: Rows.of_table(updates, 2))
            schema = output_schema(columns_of(self.relation))
            updates = pa.Table.from_arrays([*found.columns, *found.along], schema=schema)
        if not updates.num_rows:
            return ()
        rows = self.form.rows(updates)
        return tuple(rows.slice(i, BATCH_ROWS) for i in range(0, rows.num_rows, BATCH_ROWS))

    def progress(self, time: Timestamp) -> Pieces:
        """Return the progress row for `time`, if the statement wants progress rows."""
        if not self.form.progress:
            return ()
        if self._progress[0] != time:
            self._progress = time, (self.form.progress_row(time),)
        return self._progress[1]

    async def render(self, updates: pa.Table | None, upper: Timestamp | None) -> Pieces:
        """Return the rows and, unless `upper` is None, the progress row for it.

        Many updates are rendered in a thread.
        """
        if updates is None:
            pieces: Pieces = ()
        elif updates.num_rows <= INLINE_ROWS:
            pieces = self.rows(updates)
        else:
            pieces = await blocking.run(None, self.rows, updates)
        return pieces if upper is None else pieces + self.progress(upper)


@dataclass(frozen=True, slots=True)
class Form:
    """The columns, envelope and order of a statement's rows; equal forms give equal rows."""

    envelope: Envelope
    progress: bool
    columns: tuple[ColumnType, ...]  # of the query
    desc: RelationDesc

    def rows(self, updates: pa.Table) -> pa.RecordBatch:
        """Return updates of the query's columns as rows of the statement."""
        updates = conform(updates, output_schema(self.columns))
        if updates.num_rows > 1 and self.columns:
            updates = consolidate(updates, rows_schema(self.columns), 0)
        columns = [_flat(column) for column in updates.columns]
        match self.envelope:
            case Diffs(order_by=order_by):
                times, body = self._diffs(columns, order_by)
            case Upsert(key=key):
                times, body = self._by_key(columns, key, before=False)
            case Debezium(key=key):
                times, body = self._by_key(columns, key, before=True)
            case _:
                assert_never(self.envelope)
        head = [times]
        if self.progress:
            head.append(pa.repeat(pa.scalar(False), len(times)))
        return self._batch([*head, *body])

    def progress_row(self, time: Timestamp) -> pa.RecordBatch:
        """Return the row of PROGRESS: everything before `time` has been sent."""
        types = [arrow_type(column.type) for column in self.desc.columns]
        columns = [pa.array([time], pa.int64()), pa.array([True], pa.bool_())]
        return self._batch([*columns, *(pa.nulls(1, type) for type in types[2:])])

    def _batch(self, columns: list[pa.Array]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(columns, names=[f"c{i}" for i in range(len(columns))])

    def _diffs(
        self, columns: list[pa.Array], order_by: tuple[OrderKey, ...]
    ) -> tuple[pa.Array, list[pa.Array]]:
        *rows, times, diffs = columns
        shown = [times, diffs, *rows]
        keys = [OrderKey(Column(0, INT8, False))]
        for key in order_by:
            assert isinstance(key.expr, Column), key
            place = Column(key.expr.index + 1, key.expr.type, key.expr.nullable)
            keys.append(OrderKey(place, key.descending, key.nulls_first))
        places = pa.array(places_in_order(self._batch(shown), tuple(keys)))
        times, *body = (column.take(places) for column in shown)
        return times, body

    def _by_key(
        self, columns: list[pa.Array], key: tuple[int, ...], *, before: bool
    ) -> tuple[pa.Array, list[pa.Array]]:
        *rows, times, diffs = columns
        keys = [rows[place] for place in key]
        types = [self.columns[place].type for place in key]
        first, change, old, new = _changes(
            times.to_numpy(), hash_columns(keys, types, len(times)), diffs.to_numpy()
        )
        shown = [times.take(pa.array(first)), *(column.take(pa.array(first)) for column in keys)]
        by = [OrderKey(Column(0, INT8, False))]
        by += [OrderKey(Column(i, type)) for i, type in enumerate(types, 1)]
        places = places_in_order(self._batch(shown), tuple(by))
        times, *keys = (column.take(pa.array(places)) for column in shown)
        states = _DEBEZIUM_STATES if before else _UPSERT_STATES
        state = states.take(pa.array(change[places]))
        values = [rows[place] for place in range(len(rows)) if place not in key]
        sides = (old, new) if before else (new,)
        body = [column.take(_places(side[places])) for side in sides for column in values]
        return times, [state, *keys, *body]


def _changes(times: Any, hashes: Any, diffs: Any) -> tuple[Any, Any, Any, Any]:
    """Group consolidated updates by time and key.

    Return for each group the position of its first update, its kind of change, and the positions of
    the old and the new row, -1 if there is none to show.
    """
    count = len(times)
    order = np.lexsort((diffs, hashes, times))
    starts = np.ones(count, np.bool_)
    same = (times[order][1:] == times[order][:-1]) & (hashes[order][1:] == hashes[order][:-1])
    starts[1:] = ~same
    begins = np.flatnonzero(starts)
    sizes = np.diff(np.append(begins, count))
    first, last = order[begins], order[begins + sizes - 1]  # by diff: the deletion first
    one, two = sizes == 1, sizes == 2
    is_deleted, is_inserted = diffs[first] == -1, diffs[last] == 1
    change = np.full(len(begins), VIOLATION)
    change[one & is_inserted] = INSERT
    change[one & is_deleted] = DELETE
    change[two & is_deleted & is_inserted] = UPDATE
    old = np.where((change == UPDATE) | (change == DELETE), first, -1)
    new = np.where((change == UPDATE) | (change == INSERT), last, -1)
    return first, change, old, new


def _places(places: Any) -> pa.Array:
    return pa.array(places, mask=places < 0)


def _flat(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks != 1 else column.chunk(0)
