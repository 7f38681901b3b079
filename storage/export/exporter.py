"""Exporters: what writes to one kind of external system."""

from collections.abc import AsyncIterator
from typing import Protocol, runtime_checkable

import pyarrow as pa

from foreshore.storage.export.messages import Export
from foreshore.update import Timestamp

NOTHING = -1  # the frontier of a target that keeps one, and has nothing of the sink yet


class Exporter(Protocol):
    """Writes to one target. OSError or DatabaseError: the sink is resumed later."""

    async def resume(self) -> Timestamp | None:
        """Connect, shut out all earlier exporters of the sink, and return the target's frontier.

        None if the target has nothing of the sink yet, or keeps no frontier. NOTHING if it keeps
        one, where not all targets of its kind do.
        """
        ...

    async def write(
        self, parts: AsyncIterator[pa.Table], lower: Timestamp, upper: Timestamp
    ) -> None:
        """Write all updates with lower <= time < upper, and `upper` as frontier, at once.

        Each part has rows with `__time` and `__diff`. Raises if the target's frontier is not
        `lower`, unless it has none.
        """
        ...

    async def close(self) -> None:
        """Close the connection; an unfinished write leaves nothing."""
        ...


class SinkKind(Protocol):
    """One kind of external system."""

    def exporter(self, export: Export) -> Exporter:
        """Return a new exporter."""
        ...

    async def check(self, export: Export) -> None:
        """Raise OSError or DatabaseError if a sink could not write; make what it needs there."""
        ...


@runtime_checkable
class Disposing(Protocol):
    """A kind whose sinks leave more than rows outside (`foreshore.sinks.spec.left_by`)."""

    async def dispose(self, export: Export) -> None:
        """Remove what a dropped sink has left there beside its rows, if it is still there.

        `export` has no columns. Raises OSError or DatabaseError.
        """
        ...
