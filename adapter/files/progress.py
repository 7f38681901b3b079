"""COPYs with files that run: where they may read and write, and how far each is."""

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from foreshore.blocking import Unwaited
from foreshore.ids import GlobalId
from foreshore.sql.plan import FileOptions
from foreshore.storage.lake.places import CopyPlaces

BUCKET_THREADS = 8  # of all COPYs by connections


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
