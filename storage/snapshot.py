"""Snapshots: a shard's contents as of a time, as files and the tables that are in none of them.

A snapshot names batches, which engines read themselves, and tables of updates not yet in a batch.
All updates before `upper` are in exactly one of them, at their exact times from `since` on. The
contents as of a time `t`, `since <= t < upper`, are what the updates with `__time <= t` add up to.

The files stay until the snapshot is released.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import pyarrow as pa

from foreshore.ids import GlobalId
from foreshore.update import Timestamp


@dataclass(frozen=True, slots=True)
class BatchFile:
    """A batch as engines read it: a Parquet file of updates, columns by position."""

    path: str
    lower: Timestamp
    upper: Timestamp
    since: Timestamp
    rows: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything up to `upper`; a lease on the files until `release`."""

    id: GlobalId
    schema: pa.Schema  # of the rows
    as_of: Timestamp
    upper: Timestamp
    since: Timestamp
    files: tuple[BatchFile, ...]
    tail: tuple[pa.Table, ...]
    _release: Callable[[], None] = field(compare=False, repr=False)

    def release(self) -> None:
        """Let the files be collected; again is no harm."""
        self._release()
