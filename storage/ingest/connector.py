"""Connectors: what reads one kind of external system.

A connector yields batches. Each has what follows the position of the one before, and is repeated,
perhaps cut differently, if the process ends before it is committed.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from foreshore.storage.external.access import Accesses
from foreshore.storage.ingest.messages import Discovered, OutputRelation, SlotState

Position: TypeAlias = Mapping[str, int]  # the next offset of each part that was read


@dataclass(frozen=True, slots=True)
class Batch:
    """Updates of outputs by reference (rows with `__diff`), and the position that follows them.

    `moved` has the parts whose position changes. All of a batch becomes visible at one time. One
    without rows that moves nothing says that the system was reached and has nothing to tell yet.
    """

    rows: Mapping[str, pa.Table]
    moved: Position

    def __post_init__(self) -> None:
        assert self.moved or not self.rows, "rows without a position would be repeated"


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of the batch that comes next, of which memory should not hold all.

    The rows of `anew` in earlier parts of that batch do not count any more.
    """

    rows: Mapping[str, pa.Table]
    anew: tuple[str, ...] = ()


REACHED = Batch({}, {})


@dataclass(frozen=True, slots=True)
class Interval:
    """Changes of the relation that a source reads, before `upper`, as tables to be taken once.

    The columns are those of the relation, then perhaps `__time`, and `__diff`.
    """

    upper: int
    tables: AsyncIterator[pa.Table]


class Durable(Protocol):
    """What of a source is durable in the database when it starts."""

    @property
    def position(self) -> Position:
        """Return how far the source was read."""
        ...

    def contents(self, reference: str, columns: int | None = None) -> AsyncIterator[pa.Table]:
        """Yield the rows of an output's relation, with `__diff`, as of `position`.

        With `columns` only so many of the first columns, which need not make a row distinct.
        Only while all batches before are durable. Raises OSError if they cannot be read.
        """
        ...

    async def changes(self, frontier: int | None, *, contents: bool = False) -> Interval:
        """Wait for changes of the relation that the source reads, from `frontier` on.

        None: its contents, with which all begins. With `contents`: those before `frontier`, at
        once. One interval at a time. Raises OSError if they cannot be read.
        """
        ...


class Connector(Protocol):
    """Reads one external system."""

    def run(self, durable: Durable) -> AsyncIterator[Batch | Part]:
        """Yield what follows `durable.position`, for ever or until there can be nothing more.

        Raises OSError or DatabaseError if the system cannot be read: it is tried again later.
        """
        ...

    def committed(self, position: Position) -> None:
        """Note that everything before `position` is durable here; must not block."""
        ...


@dataclass(frozen=True, slots=True)
class OutputReport:
    """What a connector knows of an output, since the connector was made."""

    messages: int = 0  # that were received for it
    snapshot_known: int | None = None  # rows that it has at the beginning, perhaps estimated
    snapshot_staged: int | None = None  # how many of them were read
    ceased: str | None = None  # why it gets no more rows, while the others go on
    waits: str | None = None  # its state while its rows are read and the others go on


@dataclass(frozen=True, slots=True)
class Report:
    """What a connector knows of its outputs, by reference, and of the external system.

    `known` is how far the external system is said to be, in some parts of the position. `again`
    says why all rows are, or were last, read again.
    """

    outputs: Mapping[str, OutputReport]
    known: Position
    slot: SlotState | None = None
    again: str | None = None


@runtime_checkable
class Reporting(Protocol):
    """A connector that tells more than its batches do."""

    def report(self) -> Report:
        """Return what is known at this moment; must not block, and cost little."""
        ...


@runtime_checkable
class Measurable(Protocol):
    """A connector that can say how far its external system is."""

    async def furthest(self) -> Position:
        """Return the position after all that is there now; raises as `run` does."""
        ...


class Kind(Protocol):
    """One kind of external system."""

    def connector(
        self, spec: Any, outputs: Mapping[str, OutputRelation], accesses: Accesses
    ) -> Connector:
        """Return a new connector for a source, which writes these outputs."""
        ...

    async def discover(self, spec: Any, accesses: Accesses) -> Discovered:
        """Return the outputs of a source; raises OSError or DatabaseError."""
        ...


@runtime_checkable
class Disposing(Protocol):
    """A kind whose sources leave something outside (`foreshore.sources.spec.left_by`)."""

    async def dispose(self, spec: Any, accesses: Accesses) -> None:
        """Remove what a dropped source has left there, if it is still there.

        Raises OSError or DatabaseError.
        """
        ...


@runtime_checkable
class Readable(Protocol):
    """A kind whose outputs can be read as they are now, beside a source that follows them."""

    async def rows(
        self, spec: Any, output: OutputRelation, accesses: Accesses, most: int
    ) -> pa.Table | None:
        """Return all rows of an output, with `__diff`; None if there are more than `most`.

        `output.details` name the table. Raises OSError or DatabaseError.
        """
        ...
