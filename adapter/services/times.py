"""Times: the oracle, what is held, and the times at which a collection can be read."""

from typing import Protocol

from foreshore.adapter.transaction.timestamp_selection import Interval
from foreshore.clock import Clock
from foreshore.ids import GlobalId
from foreshore.storage.oracle import TimestampOracle
from foreshore.storage.read_holds import ReadHolds
from foreshore.update import Timestamp


class Times(Protocol):
    """The times of the environment and of its collections."""

    @property
    def clock(self) -> Clock:
        """The wall clock."""

    @property
    def oracle(self) -> TimestampOracle:
        """Gives the times of reads and of writes."""

    @property
    def holds(self) -> ReadHolds:
        """What keeps the history of collections."""

    def interval(self, id: GlobalId) -> Interval:
        """Return the times at which a shard or an index can be read."""

    def since(self, id: GlobalId) -> Timestamp:
        """Return the time from which a collection can be read with its present definition."""

    def upper(self, id: GlobalId) -> Timestamp:
        """Return the time before which a shard or an index is known."""

    async def wait_readable(self, id: GlobalId, time: Timestamp) -> None:
        """Wait until a shard or an index can be read at `time`; raises the error if it cannot."""
