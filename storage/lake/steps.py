"""Steps between versions of a table of a lake: the files that go, and those that come."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar
from uuid import UUID

import pyarrow as pa

# How far a table was read, by parts:
VERSION = "version"  # the number of the next version
TABLE = "table"  # which table it is, as one may be dropped and made anew in its place
SNAPSHOT = "snapshot"  # the id of the snapshot of an Iceberg table; 0: it had none
COLUMNS = "columns"  # how often the relation was refreshed before it was read
Position: TypeAlias = Mapping[str, int]


class DataFile(Protocol):
    """A file of a version of a table."""

    @property
    def path(self) -> str:
        """Return its name."""
        ...

    def rows(self, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield its rows with columns `names`, without those that are deleted. Blocks."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """From one version of a table to a later one, and the position after it.

    `anew`: what was read before is of another table, and all of it goes.
    """

    gone: tuple[DataFile, ...]
    come: tuple[DataFile, ...]
    moved: Position
    anew: bool = False


Key = TypeVar("Key", bound=Hashable)


def step(before: Mapping[Key, DataFile], now: Mapping[Key, DataFile], moved: Position) -> Step:
    """Return the step between the files of two versions."""
    gone = tuple(before[key] for key in before.keys() - now.keys())
    come = tuple(now[key] for key in now.keys() - before.keys())
    return Step(gone, come, moved)


def number_of(table: UUID) -> int:
    """Return the id of a table as a number for its position, from 0 to 2^63 - 1."""
    return table.int & ((1 << 63) - 1)
