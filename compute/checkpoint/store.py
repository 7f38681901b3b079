"""The files of one replica's checkpoints in the blob store.

    write        captured state; large runs that were written before are not written again
    put          a manifest, by which a checkpoint is complete
    collect      delete what the newest manifest does not name
    newest       the replica's manifest, or else the newest one of another replica of the cluster
    read         captured state

All calls block. One thread at a time writes.
"""

import contextlib
import logging
import os
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import pyarrow as pa

from foreshore.compute.checkpoint.files import map_arrays, read_table, write_arrays, write_table
from foreshore.compute.checkpoint.manifest import NAME, File, Manifest, SavedState, prefix_of
from foreshore.compute.checkpoint.state import Arrays, Captured, Mismatch, arrays_of, run_of
from foreshore.compute.flow.run import Run
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
        self._run_files: WeakKeyDictionary[Run, File] = WeakKeyDictionary()
        self._written: set[str] | None = None  # keys; None: all that is there

    # --- writing

    def write(self, captured: Captured, pause: Callable[[], None] = lambda: None) -> SavedState:
        """Store captured state; `pause` is called after each file."""
        runs: dict[str, File] = {}
        for name, run in captured.runs.items():
            file = self._run_files.get(run)
            if file is None:
                file = self._put(write_arrays, arrays_of(run))
                self._run_files[run] = file
                pause()
            runs[name] = file
        tables = {name: self._put(write_table, each) for name, each in captured.tables.items()}
        arrays = self._put(write_arrays, captured.arrays)
        pause()
        return SavedState(arrays, runs, tables)

    def _put(self, write: Callable[[Path, Any], None], content: Any) -> File:
        # The name is unique among processes and restarts, as files of old manifests stay.
        name = f"{os.urandom(8).hex()}-{next(self._numbers)}.arrow"
        path = self._scratch / f"{os.getpid()}-{name}"
        try:
            write(path, content)
            size, checksum = measure(path)
            key = self._prefix + name
            self._blob.put_file(key, path)
        finally:
            path.unlink(missing_ok=True)
        if self._written is not None:
            self._written.add(key)
        reached("checkpoint.file")
        return File(key, size, checksum)

    def put(self, manifest: Manifest) -> None:
        """Store a manifest in place of the one before."""
        reached("checkpoint.files")
        self._blob.put(self._prefix + NAME, msgspec.json.encode(manifest))
        reached("checkpoint.named")

    def collect(self, manifest: Manifest) -> None:
        """Delete the files that the manifest, which was just stored, does not name."""
        named = {file.key for file in manifest.files}
        if self._written is None:  # whatever earlier processes have left
            self._written = {key for key, _ in self._blob.list(self._prefix)}
            self._written.discard(self._prefix + NAME)
        for key in self._written - named:
            self._blob.delete(key)
            self._files.forget(key)
            self._written.discard(key)
            reached("checkpoint.deleted")

    # --- reading

    def newest(self) -> Manifest | None:
        """Return the manifest to begin with, None if there is none that can be read."""
        own = self._manifest(self._prefix + NAME)
        if own is not None:
            return own
        keys = [key for key, _ in self._blob.list(self._cluster) if key.endswith(f"/{NAME}")]
        found = filter(None, map(self._manifest, keys))
        return max(found, key=lambda each: each.saved_at, default=None)

    def _manifest(self, key: str) -> Manifest | None:
        data = self._blob.get(key)
        if data is None:
            return None
        try:
            return msgspec.json.decode(data, type=Manifest)
        except msgspec.DecodeError as error:
            logger.warning("a checkpoint is not read: %s", error, extra={"blob": key})
            return None

    def read(self, saved: SavedState) -> Captured:
        """Return captured state; raises Mismatch if a file is missing or not as it was written."""
        try:
            with self._files.of(saved.files) as paths:
                found = dict(zip((file.key for file in saved.files), paths, strict=True))
                arrays = map_arrays(found[saved.arrays.key])
                runs = {name: self._run(file, found[file.key]) for name, file in saved.runs.items()}
                tables = {name: read_table(found[f.key]) for name, f in saved.tables.items()}
        except (DataCorrupted, OSError, pa.ArrowInvalid, ValueError) as error:
            raise Mismatch(str(error)) from error
        return Captured(arrays, runs, tables)

    def _run(self, file: File, path: Path) -> Run:
        run = run_of(Arrays(map_arrays(path)))
        if file.key.startswith(self._prefix):
            self._run_files[run] = file
        return run


def delete_all(blob: Blob, cluster: str, replica: str | None = None) -> None:
    """Delete the checkpoints of a cluster that was dropped, or of one of its replicas; blocks."""
    for key, _ in list(blob.list(prefix_of(cluster, replica))):
        with contextlib.suppress(FileNotFoundError):
            blob.delete(key)
