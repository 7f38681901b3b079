"""IDLE TIMEOUT: the clock moves the watermarks of relations that nobody writes.

A relation that was not written for its timeout has as its greatest time what it had, plus the time
that has passed since. This *mark* is the one row of a relation beside it, `NAME_idle`, of which the
watermark is computed like of the rows: so it is durable, and the same for all who read as of a
time. Marks are written when they differ by a quarter of the timeout, and at least by a second.

Silence is measured from when the server last saw a write, or from its start. It is counted look by
look: of a clock that is set forward only seconds count, as a watermark cannot be taken back, and
after one that is set back silence begins anew. A relation without a finite time has no watermark,
and the clock gives it none.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from foreshore.adapter.services.collections import Stored
from foreshore.adapter.transaction.write import Write
from foreshore.ids import GlobalId
from foreshore.rows import negated
from foreshore.types import Watermark
from foreshore.update import DIFF
from foreshore.upkeep import goes_on

LOOK_SECONDS = 1.0
MOST_PASSED = 10_000_000  # microseconds between two looks that count, as a clock may be set
LEAST_STEP = 1_000_000  # microseconds
LOCK_TIMEOUT_MS = 1_000


@dataclass(frozen=True, slots=True)
class _Silence:
    """A relation that was not written since a time, in microseconds that were counted."""

    writes: int  # how many the server had seen
    since: int
    greatest: int | None  # time of the relation then


class IdleWatermarks:
    """Moves the watermarks of one environment's silent relations."""

    def __init__(self, coordinator: Stored) -> None:
        self.clock = coordinator.clock
        self._coordinator = coordinator
        self._silent: dict[GlobalId, _Silence] = {}
        self._corrupted: set[GlobalId] = set()  # which are not tried again
        self._looked: int | None = None  # when, in microseconds of the clock
        self._counted = 0  # microseconds, over all looks

    async def run(self) -> None:
        """Look every second until cancelled."""
        while True:
            await goes_on(self.move, "watermarks of what rests were not moved")
            await asyncio.sleep(LOOK_SECONDS)

    async def move(self) -> None:
        """Write the marks that are due; what hinders one relation does not hinder others."""
        self._count()
        found = dict(self._relations())
        self._silent = {id: each for id, each in self._silent.items() if id in found}
        for id, watermark in found.items():
            if id not in self._corrupted and not await goes_on(
                partial(self._move, id, watermark), f"the watermark of {id} was not moved"
            ):
                self._corrupted.add(id)

    def _count(self) -> None:
        """Count the time that has passed since the last look."""
        now, before = self.clock.now() * 1000, self._looked
        self._looked = now
        if before is not None and now < before:
            self._silent.clear()
        elif before is not None:
            self._counted += min(now - before, MOST_PASSED)

    async def _move(self, id: GlobalId, watermark: Watermark) -> None:
        assert watermark.idle is not None
        await self._coordinator.watermarks.ready(id)
        mark = self._due(id, watermark.idle)
        if mark is not None:
            await self._write(id, watermark, mark)

    def _relations(self) -> Iterator[tuple[GlobalId, Watermark]]:
        """Yield the relations with a timeout."""
        coordinator = self._coordinator
        for id in coordinator.watermarks.with_timeout:
            watermark = coordinator.watermarks.of(id)
            if watermark is not None and watermark.marks in coordinator.capabilities:
                yield id, watermark

    def _due(self, id: GlobalId, timeout: int) -> int | None:
        """Return the mark of a relation, in microseconds; None if none is due."""
        watermarks, now = self._coordinator.watermarks, self._counted
        writes, before = watermarks.writes(id), self._silent.get(id)
        if before is None or before.writes != writes:
            self._silent[id] = _Silence(writes, now, watermarks.greatest(id))
            return None
        passed, greatest = now - before.since, watermarks.greatest(id)
        if before.greatest is None or greatest is None or passed < timeout:
            return None
        mark = before.greatest + passed
        return mark if mark - greatest >= max(LEAST_STEP, timeout // 4) else None

    async def _write(self, id: GlobalId, watermark: Watermark, mark: int) -> None:
        coordinator = self._coordinator
        assert watermark.marks is not None
        desc = coordinator.catalog.planned[watermark.marks].desc
        read, _ = coordinator.capabilities[watermark.marks]
        with coordinator.storage.snapshot(read, coordinator.oracle.read_ts()) as snapshot:
            present = await snapshot.rows()
        schema = present.schema
        column = pa.array([mark], pa.int64()).cast(desc.stored_schema().field(0).type)
        added = pa.Table.from_arrays([column, pa.array([1], pa.int64())], schema=schema)
        assert schema.names[-1] == DIFF, schema
        rows = [*([negated(present)] if present.num_rows else []), added]
        write = Write({watermark.marks: rows}, lock_timeout_ms=LOCK_TIMEOUT_MS)
        write.applied = lambda time: coordinator.watermarks.move(id, mark)
        await coordinator.group.write(write)
