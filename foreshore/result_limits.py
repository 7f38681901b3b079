"""The limits of what queries read, keep and return: those of the session, and of superusers.

`max_query_result_size` is the session's own. `max_result_size` and `max_result_rows` are set for a
role, a database or the system, so a session cannot exceed them.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from foreshore.errors import DatabaseError, Unavailable
from foreshore.sizes import bytes_of, shown

_bytes = lru_cache(64)(bytes_of)


class ResultTooLarge(Unavailable):
    """A query has a larger result than the session allows."""

    sqlstate = "53200"

    def __init__(self, most: int, unit: str = "") -> None:
        limit = f"{most} {unit}" if unit else f"size of {shown(most)}"
        super().__init__(
            f"result exceeds max {limit}",
            hint="Ask for fewer rows or columns, or raise max_query_result_size, max_result_size or"
            " max_result_rows.",
        )


class ScanTooLarge(Unavailable):
    """A query would read more than its role may."""

    sqlstate = "53400"

    def __init__(self, size: int, most: int) -> None:
        super().__init__(
            f"query would read about {shown(size)}, which exceeds max_scan_size ({shown(most)})",
            hint="Name keys, read an indexed view, or ask for a higher limit of the role.",
        )


class ResultLimits(NamedTuple):
    """The most bytes and rows of a result; 0 is any number."""

    most_bytes: int = 0
    most_rows: int = 0

    def check(self, size: int, rows: int) -> DatabaseError | None:
        """Return the error of a result that has become too large."""
        if self.most_bytes and size > self.most_bytes:
            return ResultTooLarge(self.most_bytes)
        if self.most_rows and rows > self.most_rows:
            return ResultTooLarge(self.most_rows, "rows")
        return None


NO_LIMITS = ResultLimits()


def result_limits(variables: Mapping[str, str]) -> ResultLimits:
    """Return the limits of a query's result in a session."""
    own, most = variables["max_query_result_size"], variables["max_result_size"]
    rows = variables["max_result_rows"]
    if own == most == rows == "0":
        return NO_LIMITS
    sizes = [_bytes(each) for each in (own, most) if each != "0"]
    return ResultLimits(min(sizes, default=0), int(rows))


def memory_limit(variables: Mapping[str, str]) -> int | None:
    """Return the most bytes of memory that a query may take, None if nothing was said."""
    most = variables["max_query_memory"]
    return None if most == "0" else _bytes(most)


def is_unlimited(variables: Mapping[str, str]) -> bool:
    """Return whether a session's queries may read and return anything."""
    return result_limits(variables) == NO_LIMITS and variables["max_scan_size"] == "0"
