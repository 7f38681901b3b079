"""Connectors: what reads one kind of external system.

A connector yields batches. Each has what follows the position of the one before, and is repeated,
perhaps cut differently, if the process ends before it is committed.
"""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa

Position: TypeAlias = Mapping[str, int]  # the next offset of each part that was read


@dataclass(frozen=True, slots=True)
class Batch:
    """Updates of outputs by reference (rows with `__diff`), and the position that follows them.

    `moved` has the parts whose position changes.
    """

    rows: Mapping[str, pa.Table]
    moved: Position


class Connector(Protocol):
    """Reads one external system."""

    def run(self, position: Position) -> AsyncIterator[Batch]:
        """Yield what follows `position`, for ever or until there can be nothing more.

        Raises OSError or DatabaseError if the system cannot be read: it is tried again later.
        """
        ...

    async def committed(self, position: Position) -> None:
        """Note that everything before `position` is durable here."""
        ...
