"""The requests that wait in all WebSockets of a server, which together have a bound.

A client that sends requests and does not read the answers has requests wait. A little may always
wait in a socket. When much waits in all, the socket whose request would be too much ends.
"""

from foreshore import blocking
from foreshore.memory import MUCH, give_back

ALL_BYTES = 64 << 20  # that wait in all sockets
EACH_BYTES = 16 << 20  # that wait in one
ALWAYS_BYTES = 256 << 10  # that may wait in one, whatever waits in others


class Waiting:
    """The bytes that wait in all sockets of a server, owned by its event loop."""

    def __init__(self) -> None:
        self.bytes = 0
        self._most = 0  # since `take_most`

    def change(self, count: int) -> None:
        """Count bytes that wait, or do not any more."""
        self.bytes += count
        self._most = max(self._most, self.bytes)

    def take_most(self) -> int:
        """Return how many have waited at a time since the last call."""
        most, self._most = self._most, self.bytes
        return most


class WaitingHere:
    """The bytes that wait in one socket."""

    def __init__(self, all: Waiting) -> None:
        self._all = all
        self.bytes = 0

    def add(self, count: int) -> bool:
        """Count a request that waits; return whether it may."""
        self._change(count)
        is_much = self._all.bytes > ALL_BYTES and self.bytes > ALWAYS_BYTES
        return self.bytes <= EACH_BYTES and not is_much

    def remove(self, count: int) -> None:
        """Note that a request does not wait any more."""
        self._change(-count)

    async def close(self) -> None:
        """Note the end of the socket; gives memory back to the system once nothing waits."""
        self.remove(self.bytes)
        if self._all.bytes == 0 and self._all.take_most() > MUCH:
            await blocking.run(None, give_back)

    def _change(self, count: int) -> None:
        self.bytes += count
        self._all.change(count)
