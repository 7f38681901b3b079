"""Executions of one statement in a row: from a client's bytes to those of the answers.

To run a statement with many arguments (`executemany`) a driver sends a Bind and an Execute for
each, with a Describe between or without, and waits for no answer. Those that have arrived are given
to the session together, which may stage them as one change. What it does not run so is left in the
reader, and the connection's task handles it message by message.
"""

from collections.abc import Sequence
from struct import Struct

from foreshore.adapter.client import FEWEST_TOGETHER, Session, Statement
from foreshore.server import message
from foreshore.server.parameters import arguments
from foreshore.server.wire import Wire
from foreshore.types import Datum

MOST = 512  # executions before other connections have their turn: some ten milliseconds
MOST_BYTES = 1 << 16  # of their messages
SHORTEST = 24  # bytes of a Bind and an Execute

_INT32 = Struct("!i")
_BIND = b"B"[0]
_DESCRIBE = b"D\0\0\0\x06P\0"  # the unnamed portal
_EXECUTE = b"E\0\0\0\x09\0\0\0\0\0"  # the same, all rows


class Batches:
    """The executions in a row of one connection."""

    def __init__(self, wire: Wire, session: Session) -> None:
        self._wire = wire
        self._session = session
        self._singly = 0  # how many of the next Bind messages are handled one by one
        self._most = MOST  # executions that are decoded at once: twice as many as have run

    def forget(self) -> None:
        """Begin anew: what follows is after a Sync."""
        self._singly = 0

    async def run(self) -> bool:
        """Run and answer executions that have arrived; return whether there were any."""
        ahead = self._wire.reader.ahead()
        if ahead is None or ahead[0][ahead[1]] != _BIND:
            return False
        if self._singly:
            self._singly -= 1
            return False
        data, at = ahead
        if len(data) - at < FEWEST_TOGETHER * SHORTEST:
            return False
        found = self._executions(data, at)
        if found is None:
            return False
        statement, ends, described, many = found
        if len(many) < FEWEST_TOGETHER:
            self._singly = len(many)
        else:
            tags, self._singly = await self._session.execute_together(statement, many)
            self._most = min(MOST, 2 * max(len(tags), FEWEST_TOGETHER))
            if tags:
                self._answer(tags, described)
                self._wire.reader.skip_to(ends[len(tags) - 1])
                await self._wire.relieve()
                return True
        self._singly = max(0, self._singly - 1)  # the first one is handled now
        return False

    def _executions(
        self, data: bytes, at: int
    ) -> tuple[str, list[int], list[bool], list[Sequence[Datum]]] | None:
        """Return the executions of one statement from `at` on, as far as they have arrived.

        That is its name, where each ends, whether its portal is described, and its arguments.
        """
        ends: list[int] = []
        described: list[bool] = []
        many: list[Sequence[Datum]] = []
        statement: Statement | None = None
        name, size, zone = "", len(data), self._session.time_zone
        last = min(size, at + MOST_BYTES)
        while len(many) < self._most and at + 5 < last and data[at] == _BIND:
            end = at + 1 + _INT32.unpack_from(data, at + 1)[0]
            if not at + 5 < end <= last:
                break
            bind = message.parse_message(_BIND, data[at + 5 : end])
            if not isinstance(bind, message.Bind) or bind.portal or len(bind.result_formats) > 1:
                break
            if statement is None:
                name = bind.statement
                statement = self._session.together(name)
                if statement is None:
                    return None
            elif bind.statement != name:
                break
            is_described = data.startswith(_DESCRIBE, end)
            if is_described:
                end += len(_DESCRIBE)
            if not data.startswith(_EXECUTE, end):
                break
            try:
                many.append(arguments(bind, statement.parameters, zone))
            except Exception:  # whose Bind fails again on its own, and tells the client
                break
            at = end + len(_EXECUTE)
            ends.append(at)
            described.append(is_described)
        return (name, ends, described, many) if many else None

    def _answer(self, tags: Sequence[str], described: Sequence[bool]) -> None:
        """Add the answers to executions that have run."""
        out: list[message.Bytes] = []
        for tag, is_described in zip(tags, described, strict=False):
            out.append(message.BIND_COMPLETE)
            if is_described:
                out.append(message.NO_DATA)
            out.append(message.command_complete(tag))
        self._wire.put(b"".join(out))
