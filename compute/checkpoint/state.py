"""The seam of checkpoints: what a piece of state writes, and reads back.

    def save(self, to: Writer) -> None:
        to.array("sums", self._sums.copy())
        self._rows.save(to.part("rows"))

    def load(self, saved: Reader) -> None:
        self._sums = saved.array("sums")
        self._rows.load(saved.part("rows"))

State is saved between steps, while nothing is staged, and loaded into an object that was built
anew from the same plan and has no state yet. What is written must not change afterwards: arrays in
use are copied, runs are immutable and written as they are, each in a file of its own if it is large
and only once for as long as it exists. All that was written has to be read, in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import pyarrow as pa

from foreshore.compute.checkpoint.kept_file import KeptFile

LARGE = 1 << 14  # updates of a run in a file of its own


class SavedArrays(Protocol):
    """The arrays of a run that was saved, by name."""

    def array(self, name: str) -> Any:
        """Return an array; raises Mismatch."""
        ...

    def has(self, name: str) -> bool:
        """Whether there is an array."""
        ...


class SavedRun(Protocol):
    """Sorted updates that nobody changes, as checkpoints know them: arrays by name."""

    def __len__(self) -> int:
        """Return the number of updates."""
        ...

    @property
    def words(self) -> Any:
        """The rows and the hashes of their keys, a column each, some of them words of strings."""
        ...

    def arrays(self) -> dict[str, Any]:
        """Return the arrays, with those of the indexes that are there."""
        ...

    def indexes_made(self) -> int:
        """Return how many indexes `arrays` has."""
        ...

    def back(self, saved: SavedArrays) -> None:
        """Use the arrays of a file in which the run was saved, which have the same contents."""
        ...


R = TypeVar("R", bound=SavedRun)


class Mismatch(Exception):
    """A checkpoint does not fit what would be loaded from it; the message says why."""


@dataclass(frozen=True, slots=True)
class Captured:
    """Saved state: small values, arrays, large runs, tables and files, by their names.

    When it is read back, `run_arrays` has the arrays of large runs, and `made` is called with each
    run that is made of them; `restore` makes the files of `file_names` at other paths.
    """

    arrays: dict[str, Any] = field(default_factory=dict)
    runs: dict[str, SavedRun] = field(default_factory=dict)
    tables: dict[str, pa.Table] = field(default_factory=dict)
    run_arrays: dict[str, dict[str, Any]] = field(default_factory=dict)
    made: Callable[[str, SavedRun], None] = lambda name, run: None
    files: dict[str, KeptFile] = field(default_factory=dict)
    file_names: frozenset[str] = frozenset()
    restore: Callable[[str, Path], KeptFile] | None = None


class Writer:
    """Captures state under names that begin with `prefix`."""

    def __init__(
        self,
        captured: Captured | None = None,
        prefix: str = "",
        seen: set[int] | None = None,
    ) -> None:
        self.captured = Captured() if captured is None else captured
        self._prefix = prefix
        self._seen: set[int] = set() if seen is None else seen

    def part(self, name: str | int) -> Writer:
        """Return a writer for a part of the state."""
        return Writer(self.captured, f"{self._prefix}{name}.", self._seen)

    def once(self, state: object) -> bool:
        """Whether this is the first call for an object, which several others share."""
        if id(state) in self._seen:
            return False
        self._seen.add(id(state))
        return True

    def array(self, name: str, array: Any) -> None:
        """Write an array that nobody changes any more."""
        assert self._prefix + name not in self.captured.arrays, self._prefix + name
        self.captured.arrays[self._prefix + name] = array

    def numbers(self, name: str, *values: int) -> None:
        """Write integers of 64 bits."""
        self.array(name, np.array(values, np.int64))

    def text(self, name: str, text: bytes) -> None:
        """Write bytes."""
        self.array(name, np.frombuffer(text, np.uint8))

    def table(self, name: str, table: pa.Table) -> None:
        """Write a table."""
        self.captured.tables[self._prefix + name] = table

    def file(self, name: str, file: KeptFile) -> None:
        """Write a file as it is, once for as long as the object exists."""
        self.captured.files[self._prefix + name] = file

    def runs(self, name: str, runs: Sequence[SavedRun]) -> None:
        """Write runs."""
        self.numbers(f"{name}.count", len(runs))
        for number, run in enumerate(runs):
            if len(run) >= LARGE:
                self.captured.runs[f"{self._prefix}{name}.{number}"] = run
            else:
                for part, array in run.arrays().items():
                    self.array(f"{name}.{number}.{part}", array)


class Reader:
    """Gives back what was written under names that begin with `prefix`."""

    def __init__(
        self,
        saved: Captured,
        prefix: str = "",
        left: set[str] | None = None,
        seen: set[int] | None = None,
    ) -> None:
        self._saved = saved
        self._prefix = prefix
        every = (saved.arrays, saved.run_arrays, saved.tables, saved.file_names)
        self._left = set().union(*every) if left is None else left
        self._seen: set[int] = set() if seen is None else seen

    def part(self, name: str | int) -> Reader:
        """Return a reader of a part of the state."""
        return Reader(self._saved, f"{self._prefix}{name}.", self._left, self._seen)

    def once(self, state: object) -> bool:
        """Whether this is the first call for an object, which several others share."""
        if id(state) in self._seen:
            return False
        self._seen.add(id(state))
        return True

    def array(self, name: str, width: int | None = None) -> Any:
        """Return an array, which the caller may change; rows have `width` words, if given."""
        found = self._take(self._saved.arrays, name)
        if width is not None and (found.ndim != 2 or found.shape[1] != width):
            raise Mismatch(f"{self._prefix}{name} has rows of another width")
        return found

    def numbers(self, name: str) -> list[int]:
        """Return integers."""
        found: list[int] = self.array(name).tolist()
        return found

    def text(self, name: str) -> bytes:
        """Return bytes."""
        found: bytes = self.array(name).tobytes()
        return found

    def table(self, name: str) -> pa.Table:
        """Return a table."""
        return self._take(self._saved.tables, name)

    def file(self, name: str, path: Path) -> KeptFile:
        """Let `path` be a file that was written, and return it."""
        name = self._prefix + name
        if name not in self._saved.file_names or self._saved.restore is None:
            raise Mismatch(f"{name} is not there")
        self._left.discard(name)
        return self._saved.restore(name, path)

    def runs(self, name: str, make: Callable[[SavedArrays], R]) -> tuple[R, ...]:
        """Return runs, each of which `make` makes of its arrays."""
        (count,) = self.numbers(f"{name}.count")
        found = []
        for number in range(count):
            whole = f"{name}.{number}"
            if self._prefix + whole in self._saved.run_arrays:
                run = make(Arrays(self._take(self._saved.run_arrays, whole)))
                self._saved.made(self._prefix + whole, run)
            else:
                run = make(_Parts(self, whole))
            found.append(run)
        return tuple(found)

    def has(self, name: str) -> bool:
        """Whether an array was written."""
        return self._prefix + name in self._saved.arrays

    def check_all_read(self) -> None:
        """Raise Mismatch if something was written that nobody has read."""
        if self._left:
            raise Mismatch(f"{min(self._left)} belongs to nothing")

    def _take(self, saved: Mapping[str, Any], name: str) -> Any:
        name = self._prefix + name
        if name not in saved:
            raise Mismatch(f"{name} is not there")
        self._left.discard(name)
        return saved[name]


@runtime_checkable
class State(Protocol):
    """Something that is saved."""

    def save(self, to: Writer) -> None:
        """Write the state."""
        ...

    def load(self, saved: Reader) -> None:
        """Take the state over that `save` has written; raises Mismatch."""
        ...


@dataclass(frozen=True, slots=True)
class _Parts:
    """The arrays of a small run."""

    reader: Reader
    name: str

    def array(self, name: str) -> Any:
        return self.reader.array(f"{self.name}.{name}")

    def has(self, name: str) -> bool:
        return self.reader.has(f"{self.name}.{name}")


@dataclass(frozen=True, slots=True)
class Arrays:
    """The arrays of a large run, by name."""

    arrays: Mapping[str, Any]

    def array(self, name: str) -> Any:
        """Return an array; raises Mismatch."""
        if name not in self.arrays:
            raise Mismatch(f"a run has no {name}")
        return self.arrays[name]

    def has(self, name: str) -> bool:
        """Whether there is an array."""
        return name in self.arrays
