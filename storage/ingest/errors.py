"""The rows of SOURCE_errors."""

import time
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from foreshore.update import DIFF


class Unreadable(NamedTuple):
    """What could not be read: a part at an offset, and why; perhaps the data."""

    part: str
    offset: int
    error: str
    data: bytes | None = None
    output: str | None = None  # the reference of the output that it was for


def error_rows(found: Sequence[Unreadable]) -> pa.Table:
    """Return the rows of the output ERRORS, read now, with `__diff`."""
    size, now = len(found), int(time.time() * 1_000_000)
    return pa.table(
        {
            "part": pa.array([each.part for each in found], pa.string()),
            "offset": pa.array([each.offset for each in found], pa.int64()),
            "output": pa.array([each.output for each in found], pa.string()),
            "error": pa.array([each.error for each in found], pa.string()),
            "data": pa.array([each.data for each in found], pa.binary()),
            "read_at": pa.array([now] * size, pa.timestamp("us", "UTC")),
            DIFF: pa.array([1] * size, pa.int64()),
        }
    )
