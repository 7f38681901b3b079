"""Write `mz_internal.mz_wallclock_global_lag_history`: how far collections were behind.

Once a minute the table gets a row for each collection: its greatest lag behind the wall clock in
that minute, measured once a second, or NULL if it was not readable at some moment. All tables have
the same upper, so one shard is measured for all. The same commit removes rows that are older than a
day or exceed `MAX_ROWS`. After a failure the sample is lost, and the next one is written as usual.
"""

import asyncio
from typing import Protocol

from foreshore import blocking
from foreshore.adapter.services.collections import Collections
from foreshore.adapter.services.engines import Engines
from foreshore.adapter.transaction.write import Write
from foreshore.catalog.durable import CATALOG_SHARD
from foreshore.catalog.item import Item
from foreshore.catalog.state import LAG_HISTORY, is_system
from foreshore.compute.controller.lag_samples import LagSamples, sample_rows, stale_rows
from foreshore.ids import GlobalId
from foreshore.rows import negated
from foreshore.update import DIFF_FIELD
from foreshore.upkeep import goes_on

LOOK_SECONDS = 1.0
LOOKS = 60  # in a sample
LOOKED_AT_ONCE = 256  # collections in one turn of the loop
LOCK_TIMEOUT_MS = 10_000
MAX_ROWS = 50_000


class Watched(Collections, Engines, Protocol):
    """Collections, and threads for their history."""


class LagHistory:
    """Writes the table of one environment."""

    def __init__(self, coordinator: Watched) -> None:
        self._coordinator = coordinator
        self._samples = LagSamples()  # of maintained collections
        self._tables = LagSamples()  # of all tables, under the catalog's shard

    async def run(self) -> None:
        """Write a sample every minute until cancelled, or until the table is corrupted."""
        while await goes_on(self._sample, "a sample of the lag of collections is lost"):
            pass

    async def _sample(self) -> None:
        for _ in range(LOOKS):
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()
        await self.write()

    async def look(self) -> None:
        """Measure the lag of each collection, a bounded number in each turn of the loop."""
        coordinator = self._coordinator
        now = coordinator.clock.now()
        self._tables.observe(CATALOG_SHARD, coordinator.storage.upper(CATALOG_SHARD), now)
        for number, id in enumerate(list(coordinator.as_ofs), start=1):
            if number % LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)
                now = coordinator.clock.now()
            if id in coordinator.as_ofs:  # it was not dropped meanwhile
                self._samples.observe(id, coordinator.upper(id), now)

    async def write(self) -> None:
        """Write a sample, and remove the rows that the table does not keep."""
        coordinator = self._coordinator
        now = coordinator.clock.now()
        lags = self._take()
        read, _ = coordinator.capabilities[LAG_HISTORY.id]
        with coordinator.storage.snapshot(read, coordinator.oracle.read_ts()) as snapshot:
            present = await snapshot.rows()
        schema = coordinator.catalog.planned[LAG_HISTORY.id].desc.stored_schema()
        sample, stale = await blocking.run(
            coordinator.executor,
            lambda: (
                sample_rows(now, lags, schema.append(DIFF_FIELD)),
                stale_rows(present, now, len(lags), MAX_ROWS),
            ),
        )
        rows = [sample]
        if stale.num_rows:
            rows.append(negated(stale))
        if lags or stale.num_rows:
            write = Write({LAG_HISTORY.id: rows}, lock_timeout_ms=LOCK_TIMEOUT_MS)
            await coordinator.group.write(write)

    def _take(self) -> dict[GlobalId, int | None]:
        """Return the greatest lag of each collection of users, and start the next sample."""
        coordinator = self._coordinator
        lags = dict(self._samples.take())
        for lag in self._tables.take().values():
            tables = (item.id for item in coordinator.state.all(Item) if item.type == "table")
            lags.update((id, lag) for id in tables if not is_system(id))
        return lags
