"""The upkeep of a Delta table by the sink that writes it: few files, and a short log.

Small files are merged as they come, in tiers, so that a row is written a few times only:

    CROWDED files of less than a megabyte   are merged into files of up to a megabyte
    CROWDED files of less than 16           into files of up to 16

A commit adds a file to a partition, and CROWDED commits are between two looks. So there are at most
MOST_FILES of a tier.

Files that no version has had for the table's retention are removed from time to time. Checkpoints,
and the end of old versions of the log, are the package's at each hundredth commit.

The properties of the table say whether this is wanted; tables that a sink makes have them.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.storage.lake import delta

MERGED = "delta.autoOptimize.autoCompact"
OLD_FILES, OLD_VERSIONS = "delta.deletedFileRetentionDuration", "delta.logRetentionDuration"
TIERS = (1 << 20, 16 << 20)  # bytes
MOST_FILES = 16  # of a partition, in a tier
CROWDED = MOST_FILES // 2
MOST_PARTITIONS = 64  # that are looked after at a time
COMMITS = CROWDED  # between two looks; the first one follows the first commit
OLD_COMMITS, OLD_SECONDS = 512, 3600.0  # whichever comes first, between two removals

logger = logging.getLogger(__name__)


def kept_properties(retention_ms: int) -> dict[str, str]:
    """Return the properties of a table that its sink looks after."""
    interval = f"interval {max(retention_ms // 1000, 1)} seconds"
    return {MERGED: "true", OLD_FILES: interval, OLD_VERSIONS: interval}


class DeltaUpkeep:
    """Looks after one table, between two commits of its sink."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._commits = self._removed_at = 0
        self._removed = clock()

    def after_commit(self, table: Any) -> None:
        """Count a commit, and do what is due; blocks. What fails is logged, and tried again."""
        self._commits += 1
        if self._commits % COMMITS != 1:
            return
        try:
            properties = table.metadata().configuration
            if properties.get(MERGED) in ("true", "auto"):
                _merge(table)
            due = self._commits - self._removed_at >= OLD_COMMITS
            if OLD_FILES in properties and (due or self._clock() - self._removed >= OLD_SECONDS):
                self._removed_at, self._removed = self._commits, self._clock()
                table.vacuum(dry_run=False, full=True)
                table.update_incremental()
        except delta.package().exceptions.DeltaError as error:
            logger.warning("upkeep of a Delta table failed: %s", error)
            table.update_incremental()


def _merge(table: Any) -> None:
    """Merge small files where they are many."""
    columns = table.metadata().partition_columns
    written = delta.package().WriterProperties(compression="ZSTD")
    for size in TIERS:
        for partition in _crowded(table, columns, size):
            table.optimize.compact(
                partition_filters=partition, target_size=size, writer_properties=written
            )
            table.update_incremental()


def _crowded(
    table: Any, columns: list[str], size: int
) -> Iterator[list[tuple[str, str, Any]] | None]:
    """Yield the partitions with many files of less than a size, as filters of the package."""
    files = pa.table(table.get_add_actions(flatten=True))
    small = files.filter(pc.less(files["size_bytes"], size))
    partitions = zip(*(small[f"partition.{name}"].to_pylist() for name in columns), strict=True)
    if not columns:
        if small.num_rows >= CROWDED:
            yield None
        return
    found: Mapping[tuple[Any, ...], int] = Counter(partitions)
    most = sorted(found, key=lambda each: -found[each])[:MOST_PARTITIONS]
    for values in (each for each in most if found[each] >= CROWDED):
        texts = ("" if value is None else str(value) for value in values)
        yield [(name, "=", value) for name, value in zip(columns, texts, strict=True)]
