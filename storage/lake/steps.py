"""Steps between versions of a table of a lake: the files that go, and those that come."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import pyarrow as pa


class DataFile(Protocol):
    """A file of a version of a table."""

    @property
    def path(self) -> str:
        """Return its name."""
        ...

    def rows(self, names: Sequence[str]) -> pa.Table:
        """Return its rows with columns `names`, without those that are deleted. Blocks."""
        ...


@dataclass(frozen=True, slots=True)
class Step:
    """From one version of a table to a later one; `following` is the position after it.

    A position is the number of the next version.
    """

    gone: tuple[DataFile, ...]
    come: tuple[DataFile, ...]
    following: int


Key = TypeVar("Key", bound=Hashable)


def step(before: Mapping[Key, DataFile], now: Mapping[Key, DataFile], following: int) -> Step:
    """Return the step between the files of two versions."""
    gone = tuple(before[key] for key in before.keys() - now.keys())
    come = tuple(now[key] for key in now.keys() - before.keys())
    return Step(gone, come, following)
