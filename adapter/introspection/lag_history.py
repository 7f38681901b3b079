"""Write `mz_internal.mz_wallclock_global_lag_history`: how far collections were behind.

Once a minute the table gets a row for each collection: the greatest lag behind the wall clock that
was seen in that minute, looked at once a second, or NULL if the collection could not be read at
some moment. The same commit removes rows that are older than a day or exceed `MAX_ROWS`. No failure
here ends the server: the sample is lost and the next one is tried.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.adapter.transaction.group_commit import Write
from foreshore.catalog.item import Item
from foreshore.catalog.state import LAG_HISTORY, is_system
from foreshore.errors import CollectionCorrupted, DatabaseError
from foreshore.ids import GlobalId
from foreshore.rows import negated
from foreshore.update import DIFF_FIELD

if TYPE_CHECKING:
    from foreshore.adapter.coordinator import Coordinator

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
LOOKS = 60  # to a sample
LOOKED_AT_ONCE = 256  # collections in one turn of the event loop
LOCK_TIMEOUT_MS = 10_000
KEPT_MS = 24 * 60 * 60 * 1000
MAX_ROWS = 50_000


class LagHistory:
    """Writes the table of one environment."""

    def __init__(self, coordinator: "Coordinator") -> None:
        self._coordinator = coordinator
        self._greatest: dict[GlobalId, int | None] = {}  # in milliseconds, since the last sample

    async def run(self) -> None:
        """Write a sample every minute until cancelled, or until the table is corrupted."""
        while True:
            for _ in range(LOOKS):
                await asyncio.sleep(LOOK_SECONDS)
                await self.look()
            try:
                await self.write()
            except CollectionCorrupted as error:
                logger.warning("the lag of collections is not recorded any more: %s", error)
                return
            except (DatabaseError, OSError) as error:
                logger.warning("a sample of the lag of collections is lost: %s", error)
            except Exception:  # a defect, which must not end the server
                logger.exception("a sample of the lag of collections is lost")

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
                continue  # dropped meanwhile
            upper = coordinator.upper(item.id)
            lag = max(now - upper, 0) if upper else None
            last = self._greatest.setdefault(item.id, lag)
            if last is not None and (lag is None or lag > last):
                self._greatest[item.id] = lag

    async def write(self) -> None:
        """Write the sample since the last one, and remove rows that the table may not keep."""
        coordinator = self._coordinator
        now = coordinator.clock.now()
        greatest, self._greatest = self._greatest, {}
        read, _ = coordinator.capabilities[LAG_HISTORY.id]
        snapshot = coordinator.storage.snapshot(read, coordinator.oracle.read_ts())
        try:
            present = await snapshot.rows()
        finally:
            snapshot.release()
        schema = coordinator.catalog.planned[LAG_HISTORY.id].desc.stored_schema()
        rows = [_sample(now, greatest, schema.append(DIFF_FIELD))]
        stale = _stale(present, now, len(greatest))
        if stale.num_rows:
            rows.append(negated(stale))
        if greatest or stale.num_rows:
            write = Write({LAG_HISTORY.id: rows}, lock_timeout_ms=LOCK_TIMEOUT_MS)
            await coordinator.group.write(write)


def _stale(rows: pa.Table, now: int, added: int) -> pa.Table:
    """Return the rows to remove when `added` rows come at `now`: whole samples, oldest first."""
    rows = rows.sort_by([("occurred_at", "descending")])
    times = rows.column("occurred_at").cast(pa.int64())  # microseconds
    newest = 1000 * (now - KEPT_MS)  # of the rows to remove
    place = max(MAX_ROWS - added, 0)  # of the first row that exceeds the bound
    if place < rows.num_rows:
        newest = max(newest, times[place].as_py())
    return rows.filter(pc.less_equal(times, newest))


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
