"""Bytes of clients that the process keeps until they can be used, which together have a bound.

    bound = SharedBytes(all=64 << 20, always=256 << 10)    one of a kind, owned by the event loop
    kept = KeptBytes(bound)                                those of one connection
    if not kept.change(kept.bytes + 100): ...              there is no room: what they are for ends

A client can send most of a message of 256 MB, or requests while it reads no answer; 1,000 such
clients could take all memory. A little may be kept for each connection, whatever others have.
"""

from dataclasses import dataclass


@dataclass(slots=True)
class SharedBytes:
    """The bytes of one kind on all connections: `all` of them at most, and `each` of one.

    A connection that has no more than `always` may have them in any case.
    """

    all: int
    always: int
    each: int | None = None
    bytes: int = 0


class KeptBytes:
    """The bytes of one connection."""

    __slots__ = ("_shared", "bytes")

    def __init__(self, shared: SharedBytes) -> None:
        self._shared = shared
        self.bytes = 0

    def change(self, size: int) -> bool:
        """Note how many bytes there are now; return whether there may be so many."""
        shared = self._shared
        shared.bytes += size - self.bytes
        self.bytes = size
        if shared.each is not None and size > shared.each:
            return False
        return size <= shared.always or shared.bytes <= shared.all

    def clear(self) -> None:
        """Note that there are none any more."""
        self.change(0)
