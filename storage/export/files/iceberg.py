"""Writes the changes of an interval to an Iceberg table, in one commit with the frontier.

The frontier is a property of the commit's snapshot, `foreshore.frontier.<sink>`, and of the table,
where it outlives snapshots that expire. A table that was replaced or rolled back keeps the property
without the rows: so it does not count while its snapshot is there, and the newest does not follow.

A commit needs the snapshot that it was made on to be the newest one still. So of two exporters that
write from one frontier one fails; and so does a commit that was thought lost, and arrives after the
next one.

    conflict        nothing was committed, unless a client has repeated a commit whose answer got
                    lost: look for the frontier, before the package removes the commit's files
    no answer       it may have been committed, or may be yet: look for the frontier
"""

import logging
import tempfile
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from foreshore import blocking
from foreshore.errors import DatabaseError, ObjectInUse
from foreshore.sinks.errors import TargetLost
from foreshore.sinks.places import IcebergTarget
from foreshore.storage.export.files.iceberg_change import (
    CROWDED,
    FILE_BYTES,
    IcebergChange,
    check_writable,
)
from foreshore.storage.export.files.iceberg_upkeep import IcebergUpkeep
from foreshore.storage.export.files.spool import spooled
from foreshore.storage.export.messages import Export
from foreshore.storage.external.iceberg import catalog_of, errors
from foreshore.update import Timestamp

logger = logging.getLogger(__name__)

COMMITS = CROWDED  # between two looks for small files that an interval has added
MERGED = "foreshore.merged"  # a property of a snapshot that merges files: which attempt it was
ATTEMPTS = 5  # of a commit that conflicts with those of other writers


class IcebergExporter:
    """Writes to one table of a catalog."""

    def __init__(self, export: Export) -> None:
        assert isinstance(export.spec.target, IcebergTarget), export
        self._export = export
        self._of = export.spec.target.of
        self._catalog: Any = None
        self._property = f"foreshore.frontier.{export.name}"
        self._reached: Timestamp | None = None  # the frontier that the table must have
        self._upkeep = IcebergUpkeep()
        self._commits = 0

    async def resume(self) -> Timestamp | None:
        """Reach the catalog, and return the frontier."""
        return await blocking.run(None, self._resume)

    async def write(
        self, parts: AsyncIterator[pa.Table], lower: Timestamp, upper: Timestamp
    ) -> None:
        """Write an interval and its end in one commit."""
        with tempfile.TemporaryDirectory(prefix="foreshore-sink-") as scratch:
            file = Path(scratch, "updates.parquet")
            rows = await spooled(self._export, parts, file)
            await blocking.run(None, lambda: self._commit(file if rows else None, lower, upper))

    async def close(self) -> None:
        """Let go of the catalog."""
        self._catalog = None

    # --- on threads ----------------------------------------------------------------------------

    def _resume(self) -> Timestamp | None:
        self._catalog = catalog_of(self._of, self._export.accesses)
        self._reached = self._frontier(self._table())
        return self._reached

    def _table(self) -> Any:
        """Return the newest version of the table."""
        with errors():
            table = self._catalog.load_table(self._of.identifier)
        check_writable(table)
        # Ours only: each attempt has to look at the frontier, so the package must not repeat any.
        ours = {"commit.retry.num-retries": "0", "write.target-file-size-bytes": str(FILE_BYTES)}
        properties = {**table.metadata.properties, **ours}
        table.metadata = table.metadata.model_copy(update={"properties": properties})
        return table

    def _frontier(self, table: Any) -> Timestamp | None:
        """Return the frontier of the newest snapshot, or of the one before it that has one.

        If that has expired, it is the one of the table.
        """
        snapshot = table.current_snapshot()
        if snapshot is None:
            return None
        while snapshot is not None:
            if (said := self._said(snapshot)) is not None:
                return said
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else table.snapshot_by_id(parent)
        last = table.metadata.properties.get(self._property)
        if last is None or int(last) in map(self._said, table.snapshots()):
            return None
        return int(last)

    def _said(self, snapshot: Any) -> Timestamp | None:
        """Return the frontier that a snapshot has."""
        if snapshot.summary is None:
            return None
        said = snapshot.summary.additional_properties.get(self._property)
        return None if said is None else int(said)

    def _commit(self, file: Path | None, lower: Timestamp, upper: Timestamp) -> None:
        """Commit an interval, whose updates are in a file; raises if it is not certain."""
        from pyiceberg.exceptions import CommitFailedException

        for _ in range(ATTEMPTS):
            table = self._table()
            self._check_frontier(table, lower)
            with errors():
                change = IcebergChange(table, self._export)
                try:
                    change.prepare(file)
                except BaseException:
                    change.abandon()
                    raise
                try:
                    said = {self._property: str(upper)}
                    change.commit(said, lambda: self._has_come_to(upper))
                except CommitFailedException:
                    change.abandon()  # a conflict: nothing was committed
                    continue
                except Exception:
                    if not self._has_come_to(upper):
                        raise
                self._reached = upper
            self._commits += 1
            if self._export.spec.envelope == "append" and self._commits % COMMITS == 1:
                self._merge(upper)
            self._upkeep.after_commit(self._table)
            return
        raise DatabaseError(
            f"other writers changed the Iceberg table during {ATTEMPTS} attempts to commit",
            sqlstate="40001",
        )

    def _merge(self, upper: Timestamp) -> None:
        """Merge small files by a commit of its own; if that fails it is done later."""
        from pyiceberg.exceptions import CommitFailedException

        mark = uuid.uuid4().hex
        try:
            with errors():
                change = IcebergChange(self._table(), self._export)
                try:
                    if not change.prepare_merge():
                        return
                except BaseException:
                    change.abandon()
                    raise
                said = {self._property: str(upper), MERGED: mark}
                try:
                    change.commit(said, lambda: self._has_merged(mark), merges=True)
                except CommitFailedException:
                    change.abandon()
        except DatabaseError as error:
            logger.warning("files of an Iceberg table were not merged: %s", error)

    def _has_merged(self, mark: str) -> bool:
        """Return whether a merge was committed."""
        summaries = [each.summary for each in self._table().snapshots()]
        return any(
            each is not None and each.additional_properties.get(MERGED) == mark
            for each in summaries
        )

    def _has_come_to(self, upper: Timestamp) -> bool:
        return self._frontier(self._table()) == upper

    def _check_frontier(self, table: Any, lower: Timestamp) -> None:
        """Raise unless a table is as it was left here, but for the rows of other programs."""
        frontier = self._frontier(table)
        if frontier is None and self._reached is not None:
            raise TargetLost(
                "the Iceberg table has lost how far the sink has come",
                detail="It was made anew, or rolled back to before the sink began.",
                hint="Drop the sink and create it anew.",
            )
        if frontier != self._reached or frontier not in (None, lower):
            raise ObjectInUse("another exporter writes for this sink")
