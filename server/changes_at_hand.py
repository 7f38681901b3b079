"""Changes at hand: a Bind, Execute and Sync of a statement that changes rows, without the task.

Most changes of a busy client are one row each, in a transaction of its own or in a short block. If
the statement need not wait for anything, it runs in the callback that received it. Within a block
it is answered at once; otherwise, as COMMIT, it joins its group and is answered when that is
durable. No task wakes and no portal is made. What arrives meanwhile is left in the reader. If the
group refuses it, nothing has happened: its messages are put back, and the connection's task handles
them, meets the error or runs the statement again.
"""

import asyncio
from collections.abc import Callable
from struct import Struct

from foreshore.adapter.client import Session
from foreshore.server import message, metrics
from foreshore.server.parameters import arguments
from foreshore.server.wire import Wire

LONGEST = 16_384  # bytes of a Bind message that is handled here

_INT32 = Struct("!i").unpack_from
_DESCRIBE = b"D\0\0\0\x06P\0"  # the unnamed portal
_EXECUTE = b"E\0\0\0\x09\0"  # the same; the number of rows follows
_SYNC = b"S\0\0\0\x04"
_AFTER_EXECUTE = len(_EXECUTE) + 4


class ChangesAtHand:
    """The changes of one connection that run so, one at a time; `ready` sends what is put."""

    def __init__(self, wire: Wire, session: Session, ready: Callable[[], None]) -> None:
        self.in_flight = False  # whether one has not been answered yet
        self._wire = wire
        self._session = session
        self._ready = ready
        self._refused = False  # the next one is left to the task
        self._landed: asyncio.Future[None] | None = None

    async def landed(self) -> None:
        """Wait until none is in flight."""
        if self.in_flight:
            self._landed = asyncio.get_running_loop().create_future()
            await self._landed

    def begin(self, data: bytes, at: int) -> int:
        """Run the statement of the Bind message at `at`, if it is one of these.

        Returns how many statements were answered: 1, or 0 if it has to be waited for or is left.
        """
        if self._refused:
            self._refused = False
            return 0
        size = len(data)
        if size < at + 5:
            return 0
        end = at + 1 + _INT32(data, at + 1)[0]
        if not at + 5 < end <= min(size, at + LONGEST) or data[at + 5]:  # a portal with a name
            return 0
        is_described = data.startswith(_DESCRIBE, end)
        stop = end + len(_DESCRIBE) if is_described else end
        after = stop + _AFTER_EXECUTE
        if not data.startswith(_EXECUTE, stop) or not data.startswith(_SYNC, after):
            return 0
        name_end = data.find(b"\0", at + 6, end)
        if name_end < 0:
            return 0
        at_hand = self._session.at_hand
        statement = at_hand.changes(message.decode_text(data[at + 6 : name_end]))
        if statement is None:
            return 0
        bind = message.parse_message(data[at], data[at + 5 : end])
        assert isinstance(bind, message.Bind), bind
        args = arguments(bind, statement.parameters, self._session.time_zone)
        request = data[at : after + len(_SYNC)]

        has_begun = False

        def landed(tag: str | None) -> None:
            self._answer(request, tag, is_described=is_described)
            if has_begun:
                self._go_on(tag)

        self.in_flight = True
        self._wire.reader.skip_to(after + len(_SYNC))
        if not at_hand.change(statement, args, landed):
            self.in_flight = False
            self._wire.reader.skip_to(at)
            return 0
        has_begun = True
        return 0 if self.in_flight else 1

    def _answer(self, request: bytes, tag: str | None, *, is_described: bool) -> None:
        self.in_flight = False
        if tag is None:
            self._refused = True
            self._wire.reader.put_back(request)
        else:
            described = message.NO_DATA if is_described else b""
            completed = message.command_complete(tag)
            self._wire.put(b"".join((message.BIND_COMPLETE, described, completed)))
            self._ready()

    def _go_on(self, tag: str | None) -> None:
        """Let whoever waits for the end of the flight go on."""
        if tag is not None:
            metrics.STATEMENTS.inc()
        if self._landed is not None and not self._landed.done():
            self._landed.set_result(None)
        self._wire.go_on()
