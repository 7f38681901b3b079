"""When errors in the data of a materialized view make reads of it fail, and when they are skipped.

>>> policy = ErrorPolicy(skips=True, changes=(20, 40))  # skips before 20, and from 40 on
>>> policy.first_failing(0, 60), policy.first_failing(25, 60), policy.first_failing(40, 60)
(20, 25, None)
"""

from bisect import bisect_right
from dataclasses import dataclass

from foreshore.update import Timestamp


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """Whether rows with errors are skipped at last, and the `changes`: the times it was altered."""

    skips: bool = False
    changes: tuple[Timestamp, ...] = ()

    def first_failing(self, lower: Timestamp, upper: Timestamp) -> Timestamp | None:
        """Return the first time in [lower, upper) at which errors make reads fail, or None."""
        start = lower
        for place in range(bisect_right(self.changes, lower), len(self.changes) + 1):
            end = min(self.changes[place], upper) if place < len(self.changes) else upper
            is_altered = (len(self.changes) - place) % 2 == 1
            if start < end and self.skips == is_altered:
                return start
            start = end
        return None


FAILS = ErrorPolicy()
