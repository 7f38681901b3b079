"""Refresh schedules: the times at which a materialized view is brought up to date.

A view with a schedule equals, at every time, its query as of the last refresh at or before that
time; before the first it equals the query as of its creation. So its contents are a function of
time alone, like those of every other view: they can be read at any time that has passed without
waiting for the next refresh, and two readers at one time see the same.

Times are milliseconds since 1970.
"""

from typing import Literal as OneOf

import msgspec
import numpy as np

from foreshore.update import Timestamp

NEVER: Timestamp = 1 << 61  # beyond all times of refreshes

RefreshPolicy = OneOf["auto", "incremental", "full"]


class Refresh(msgspec.Struct, frozen=True):
    """The schedule of a view: at `aligned_to` and every `every_ms` before and after, and at `at`.

    With `is_lag` it was given as a target lag, which is aligned to 1970, so that views with the
    same lag are refreshed together; without `every_ms` that is DOWNSTREAM, and the refreshes of the
    views that read this one are added to `at` as they come near.

    With the `policy` full, the view is computed anew at each refresh and takes no memory in
    between; with incremental the changes since the last one are applied, with auto one or the
    other, as it costs less.
    """

    every_ms: int | None = None
    aligned_to: Timestamp = 0
    at: tuple[Timestamp, ...] = ()
    is_lag: bool = False
    policy: RefreshPolicy = "incremental"

    @property
    def is_downstream(self) -> bool:
        """Whether the view is refreshed when those that read it are."""
        return self.is_lag and self.every_ms is None

    def upcoming(self, time: Timestamp, until: Timestamp, most: int) -> list[Timestamp]:
        """Return the first refresh at or after `time`, and those before `until`, up to `most`."""
        found: list[Timestamp] = []
        while len(found) < most and (time < until or not found):
            time = self.at_or_after(time)
            if time == NEVER or (found and time >= until):
                break
            found.append(time)
            time += 1
        return found

    def at_or_after(self, time: Timestamp) -> Timestamp:
        """Return the first refresh at or after `time`, NEVER if there is none."""
        found = min((at for at in self.at if at >= time), default=NEVER)
        if self.every_ms is not None:
            found = min(found, time + (self.aligned_to - time) % self.every_ms)
        return found

    def at_or_before(self, time: Timestamp) -> Timestamp:
        """Return the last refresh at or before `time`, -1 if there is none."""
        found = max((at for at in self.at if at <= time), default=-1)
        if self.every_ms is not None:
            found = max(found, time - (time - self.aligned_to) % self.every_ms)
        return found

    def round_up(self, times: np.ndarray) -> np.ndarray:
        """Return for each time the first refresh at or after it."""
        found = np.full(len(times), NEVER, np.int64)
        if self.at:
            at = np.array(sorted(self.at), np.int64)
            places = np.searchsorted(at, times)
            found = np.append(at, NEVER)[places]
        if self.every_ms is not None:
            found = np.minimum(found, times + (self.aligned_to - times) % self.every_ms)
        return found

    def and_at(self, time: Timestamp, since: Timestamp) -> "Refresh":
        """Return the schedule with one more refresh; single ones before `since` are forgotten."""
        return msgspec.structs.replace(self, at=(*(at for at in self.at if at >= since), time))
