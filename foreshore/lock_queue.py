"""Waiting for locks: first come, first served, with deadlock detection.

An owner who holds nothing yet waits behind those who wait already; one who holds something goes
before them. A wait that would close a circle of waits is a deadlock, and raises an error at once.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Generic, Protocol, TypeVar

from foreshore.errors import Conflict, LockNotAvailable


class Request(Protocol):
    """A request of `owner`; `granted` is done when it has the locks."""

    granted: asyncio.Future[None]

    @property
    def owner(self) -> object: ...  # noqa: D102


R = TypeVar("R", bound=Request)


class LockQueue(ABC, Generic[R]):
    """The requests that wait, in order of arrival; `held` has what each owner holds."""

    held: Mapping[Any, object]

    def __init__(self) -> None:
        self._waiting: list[R] = []

    @abstractmethod
    def _before(self, request: R, place: int) -> Iterator[object]:
        """Yield the owners for whom `request`, at `place` of the queue, has to wait."""

    @abstractmethod
    def _grant(self, request: R) -> None:
        """Give the owner of `request` its locks, and note it in `granted`."""

    def _give_up(self, request: R) -> None:
        """Release what was just granted to an owner that fails."""

    def _try(self, request: R) -> bool:
        """Grant a request if it need not wait; return whether it was granted."""
        if any(self._before(request, len(self._waiting))):
            return False
        self._grant(request)
        return True

    async def _wait(self, request: R, timeout_ms: int) -> None:
        """Wait until a request is granted.

        Raises Conflict 40P01 at a deadlock, LockNotAvailable after `timeout_ms` unless that is 0.
        """
        if self._closes_circle(request):
            raise Conflict("deadlock detected", sqlstate="40P01")
        self._waiting.append(request)
        try:
            async with asyncio.timeout(timeout_ms / 1000 or None):
                await request.granted
        except BaseException as error:
            if request in self._waiting:
                self._waiting.remove(request)
            else:
                self._give_up(request)
            self._wake()
            if isinstance(error, TimeoutError):
                raise LockNotAvailable from None
            raise

    def _closes_circle(self, request: R) -> bool:
        """Return whether those for whom `request` would wait are waiting for its owner."""
        if request.owner not in self.held:
            return False  # many may wait, each for all before it
        places = {each.owner: place for place, each in enumerate(self._waiting)}
        seen: set[object] = set()
        stack = list(self._before(request, len(self._waiting)))
        while stack:
            owner = stack.pop()
            if owner is request.owner:
                return True
            if owner not in seen and owner in places:
                seen.add(owner)
                stack += self._before(self._waiting[places[owner]], places[owner])
        return False

    def _wake(self) -> None:
        """Grant what can be granted now, in order of arrival."""
        place = 0
        while place < len(self._waiting):
            if any(self._before(self._waiting[place], place)):
                place += 1
            else:
                self._grant(self._waiting.pop(place))
                place = 0
