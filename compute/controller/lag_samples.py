"""Samples of the lag of collections: the greatest lag of each within a time, and which to keep."""

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.ids import GlobalId
from foreshore.update import Timestamp

KEPT_MS = 24 * 60 * 60 * 1000


class LagSamples:
    """The greatest lag of each collection, in milliseconds, since the last sample was taken.

    None: the collection was not readable at some moment.
    """

    def __init__(self) -> None:
        self.greatest: dict[GlobalId, int | None] = {}

    def observe(self, id: GlobalId, upper: Timestamp | None, now: Timestamp) -> None:
        """Note how far a collection with this upper is behind `now`."""
        lag = max(now - upper, 0) if upper else None
        last = self.greatest.setdefault(id, lag)
        if last is not None and (lag is None or lag > last):
            self.greatest[id] = lag

    def take(self) -> Mapping[GlobalId, int | None]:
        """Return the greatest lags, and start the next sample."""
        taken, self.greatest = self.greatest, {}
        return taken


def sample_rows(now: int, lags: Mapping[GlobalId, int | None], schema: pa.Schema) -> pa.Table:
    """Return the rows of a sample taken at `now`, with `__diff`: id, interval, time, 1."""
    intervals = [
        None if lag is None else {"months": 0, "days": 0, "micros": 1000 * lag}
        for lag in lags.values()
    ]
    columns = [list(lags), intervals, [1000 * now] * len(lags), [1] * len(lags)]
    return pa.table(
        [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)],
        schema=schema,
    )


def stale_rows(rows: pa.Table, now: int, added: int, max_rows: int) -> pa.Table:
    """Return the rows to remove when `added` rows come at `now`: whole samples, oldest first."""
    rows = rows.sort_by([("occurred_at", "descending")])
    times = rows.column("occurred_at").cast(pa.int64())  # microseconds
    newest = 1000 * (now - KEPT_MS)  # of the rows to remove
    place = max(max_rows - added, 0)  # of the first row that exceeds the bound
    if place < rows.num_rows:
        newest = max(newest, times[place].as_py())
    return rows.filter(pc.less_equal(times, newest))
