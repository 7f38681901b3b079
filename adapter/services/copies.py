"""COPYs with files that run: where they may read and write, and how far each is."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from foreshore.blocking import Unwaited
from foreshore.ids import GlobalId
from foreshore.sql.plan import FileOptions
from foreshore.storage.lake.places import CopyPlaces
from foreshore.upkeep import goes_on

BUCKET_THREADS = 8  # of all COPYs by connections
END_SECONDS = 5.0  # for the steps of cancelled COPYs, at the end


@dataclass(slots=True)
class Progress:
    """How far a COPY is."""

    command: Literal["COPY FROM", "COPY TO"]
    database: str
    relation: GlobalId | None  # None: a query
    bytes: int = 0
    rows: int = 0


@dataclass(slots=True)
class Copies:
    """The COPYs with files of an environment, by the pid of their session."""

    places: CopyPlaces = field(default_factory=CopyPlaces)
    running: dict[int, Progress] = field(default_factory=dict)
    _ending: set[asyncio.Task[bool]] = field(default_factory=set)
    _buckets: Executor = field(default_factory=lambda: Unwaited(BUCKET_THREADS, "bucket"))

    def threads(self, options: FileOptions) -> Executor | None:
        """Return the threads of a COPY, None for the loop's.

        A bucket of a user's connection has some for itself: it may not answer for a long time.
        """
        return None if options.aws is None else self._buckets

    @contextmanager
    def shown(self, pid: int, progress: Progress) -> Iterator[Progress]:
        """Show a COPY for the length of a block."""
        self.running[pid] = progress
        try:
            yield progress
        finally:
            del self.running[pid]

    def end_soon(self, end: Callable[[], Awaitable[None]]) -> None:
        """Let a cancelled COPY free what it holds once its step has ended; nobody waits for it."""
        work = goes_on(end, "what a cancelled COPY held is not freed")
        task = asyncio.get_running_loop().create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        """Wait for cancelled COPYs, and leave those whose step does not end in time."""
        if self._ending:
            _, left = await asyncio.wait(self._ending, timeout=END_SECONDS)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
