"""Changes at hand: one statement that changes rows, or of a block, without the task.

Most changes of a busy client are one row each, in a transaction of its own or in a short block,
which reads some rows as well. If the statement need not wait for anything, it runs in the callback
that received it. Within a block it is answered at once; otherwise, as COMMIT, it joins its group
and is answered when that is durable. No task wakes and no portal is made. What arrives meanwhile is
left in the reader. If the group refuses it, nothing has happened: its messages are put back, and
the connection's task handles them, meets the error or runs the statement again.

It comes as a Query message, or as those of the extended protocol (`statement_at_hand.py`).
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeAlias

from foreshore.adapter.client import Session, Statement
from foreshore.server import message
from foreshore.server.codec import RowEncoder, result_formats
from foreshore.server.parameters import arguments
from foreshore.server.statement_at_hand import Request, request_of
from foreshore.server.wire import Wire
from foreshore.table_rows import Row
from foreshore.types import Datum, RelationDesc

_BIND = b"B"[0]

Encoder: TypeAlias = Callable[[RelationDesc, Sequence[int]], RowEncoder]


class ChangesAtHand:
    """The changes of one connection that run so, one at a time; `ready` sends what is put."""

    def __init__(
        self, wire: Wire, session: Session, encoder: Encoder, ready: Callable[[], None]
    ) -> None:
        self.in_flight = False  # whether one has not been answered yet
        self._wire = wire
        self._session = session
        self._encoder = encoder
        self._ready = ready
        self._refused = False  # the next one is left to the task
        self._landed: asyncio.Future[None] | None = None

    async def landed(self) -> None:
        """Wait until none is in flight."""
        if self.in_flight:
            self._landed = asyncio.get_running_loop().create_future()
            await self._landed

    def take_refusal(self) -> bool:
        """Return, once, whether a group has refused what comes next, so that the task runs it."""
        refused, self._refused = self._refused, False
        return refused

    def begin(self, data: bytes, at: int) -> int:
        """Run the statement of the messages at `at`, up to a Sync, if it is one of these.

        Returns how many statements were answered: 1, or 0 if it has to be waited for or is left.
        """
        request = request_of(data, at)
        if request is None:
            return 0
        at_hand = self._session.at_hand
        if request.parsed is None:
            return self._begin(data, at, request)
        unnamed, is_left = at_hand.unnamed(), True
        try:
            if at_hand.parse(*request.parsed) is not None:
                count = self._begin(data, at, request)
                is_left = not count and not self.in_flight
                return count
        finally:
            if is_left:
                at_hand.restore(unnamed)
        return 0

    def _begin(self, data: bytes, at: int, request: Request) -> int:
        at_hand = self._session.at_hand
        name_end = data.find(b"\0", request.bind + 1, request.bind_end)
        if name_end < 0:
            return 0
        name = message.decode_text(data[request.bind + 1 : name_end])
        statement = at_hand.changes(name)
        if statement is None:
            return 0
        bind = message.parse_message(_BIND, data[request.bind : request.bind_end])
        assert isinstance(bind, message.Bind), bind
        args = arguments(bind, statement.parameters, self._session.time_zone)
        before: list[message.Bytes] = [message.BIND_COMPLETE]
        if request.parsed is not None:
            before.insert(0, message.PARSE_COMPLETE)
        encoder, formats = None, bind.result_formats
        if statement.desc is not None:
            encoder = self._encoder(
                statement.desc, result_formats(formats, len(statement.desc.columns))
            )
            if request.most or encoder.shows_names:
                return 0
        if request.is_described:
            before.append(message.NO_DATA if encoder is None else encoder.description)
        return self._run(data, at, request.end, statement, args, before, encoder)

    def query(
        self, data: bytes, at: int, end: int, statement: Statement, args: Sequence[Datum], text: str
    ) -> int:
        """Run the statement of the Query message from `at` to `end`, as `begin` does."""
        if not self._session.at_hand.may_run(statement):
            return 0
        before: list[message.Bytes] = []
        encoder = None
        if statement.desc is not None:
            encoder = self._encoder(statement.desc, ())
            if encoder.shows_names:
                return 0
            before.append(encoder.description)
        return self._run(data, at, end, statement, args, before, encoder, text)

    def _run(
        self,
        data: bytes,
        at: int,
        end: int,
        statement: Statement,
        args: Sequence[Datum],
        before: list[message.Bytes],
        encoder: RowEncoder | None,
        text: str | None = None,
    ) -> int:
        """Run a statement that is from `at` to `end`; its answer begins with `before`."""
        has_begun = False

        def landed(tag: str | None, rows: Sequence[Row]) -> None:
            self.in_flight = False
            if tag is None:
                self._refused = True
                self._wire.reader.put_back(data[at:end])
            else:
                if rows and encoder is not None:
                    before.append(encoder.tuples(rows, self._session.output_style(names=False)))
                before.append(message.command_complete(tag))
                self._wire.put(b"".join(before))
                self._ready()
            if has_begun:
                self._go_on(tag)

        self.in_flight = True
        self._wire.reader.skip_to(end)
        if not self._session.at_hand.change(statement, args, landed, text):
            self.in_flight = False
            self._wire.reader.skip_to(at)
            return 0
        has_begun = True
        return 0 if self.in_flight else 1

    def _go_on(self, tag: str | None) -> None:
        """Let whoever waits for the end of the flight go on."""
        if self._landed is not None and not self._landed.done():
            self._landed.set_result(None)
        self._wire.go_on()
