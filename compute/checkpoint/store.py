"""The files of one replica's checkpoints in the blob store.

    write        captured state; large runs that were written before are not written again
    put          a manifest, by which a checkpoint is complete
    collect      delete what the newest manifest does not name
    map_runs     let runs that are in files be read from there, and free their memory
    newest       the replica's manifest, or else the newest one of another replica of the cluster
    read         captured state

All calls block. One thread at a time writes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import msgspec
import pyarrow as pa

from foreshore.compute.checkpoint.files import map_arrays, read_table, write_arrays, write_table
from foreshore.compute.checkpoint.kept_file import KeptFile, link_or_copy
from foreshore.compute.checkpoint.manifest import (
    DIRECTORY,
    NAME,
    File,
    Manifest,
    SavedState,
    prefix_of,
)
from foreshore.compute.checkpoint.state import Arrays, Captured, Mismatch, SavedRun
from foreshore.compute.protocol import CheckpointStatus
from foreshore.errors import DataCorrupted
from foreshore.failpoint import reached
from foreshore.storage.blob import Blob
from foreshore.storage.local_files import LocalFiles, measure

logger = logging.getLogger(__name__)


class CheckpointStore:
    """The checkpoints of the replica `replica` of a cluster; files are made in `scratch`."""

    def __init__(
        self, blob: Blob, files: LocalFiles, scratch: Path, cluster: str, replica: str
    ) -> None:
        self._blob = blob
        self._files = files
        self._scratch = scratch
        self._cluster = prefix_of(cluster)
        self._prefix = prefix_of(cluster, replica)
        self._numbers = count()
        # With the number of indexes that were written.
        self._run_files: WeakKeyDictionary[SavedRun, tuple[File, int]] = WeakKeyDictionary()
        self._kept_files: WeakKeyDictionary[KeptFile, File] = WeakKeyDictionary()
        self._mapped: WeakSet[SavedRun] = WeakSet()  # that are read from their files
        self._written: set[str] | None = None  # keys; None: all that is there
        self._kept: set[str] | None = None  # keys not to be deleted yet; None: all

    # --- writing

    def write(self, captured: Captured, pause: Callable[[], None] = lambda: None) -> SavedState:
        """Store captured state; `pause` is called after each file."""
        runs: dict[str, File] = {}
        for name, run in captured.runs.items():
            file, indexes = self._run_files.get(run, (None, 0))
            if file is None or not self._is_kept(file) or indexes < run.indexes_made():
                indexes = run.indexes_made()
                file = self._put(write_arrays, run.arrays())
                self._run_files[run] = file, indexes
                pause()
            runs[name] = file
        tables = {name: self._put(write_table, each) for name, each in captured.tables.items()}
        kept = {name: self._stored(each, pause) for name, each in captured.files.items()}
        arrays = self._put(write_arrays, captured.arrays)
        pause()
        return SavedState(arrays, runs, tables, kept)

    def _stored(self, kept: KeptFile, pause: Callable[[], None]) -> File:
        file = self._kept_files.get(kept)
        if file is None or not self._is_kept(file):
            file = self._kept_files[kept] = self._put(link_or_copy, kept.path, kept.path.suffix)
            pause()
        return file

    def _put(
        self, write: Callable[[Path, Any], None], content: Any, suffix: str = ".arrow"
    ) -> File:
        # The name is unique among processes and restarts, as files of old manifests stay.
        name = f"{os.urandom(8).hex()}-{next(self._numbers)}{suffix}"
        path = self._scratch / f"{os.getpid()}-{name}"
        try:
            write(path, content)
            size, checksum = measure(path)
            key = self._prefix + name
            self._blob.put_file(key, path)
        finally:
            path.unlink(missing_ok=True)
        for keys in (self._written, self._kept):
            if keys is not None:
                keys.add(key)
        reached("checkpoint.file")
        return File(key, size, checksum)

    def _is_kept(self, file: File) -> bool:
        return self._kept is None or file.key in self._kept

    def put(self, manifest: Manifest) -> None:
        """Store a manifest in place of the one before."""
        reached("checkpoint.files")
        self._blob.put(self._prefix + NAME, msgspec.json.encode(manifest))
        reached("checkpoint.named")

    def collect(self, manifest: Manifest) -> None:
        """Delete the files that the manifest, which was just stored, does not name."""
        named = {file.key for file in manifest.files}
        self._kept = set(named)  # before any is deleted, as that may fail halfway
        if self._written is None:  # whatever earlier processes have left
            self._written = {key for key, _ in self._blob.list(self._prefix)}
            self._written.discard(self._prefix + NAME)
        for key in self._written - named:
            self._blob.delete(key)
            self._files.forget(key)
            self._written.discard(key)
            reached("checkpoint.deleted")

    def map_runs(self) -> None:
        """Let runs that were written be read from their files, which can be more than memory.

        The system reads what is needed, and drops it when memory is needed for others.
        """
        for run, (file, indexes) in list(self._run_files.items()):
            if run in self._mapped or not self._is_kept(file) or indexes < run.indexes_made():
                continue
            with self._files.of([file]) as (path,):
                run.back(Arrays(map_arrays(path, changeable=False)))
            self._mapped.add(run)

    # --- reading

    def newest(self) -> Manifest | None:
        """Return the manifest to begin with, None if there is none that can be read."""
        own = self._manifest(self._prefix + NAME)
        if own is not None:
            return own
        keys = [key for key, _ in self._blob.list(self._cluster) if key.endswith(f"/{NAME}")]
        found = filter(None, map(self._manifest, keys))
        return max(found, key=lambda each: each.saved_at, default=None)

    def owns(self, manifest: Manifest) -> bool:
        """Whether a manifest is of this replica."""
        return all(file.key.startswith(self._prefix) for file in manifest.files)

    def _manifest(self, key: str) -> Manifest | None:
        return _manifest_at(self._blob, key)

    def read(self, saved: SavedState) -> Captured:
        """Return captured state; raises Mismatch if a file is missing or not as it was written."""
        try:
            with self._files.of(saved.files) as paths:
                found = dict(zip((file.key for file in saved.files), paths, strict=True))
                arrays = map_arrays(found[saved.arrays.key])
                runs = {
                    name: map_arrays(found[file.key], changeable=False)
                    for name, file in saved.runs.items()
                }
                tables = {name: read_table(found[f.key]) for name, f in saved.tables.items()}
        except (DataCorrupted, OSError, pa.ArrowInvalid, ValueError) as error:
            raise Mismatch(str(error)) from error

        def made(name: str, run: SavedRun) -> None:
            file = saved.runs[name]
            if file.key.startswith(self._prefix):
                self._run_files[run] = file, run.indexes_made()
                self._mapped.add(run)

        def restore(name: str, path: Path) -> KeptFile:
            file = saved.kept[name]
            try:
                with self._files.of([file]) as (stored,):
                    link_or_copy(path, stored)
            except (DataCorrupted, OSError) as error:
                raise Mismatch(str(error)) from error
            kept = KeptFile(path)
            if file.key.startswith(self._prefix):
                self._kept_files[kept] = file
            return kept

        names = frozenset(saved.kept)
        return Captured(arrays, {}, tables, runs, made, file_names=names, restore=restore)


def _manifest_at(blob: Blob, key: str) -> Manifest | None:
    data = blob.get(key)
    if data is None:
        return None
    try:
        return msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        logger.warning("a checkpoint is not read: %s", error, extra={"blob": key})
        return None


def saved_dataflows(blob: Blob, database: str) -> dict[str, tuple[CheckpointStatus, ...]]:
    """Return the dataflows of all checkpoints that fit, by the prefix of their replica; blocks."""
    found = {}
    for key, _ in blob.list(f"{DIRECTORY}/"):
        prefix, _, name = key.rpartition("/")
        manifest = _manifest_at(blob, key) if name == NAME else None
        if manifest is not None and manifest.unfit(database) is None:
            found[f"{prefix}/"] = manifest.status()
    return found
