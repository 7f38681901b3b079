"""Garbage: files that no state names any more, until they are gone.

Who in this process still reads one is `lease.py`'s to know, and only what nobody does comes here.
Readers of the open files keep theirs with lease files, `lease_file.py`, which are looked at

    a reader     takes its lease        reads the states       reads the files that they name
    here         a state without f      looks at the leases    deletes f, if no live one holds it

in just this order, and so f stays for whoever may read it: a reader whose states name f read them
before those without f were committed, and took its lease before that. It is there when this looks,
later; and if it is found to have ended it is removed before anything is deleted, so that a lease
which is there at the end of the reading has held all the time. A reader that comes afterwards is
not led to f. A lease that is rewritten, to hold less, stays the same file: no listing misses it.

One that cannot be removed holds on, and the log says so.

What a lease holds waits here, and is looked at again each second; over a restart, the start finds
it again, as it does all that no state names.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from foreshore import blocking
from foreshore.clock import Clock
from foreshore.failpoint import reached
from foreshore.storage.blob import Blob
from foreshore.storage.fault import Determinate, Indeterminate
from foreshore.storage.lease_file import DIRECTORY, LeaseFile, find_leases, holding
from foreshore.storage.local_files import LocalFiles

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0  # between looks whether leases have ended


class Garbage:
    """Deletes the files of one environment: paths below `blob/`, of its store, and `log/`."""

    def __init__(self, data_dir: Path, blob: Blob, files: LocalFiles, clock: Clock) -> None:
        self._data_dir = data_dir
        self._blob = blob
        self._files = files
        self._clock = clock
        self._waiting: set[str] = set()
        self._complaints: set[tuple[str, str]] = set()  # made once each
        self._collecting = asyncio.Lock()
        self._held = asyncio.Event()
        self._closing = asyncio.Event()

    def prepare(self) -> None:
        """Make the place for leases, which is to be the server's; blocks."""
        try:
            (self._data_dir / DIRECTORY).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            logger.warning("no leases can be taken: %s", error)

    async def collect(self, paths: Iterable[str] = ()) -> None:
        """Delete files that no state names, for sure, and nobody reads here; and what waits.

        What a lease holds waits until it has ended.
        """
        self._waiting.update(paths)
        async with self._collecting:
            due = sorted(self._waiting)  # what comes from here on has leases that are not seen now
            if due:
                self._waiting.difference_update(await blocking.run(None, self._collect, due))
        if self._waiting:
            self._held.set()

    async def run(self) -> None:
        """See to what waits, until `close`."""
        while not self._closing.is_set():
            await self._held.wait()
            self._held.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._closing.wait()
                    return
            await self.collect()

    def close(self) -> None:
        """Let `run` end; what waits is for the next start."""
        self._closing.set()
        self._held.set()

    def _collect(self, due: list[str]) -> set[str]:
        """Delete those that no lease holds, and return them."""
        try:
            holds = holding(self._live())
        except OSError as error:
            self._complain(DIRECTORY, f"nothing is deleted: {error}")
            return set()
        free = {path for path in due if not holds(path)}
        for path in due:
            if path in free:
                self._delete(path)
        return free

    def _live(self) -> list[LeaseFile]:
        """Return the leases that are there, having removed those that have ended."""
        found = find_leases(self._data_dir)
        now = self._clock.now()
        live = []
        for lease in found:
            has_ended = not lease.lives(now)
            if has_ended and self._sweep(lease):
                continue
            live.append(lease)
            if lease.amiss is not None and not has_ended:
                why = f"it holds everything for {lease.lease_ms // 1000} s: {lease.amiss}"
                self._complain(lease.name, why)
        return live

    def _sweep(self, lease: LeaseFile) -> bool:
        """Remove a lease that has ended; return whether that was possible."""
        try:
            (self._data_dir / DIRECTORY / lease.name).unlink(missing_ok=True)
        except OSError as error:
            why = f"it has ended, cannot be removed, and holds what it held: {error.strerror}"
            self._complain(lease.name, why)
            return False
        logger.info("lease %r of %r has ended", lease.name, lease.holder)
        return True

    def _complain(self, name: str, why: str) -> None:
        if (name, why) not in self._complaints:
            self._complaints.add((name, why))
            logger.warning("lease file %r: %s", name, why)

    def _delete(self, path: str) -> None:
        area, _, key = path.partition("/")
        try:
            if area == "blob":
                self._blob.delete(key)
                reached("batch.deleted")
                self._files.forget(key)
            else:
                (self._data_dir / path).unlink(missing_ok=True)
        except (Determinate, Indeterminate, OSError) as error:
            # It stays until the next start, which finds again what no state names.
            logger.warning("file not deleted", extra={"file": path}, exc_info=error)
