"""How far behind each collection was: a history of it, in a table of the system's own.

`mz_internal.mz_wallclock_global_lag_history` has a row for each minute and collection: the greatest
lag behind the time of day that was seen in that minute, looked for once a second; NULL where it
could not be read at any time for a moment. It is a table like any other, but that only the system
writes it: it can be joined, read AS OF a time, followed, and made views of.

A sample is written by one commit, which takes away what is older than a day, and of much the
oldest, so that the table never has more than `MAX_ROWS`. To know those nothing is read: this
process has in memory what it will take away again.

Nothing that goes wrong here ends the server: what passes is tried again, a damage is left alone.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from foreshore.adapter.transaction.group_commit import Write
from foreshore.catalog.item import Item
from foreshore.catalog.state import LAG_HISTORY, is_system
from foreshore.errors import CollectionCorrupted, DatabaseError, LockNotAvailable, OutOfDisk
from foreshore.ids import GlobalId
from foreshore.rows import negated
from foreshore.update import DIFF_FIELD

if TYPE_CHECKING:
    from foreshore.adapter.coordinator import Coordinator

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
LOOKS = 60  # to a sample
LOOKED_AT_ONCE = 256  # collections in one turn of the message loop
LOCK_TIMEOUT_MS = 10_000  # for who reads the table to write, and keeps it from changing
RETRY_SECONDS = 60.0
KEPT_MS = 24 * 60 * 60 * 1000
MAX_ROWS = 50_000


class LagHistory:
    """Writes the table of one environment."""

    def __init__(self, coordinator: "Coordinator") -> None:
        self._coordinator = coordinator
        self._greatest: dict[GlobalId, int | None] = {}  # in milliseconds, since the last sample
        self._kept: deque[tuple[int, pa.Table]] = deque()  # samples by their times
        self._rows = 0
        planned = coordinator.catalog.planned[LAG_HISTORY.id]
        self._schema = planned.desc.stored_schema().append(DIFF_FIELD)

    async def run(self) -> None:
        """Write a sample every minute, until cancelled, or until the table is damaged."""
        while True:
            try:
                await self.load()
                await self._write_on()
            except CollectionCorrupted as error:  # which takes out itself and nothing else
                logger.warning("how far collections are behind is written no more: %s", error)
                return
            except (DatabaseError, OSError) as error:
                logger.warning("how far collections are behind cannot be written: %s", error)
            except Exception:  # a fault of this task, which the database can do without
                logger.exception("how far collections are behind cannot be written")
            await asyncio.sleep(RETRY_SECONDS)

    async def _write_on(self) -> None:
        while True:
            for _ in range(LOOKS):
                await asyncio.sleep(LOOK_SECONDS)
                await self.look()
            try:
                await self.write()
            except (OutOfDisk, LockNotAvailable) as error:  # nothing has been written
                logger.warning("a sample of how far collections are behind is lost: %s", error)

    async def load(self) -> None:
        """Find what the table holds, which is not known either after a write that failed."""
        coordinator = self._coordinator
        read, _ = coordinator.capabilities[LAG_HISTORY.id]
        snapshot = coordinator.storage.snapshot(read, coordinator.oracle.read_ts())
        try:
            rows = await snapshot.rows()
        finally:
            snapshot.release()
        rows = rows.sort_by("occurred_at")
        times = rows.column("occurred_at").cast(pa.int64()).to_numpy() // 1000
        self._kept.clear()
        self._rows = 0
        bounds = [0, *(np.flatnonzero(np.diff(times)) + 1), len(times)]
        for start, end in pairwise(bounds if len(times) else ()):
            self._keep(int(times[start]), rows.slice(start, end - start))

    async def look(self) -> None:
        """Note how far each collection is behind, a bounded number of them in a turn."""
        coordinator = self._coordinator
        now = coordinator.clock.now()
        for number, item in enumerate(coordinator.state.all(Item), start=1):
            if number % LOOKED_AT_ONCE == 0:
                await asyncio.sleep(0)
                now = coordinator.clock.now()
            if not item.is_collection or is_system(item.id):
                continue
            if coordinator.state.get(item.id) is None:
                continue  # dropped in between
            upper = coordinator.upper(item.id)
            lag = max(now - upper, 0) if upper else None
            last = self._greatest.setdefault(item.id, lag)
            if last is not None and (lag is None or lag > last):
                self._greatest[item.id] = lag

    async def write(self) -> None:
        """Write a sample of what was noted since the last, and take away what is too old."""
        now = self._coordinator.clock.now()
        gone = self._too_old(now)
        greatest, self._greatest = self._greatest, {}
        if not greatest and not gone:
            return
        sample = _sample(now, greatest, self._schema)
        taken = [negated(rows) for _, rows in list(self._kept)[:gone]]
        write = Write({LAG_HISTORY.id: [sample, *taken]}, lock_timeout_ms=LOCK_TIMEOUT_MS)
        await self._coordinator.group.write(write)
        for _ in range(gone):
            _, rows = self._kept.popleft()
            self._rows -= rows.num_rows
        self._keep(now, sample)

    def _keep(self, time: int, sample: pa.Table) -> None:
        self._kept.append((time, sample))
        self._rows += sample.num_rows

    def _too_old(self, now: int) -> int:
        """Return how many of the oldest samples are to go."""
        gone, rows = 0, self._rows
        for time, sample in self._kept:
            if time > now - KEPT_MS and rows <= MAX_ROWS:
                break
            gone, rows = gone + 1, rows - sample.num_rows
        return gone


def _sample(now: int, greatest: Mapping[GlobalId, int | None], schema: pa.Schema) -> pa.Table:
    """Return the table's rows for one minute, with `__diff`, in its `schema`."""
    lags = [
        None if lag is None else {"months": 0, "days": 0, "micros": 1000 * lag}
        for lag in greatest.values()
    ]
    columns = [list(greatest), lags, [1000 * now] * len(lags), [1] * len(lags)]
    return pa.table(
        [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)],
        schema=schema,
    )
