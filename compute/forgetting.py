"""The interface of engines that forget strings.

A cycle begins with `forgetting`. From then on what is computed anew names strings that are marked,
or that are in state. `shared` is captured at once and again when all work that was under way has
ended; then each dataflow is captured between two of its steps. What has no mark after all captured
state was marked has no holder but readers that began before, and is forgotten when these have
ended.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from foreshore.compute.checkpoint.state import Captured


class Cycle(Protocol):
    """One cycle."""

    def shared(self) -> Sequence[Captured]:
        """Return what dataflows share."""
        ...

    def mark(self, captured: Captured) -> None:
        """Mark all strings that are named in captured state; any thread may call it."""
        ...

    def forget(self) -> int:
        """Forget what is not marked, and end the cycle; return how many strings."""
        ...

    def end(self) -> None:
        """End the cycle, if it is still on, without forgetting anything."""
        ...


@runtime_checkable
class ForgettingEngine(Protocol):
    """An engine whose dataflows' state names strings."""

    @property
    def is_crowded(self) -> bool:
        """Whether there are so many strings that a cycle is worth while."""
        ...

    def forgetting(self) -> Cycle:
        """Begin a cycle."""
        ...
