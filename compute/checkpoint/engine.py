"""The interface of engines whose dataflows can be saved."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from foreshore.compute.checkpoint.state import Captured, Reader
from foreshore.compute.engine import ArrangementSize, Dataflow
from foreshore.compute.protocol import DataflowDescription
from foreshore.ids import GlobalId
from foreshore.types import ColumnType
from foreshore.update import Timestamp


@dataclass(frozen=True, slots=True)
class CapturedCollection:
    """A collection that dataflows share (see `manifest.SavedCollection`)."""

    id: GlobalId
    columns: tuple[ColumnType, ...]
    groups: tuple[tuple[int, ...], ...]
    upper: Timestamp
    state: Captured


@dataclass(frozen=True, slots=True)
class CapturedStrings:
    """Strings with the numbers from `begin` on and before `end`."""

    begin: int
    end: int
    state: Captured


@dataclass(frozen=True, slots=True)
class Shared:
    """The state that all dataflows of a replica share."""

    seed: int
    strings_seed: int
    strings: Sequence[CapturedStrings]
    collections: Sequence[CapturedCollection]


@runtime_checkable
class SavingEngine(Protocol):
    """An engine whose dataflows are `State`, beside what they share.

    A round of saving begins with `hold`. Then dataflows are saved, one after the other, and
    `save_shared` is called last: what it returns has all that they need.
    """

    def hold(self) -> None:
        """Keep all times readable that dataflows still read, until `release`."""
        ...

    def release(self) -> None:
        """End a round."""
        ...

    def save_shared(self, strings: int) -> Shared:
        """Return what dataflows share, of the strings only those from the number `strings` on.

        All strings are returned if there is one since the last call that has a lower number.
        """
        ...

    def load_shared(self, shared: Shared) -> None:
        """Begin with what was saved; there are no dataflows yet. Raises Mismatch."""
        ...

    def load(self, description: DataflowDescription, saved: Reader) -> Dataflow:
        """Return a dataflow in the saved state, that at its `as_of`; raises Mismatch."""
        ...

    def sizes(self) -> Iterable[ArrangementSize]:
        """Return the sizes of what dataflows share."""
        ...

    def forget_unread(self) -> None:
        """Forget what was loaded and is read by no dataflow."""
        ...
