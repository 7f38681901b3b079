"""COPYs with files that run: where they may read and write, and how far each is."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from foreshore.ids import GlobalId
from foreshore.storage.lake.places import CopyPlaces


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

    @contextmanager
    def shown(self, pid: int, progress: Progress) -> Iterator[Progress]:
        """Show a COPY for the length of a block."""
        self.running[pid] = progress
        try:
            yield progress
        finally:
            del self.running[pid]
