"""The upkeep of an Iceberg table by the sink that writes it: old snapshots expire.

Small files, deletes and manifests are merged in the commits themselves (`iceberg_change.py`,
`iceberg_snapshot.py`). Here snapshots go that are older than the table's property says, or beyond
`MOST_SNAPSHOTS`, as each commit writes all of them into the table's metadata. The files go with
them that only they had:

    manifests that the oldest snapshot which is kept does not have
    data files and files of deletes that a snapshot has removed, up to that one

History is a line: what a snapshot has removed does not come back in a later one. So tables with
branches or tags are left alone. What a kill leaves here is for a removal of orphan files.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from foreshore.errors import DatabaseError
from foreshore.storage.external.iceberg import errors

MAX_AGE, OLD_METADATA = (
    "history.expire.max-snapshot-age-ms",
    "write.metadata.delete-after-commit.enabled",
)
MOST_SNAPSHOTS = 1000  # that are kept, whatever their age
COMMITS = 64  # between two looks
MOST_EXPIRED = 256  # at a time

logger = logging.getLogger(__name__)


def kept_properties(retention_ms: int) -> dict[str, str]:
    """Return the properties of a table that its sink looks after."""
    return {MAX_AGE: str(retention_ms), OLD_METADATA: "true"}


class IcebergUpkeep:
    """Looks after one table, between two commits of its sink."""

    def __init__(self, clock_ms: Callable[[], int] = lambda: int(time.time() * 1000)) -> None:
        self._clock_ms = clock_ms
        self._commits = 0

    def after_commit(self, table: Callable[[], Any]) -> None:
        """Count a commit, and do what is due; blocks. What fails is logged, and tried again."""
        self._commits += 1
        if self._commits % COMMITS:
            return
        try:
            with errors():
                _expire(table(), self._clock_ms())
        except DatabaseError as error:
            logger.warning("snapshots of an Iceberg table do not expire: %s", error.message)


def _expire(table: Any, now_ms: int) -> None:
    """Let old snapshots expire, and remove the files that only they had."""
    metadata = table.metadata
    age = metadata.properties.get(MAX_AGE)
    if age is None or set(metadata.refs) != {"main"}:
        return
    line = list(_line(table))
    kept = [each for each in line[:MOST_SNAPSHOTS] if each.timestamp_ms >= now_ms - int(age)]
    kept = kept or line[:1]
    expired = line[len(kept) :][-MOST_EXPIRED:]  # the oldest first
    if not expired:
        return
    oldest = line[len(line) - len(expired) - 1]
    files = list(_garbage(table, expired, oldest))
    table.maintenance.expire_snapshots().by_ids([each.snapshot_id for each in expired]).commit()
    for path in files:
        with suppress(OSError):  # it may have gone in an attempt before
            table.io.delete(path)


def _line(table: Any) -> Iterator[Any]:
    """Yield the snapshots that led to the current one, newest first."""
    by_id = {each.snapshot_id: each for each in table.snapshots()}
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        snapshot = by_id.get(snapshot.parent_snapshot_id)


def _garbage(table: Any, expired: Sequence[Any], oldest: Any) -> Iterator[str]:
    """Yield the files that expired snapshots have, and `oldest`, which is kept, has not."""
    kept = {each.manifest_path for each in oldest.manifests(table.io)}
    gone = {each.snapshot_id for each in (*expired, oldest)}
    seen: set[str] = set()
    for snapshot in (*expired, oldest):
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in seen or manifest.added_snapshot_id not in gone:
                continue
            seen.add(manifest.manifest_path)
            yield from _removed(table, manifest, gone)
        if snapshot is not oldest:
            yield snapshot.manifest_list
    everywhere = {each.manifest_path for old in expired for each in old.manifests(table.io)}
    yield from everywhere - kept


def _removed(table: Any, manifest: Any, gone: set[int]) -> Iterator[str]:
    """Yield the files that a manifest says were removed by one of some snapshots."""
    from pyiceberg.manifest import ManifestEntryStatus

    if manifest.deleted_files_count == 0:
        return
    for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=False):
        if entry.status == ManifestEntryStatus.DELETED and entry.snapshot_id in gone:
            yield entry.data_file.file_path
