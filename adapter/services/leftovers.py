"""Leftovers: what dropped sources and sinks have left elsewhere."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from foreshore.catalog.leftovers import Leftover
from foreshore.ids import GlobalId
from foreshore.storage.external.retries import Pauses

LONGEST_PAUSE_SECONDS = 600.0  # between two tries


@dataclass(slots=True)
class Removal:
    """A leftover, and how far its removal is; times are in milliseconds since 1970."""

    leftover: Leftover
    tries: int = 0
    error: str | None = None  # of the last try
    next_try: int | None = None
    pauses: Pauses = field(default_factory=lambda: Pauses(LONGEST_PAUSE_SECONDS))
    task: asyncio.Task[None] | None = None


class Leftovers(Protocol):
    """The leftovers that are not removed yet."""

    def removals(self) -> Sequence[Removal]:
        """Return all, and how far their removal is."""

    async def forget(self, id: GlobalId) -> bool:
        """Remove a leftover from the list, durably; return whether it was there."""
