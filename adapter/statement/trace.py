"""The trace of a read, for EXPLAIN ANALYZE: what was done where, and how long it took."""

from dataclasses import dataclass, field
from time import perf_counter

from foreshore.update import Timestamp


@dataclass(slots=True)
class Trace:
    """The access paths and waits of one statement's reads, in order.

    `ran` has how rows were found; `waited` are the seconds until the inputs were known at the time.
    """

    began: float = field(default_factory=perf_counter)
    ran: list[str] = field(default_factory=list)
    time: Timestamp | None = None
    waited: float = 0.0

    @property
    def seconds(self) -> float:
        """Return the time since it began, without the wait."""
        return perf_counter() - self.began - self.waited
