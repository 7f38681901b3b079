"""Garbage: deletes files that no state names any more.

`lease.py` knows which files readers in this process use; files come here only when it has released
them. Other processes that read the open files protect them with lease files (`lease_file.py`). The
order of steps keeps a file f that such a reader may read:

    a reader      takes its lease        reads the states       reads the files that they name
    collection    a state without f      checks the leases      deletes f unless a lease holds it

A reader whose states name f read them before the states without f were committed, and took its
lease before that. So its lease exists when collection checks, later. A lease that has ended is
removed before anything is deleted, so a lease that still exists when the reader is done was valid
all the time. A later reader does not see f named. A lease is narrowed in place, by rewriting the
same file, so no directory listing misses it.

A lease file that cannot be removed stays in force, and this is logged.

Files under a lease are checked again every second. After a restart they are found again, as all
files that no state names.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from foreshore import blocking
from foreshore.clock import Clock
from foreshore.failpoint import reached
from foreshore.storage.blob import Blob
from foreshore.storage.fault import Determinate, Indeterminate
from foreshore.storage.lease_file import DIRECTORY, LeaseFile, find_leases, holding
from foreshore.storage.local_files import LocalFiles
from foreshore.upkeep import goes_on

logger = logging.getLogger(__name__)

LOOK_SECONDS = 1.0  # between checks for ended leases


class Garbage:
    """Deletes the files of one environment. Paths begin with `blob/` or `log/`."""

    def __init__(
        self,
        data_dir: Path,
        blob: Blob,
        files: LocalFiles,
        clock: Clock,
        check_owner: Callable[[], None] = lambda: None,
    ) -> None:
        """`check_owner` raises Fenced if another environment owns the blob store; it blocks."""
        self._data_dir = data_dir
        self.check_owner = check_owner
        self._blob = blob
        self._files = files
        self._clock = clock
        self._waiting: set[str] = set()
        self._complaints: set[tuple[str, str]] = set()  # logged once each
        self._collecting = asyncio.Lock()
        self._held = asyncio.Event()
        self._closing = asyncio.Event()

    def prepare(self) -> None:
        """Create the directory for leases, owned by the server's user; blocks."""
        try:
            (self._data_dir / DIRECTORY).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            logger.warning("no leases can be taken: %s", error)

    async def collect(self, paths: Iterable[str] = ()) -> None:
        """Delete files that surely have no state and no reader, and those waiting.

        Files under a lease wait until it has ended.
        """
        self._waiting.update(paths)
        async with self._collecting:
            due = sorted(self._waiting)  # files added later may have leases not seen here
            if due:
                self._waiting.difference_update(await blocking.run(None, self._collect, due))
        if self._waiting:
            self._held.set()
        else:
            self._held.clear()

    async def run(self) -> None:
        """Retry waiting files until `close`."""
        while not self._closing.is_set():
            await self._held.wait()
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._closing.wait()
                    return
            await goes_on(self.collect, "files that nobody needs are not deleted yet")

    def close(self) -> None:
        """Let `run` end; the next start finds waiting files again."""
        self._closing.set()
        self._held.set()

    def _collect(self, due: list[str]) -> set[str]:
        """Delete the files that no lease holds, and return them."""
        try:
            holds = holding(self._live())
        except OSError as error:
            self._complain(DIRECTORY, f"nothing is deleted: {error}")
            return set()
        free = {path for path in due if not holds(path)}
        if any(path.startswith("blob/") for path in free):
            try:
                self.check_owner()
            except (Determinate, Indeterminate) as error:
                self._complain("blob/", f"nothing is deleted: {error}")
                return set()
        for path in due:
            if path in free:
                self._delete(path)
        return free

    def _live(self) -> list[LeaseFile]:
        """Return the live leases, after removing those that have ended."""
        found = find_leases(self._data_dir)
        now = self._clock.now()
        live = []
        for lease in found:
            has_ended = not lease.lives(now)
            if has_ended and self._sweep(lease):
                continue
            live.append(lease)
            if lease.problem is not None and not has_ended:
                why = f"it holds everything for {lease.lease_ms // 1000} s: {lease.problem}"
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
            # The next start finds it again, as a file that no state names.
            logger.warning("file not deleted", extra={"file": path}, exc_info=error)
