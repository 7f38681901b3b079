"""Failures of compaction: whether they are those of one shard, or of all."""

import duckdb

from foreshore.errors import Fenced, Unavailable, is_disk_full
from foreshore.storage.consolidate import out_of_room
from foreshore.storage.fault import DiskFull


def affects_all_shards(error: Exception) -> bool:
    """Whether a failure concerns all shards and not the data of one."""
    return isinstance(error, Fenced | Unavailable | OSError) or find_disk_full(error) is not None


def find_disk_full(error: BaseException) -> DiskFull | None:
    """Return the DiskFull error for a failure caused by a full disk, None for any other."""
    if isinstance(error, DiskFull):
        return error
    if isinstance(error, OSError) and is_disk_full(error):
        return DiskFull("a batch")
    if isinstance(error, duckdb.Error) and out_of_room(error):
        return DiskFull("what compaction spills")
    return None
