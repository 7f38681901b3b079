"""The bytes of long messages and rows of COPY that the process holds, which together have a bound.

A message of 256 MB is gathered until it has arrived in full, so 1,000 clients that each send most
of one could take all memory. A little may always be gathered on a connection. When much is held for
all, the connection whose bytes would be too many ends. The bytes count until the message is done.
A row of COPY is gathered in the same way; its statement fails, and the connection goes on.
"""

from foreshore.server.message import FramingError

ALL_BYTES = 1 << 30  # of all connections; as long as the longest message
ALWAYS_BYTES = 1 << 20  # of one connection, whatever others hold


class TooMuchGathered(FramingError):
    """The process holds as many bytes of long messages as it may."""

    sqlstate = "53200"


class Gathered:
    """The bytes of long messages on all connections of a process, owned by its event loop."""

    def __init__(self) -> None:
        self.bytes = 0


OF_PROCESS = Gathered()


class GatheredHere:
    """The bytes of the long message of one connection."""

    __slots__ = ("_all", "bytes")

    def __init__(self, all: Gathered = OF_PROCESS) -> None:
        self._all = all
        self.bytes = 0

    def add(self, count: int) -> None:
        """Count bytes that have arrived; raises TooMuchGathered."""
        self.change(self.bytes + count)

    def change(self, size: int) -> None:
        """Note how many bytes it is now; raises TooMuchGathered."""
        self._all.bytes += size - self.bytes
        self.bytes = size
        if self._all.bytes > ALL_BYTES and self.bytes > ALWAYS_BYTES:
            raise TooMuchGathered(
                "out of memory",
                detail="Messages that have not arrived in full hold too many bytes.",
                hint="Send it again later.",
            )

    def clear(self) -> None:
        """Note that the message is done, or its connection has ended."""
        self.change(0)
