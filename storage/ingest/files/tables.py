"""The connector of tables of a lake: a version after the other, by the files that come and go.

A version is one batch. What does not fit into memory comes in parts before it.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.errors import Unavailable
from foreshore.sources.files import FilesSource
from foreshore.sources.iceberg import IcebergSource
from foreshore.sources.lake import LakeDetails, lake_changes
from foreshore.sources.outputs import ERRORS, OWN_ROWS
from foreshore.storage.ingest.connector import (
    REACHED,
    Batch,
    Durable,
    OutputReport,
    Part,
    Position,
    Report,
)
from foreshore.storage.ingest.difference import difference, in_turn
from foreshore.storage.ingest.errors import Unreadable, error_rows
from foreshore.storage.ingest.files.columns import as_relation, columns_of_schema, with_diffs
from foreshore.storage.ingest.messages import OutputRelation
from foreshore.storage.lake.followed import Followed
from foreshore.storage.lake.steps import COLUMNS, VERSION, Step

PART_BYTES = 16 << 20  # of rows that are sent together
ANEW = (
    "the table was made anew, or what was read of it last has expired: it is read as a whole, and"
    " the difference is taken"
)
T = TypeVar("T")


class TableConnector:
    """Reads the newest version of a table, and then each one that follows."""

    def __init__(
        self, table: Followed, own: OutputRelation, spec: FilesSource | IcebergSource
    ) -> None:
        self._table = table
        self._desc = own.desc
        self._known = LakeDetails.read(own.details)
        self._spec = spec
        self._rows = 0  # that were read
        self._ceased: str | None = None

    async def run(self, durable: Durable) -> AsyncIterator[Batch | Part]:
        """Yield the rows that each version adds and removes; a version is one batch."""
        position, is_first = dict(durable.position), True
        thread = ThreadPoolExecutor(1, thread_name_prefix="lake")
        try:
            while True:
                if self._spec.applies_changes and (await _on(thread, self._has_ceased, position)):
                    await asyncio.sleep(self._spec.poll_ms / 1000)
                    continue
                steps = await _on(thread, self._steps, position)
                async for step in in_turn(thread, steps):
                    changes = in_turn(thread, self._changes(step))
                    if step.anew:
                        if not is_first:  # the rows that are here are known at the start only
                            raise Unavailable(ANEW)
                        changes = self._instead(changes, durable, thread)
                    async for change in changes:
                        yield change
                    position |= step.moved
                    is_first = False
                is_first = False
                yield REACHED
                if not self._spec.follow:
                    return
                await asyncio.sleep(self._spec.poll_ms / 1000)
        finally:
            thread.shutdown(wait=False, cancel_futures=True)

    async def furthest(self) -> Position:
        """Return the position after the newest version."""
        return await asyncio.to_thread(self._table.newest)

    def committed(self, position: Position) -> None:
        """Do nothing: the table is its owner's."""

    def report(self) -> Report:
        """Return how many rows were read, and how the columns of the table have changed."""
        return Report({OWN_ROWS: OutputReport(self._rows, ceased=self._ceased)}, {})

    def _has_ceased(self, position: Position) -> bool:
        """Look whether the table has other columns, with which the relation cannot go on."""
        schema, details = self._table.columns()
        types = {
            name: str(each.type)
            for name, each in zip(self._desc.names, self._desc.columns, strict=True)
        }
        now = LakeDetails.read(details)
        changes = lake_changes(types, self._known, columns_of_schema(schema), now)
        said = changes.text()
        self._ceased = None if said is None else f"the columns of the table have changed: {said}"
        return said is not None

    def _steps(self, position: Position) -> Iterator[Step]:
        """Yield the steps from a position; if the relation was refreshed, all is read anew."""
        number = self._known.number
        if number == position.get(COLUMNS, 0):
            yield from self._table.steps(position)
            return
        for each in self._table.steps({}):
            moved = {**each.moved, COLUMNS: number}
            yield replace(each, moved=moved, anew=VERSION in position)

    async def _instead(
        self, changes: AsyncIterator[Batch | Part], durable: Durable, thread: Executor
    ) -> AsyncIterator[Batch | Part]:
        """Yield the difference between the rows that are here and those of another table.

        Reports what cannot be read, except in files that were read before.
        """
        last: list[Batch] = []
        errors: list[pa.Table] = []

        async def rows() -> AsyncIterator[pa.Table]:
            async for each in changes:
                if OWN_ROWS in each.rows:
                    yield each.rows[OWN_ROWS]
                if ERRORS in each.rows:
                    errors.append(each.rows[ERRORS])
                if isinstance(each, Batch):
                    last.append(each)

        schema = self._desc.stored_schema()
        async for each in difference(rows(), OWN_ROWS, schema, durable, thread):
            yield Part({OWN_ROWS: each})
        news = await _not_told(pa.concat_tables(errors), durable) if errors else None
        yield Batch({} if news is None else {ERRORS: news}, last[0].moved)

    def _changes(self, step: Step) -> Iterator[Batch | Part]:
        """Yield the rows of a step. Blocks."""
        kept = _Kept()
        for files, diff in ((step.gone, -1), (step.come, 1)):
            for file in files:
                wrong: list[Unreadable] = []
                first = 1
                for batch in file.rows(self._desc.names):
                    rows = as_relation(batch, self._desc, file.path, first, wrong)
                    first += batch.num_rows
                    self._rows += batch.num_rows
                    kept.add(OWN_ROWS, with_diffs([rows], diff))
                    if kept.size >= PART_BYTES:
                        yield Part(kept.taken())
                if wrong and diff > 0:
                    kept.add(ERRORS, error_rows(wrong))
        yield Batch(kept.taken(), step.moved)


async def _not_told(errors: pa.Table, durable: Durable) -> pa.Table:
    """Return the errors that are not among those that are here, by their files and rows."""
    parts = errors["part"].unique()
    told: set[tuple[str, int]] = set()
    async for each in durable.contents(ERRORS):
        same = each.filter(pc.is_in(each["part"], parts))
        told.update(zip(same["part"].to_pylist(), same["offset"].to_pylist(), strict=True))
    places = zip(errors["part"].to_pylist(), errors["offset"].to_pylist(), strict=True)
    return errors.filter(pa.array([each not in told for each in places], pa.bool_()))


class _Kept:
    """Rows that were not sent yet, by their outputs."""

    def __init__(self) -> None:
        self.size = 0  # in bytes
        self._tables: dict[str, list[pa.Table]] = {}

    def add(self, reference: str, rows: pa.Table) -> None:
        self._tables.setdefault(reference, []).append(rows)
        self.size += int(rows.nbytes)

    def taken(self) -> dict[str, pa.Table]:
        """Return all, and begin anew."""
        found = {name: pa.concat_tables(tables) for name, tables in self._tables.items()}
        self._tables, self.size = {}, 0
        return found


async def _on(thread: Executor, run: Callable[[Position], T], position: Position) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, run, position)
