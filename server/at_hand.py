"""Requests whose answers are at hand: from a client's bytes to those of the answer, at once.

Most requests of a busy client are look-ups: a Bind, Execute and Sync in one packet. If all up to
the Sync are reads whose rows are in this process, they are answered in the callback that received
them: no task wakes, no portal or transaction is made, and the answer is one write. Recognized are

    Bind Execute    of the unnamed portal, with a Describe of it between or without
    Parse           of the unnamed statement before, if the text is in the plan cache
    Query           of one statement

and several of these before one Sync. If anything else is among them, or a row is not at hand,
nothing has happened, and all are left in the reader to the connection's task. Single statements
that change rows, or are of a transaction block, are for `changes_at_hand.py`.
"""

import logging
from collections.abc import Callable, Sequence
from struct import Struct
from time import perf_counter
from typing import NamedTuple

from foreshore.adapter.client import Session, Statement
from foreshore.errors import DatabaseError
from foreshore.latencies import STATEMENTS
from foreshore.object_names import takes_names
from foreshore.output_style import OutputStyle
from foreshore.server import message
from foreshore.server.answers import Answer, Answers
from foreshore.server.changes_at_hand import ChangesAtHand
from foreshore.server.codec import RowEncoder, result_formats
from foreshore.server.parameters import Decode, decoder
from foreshore.server.statement_at_hand import (
    DESCRIBE,
    EXECUTE,
    EXECUTE_SIZE,
    SYNC,
    end_of,
    parse_of,
    query_of,
)
from foreshore.server.turns import turns_of_loop
from foreshore.server.wire import Wire
from foreshore.table_rows import Row
from foreshore.types import Datum, RelationDesc

logger = logging.getLogger(__name__)

MOST = 64  # statements before one Sync
MOST_BYTES = 1 << 17  # of answers before other connections have their turn, beside the last
MOST_SHAPES = 256

Encoder = Callable[[RelationDesc, Sequence[int]], RowEncoder]

_COUNT = Struct("!H").unpack_from
_INT32 = Struct("!i").unpack_from
_BIND, _PARSE, _QUERY = b"BPQ"
# How texts begin that may be answered here.
_WORDS = frozenset("select insert update delete begin start commit end rollback abort".split())
_TAGS = tuple(message.command_complete(f"SELECT {count}") for count in range(65))
_READY = message.READY["I"]


class _Known:
    """A statement that this connection has asked for by `name`, of `length` bytes."""

    __slots__ = ("form", "length", "name", "plan", "statement", "style")

    def __init__(self, name: str, length: int, plan: object, style: OutputStyle, form: int) -> None:
        self.name = name
        self.length = length
        self.plan = plan
        self.style = style
        self.form = form
        self.statement: Statement  # as it is prepared at the moment


class _Shape(NamedTuple):
    """How a Bind message is read that has these formats, for a statement with one form."""

    decoders: Sequence[Decode]
    encoder: RowEncoder


class AnswersAtHand:
    """The requests of one connection whose answers are at hand."""

    def __init__(
        self,
        wire: Wire,
        session: Session,
        encoder: Encoder,
        answers: Answers,
        changes: ChangesAtHand,
    ) -> None:
        self._changes = changes
        self._reads = 0  # statements of the present `answer` that were reads
        # A place of the input, to which a Sync was looked for in vain: the task handles it.
        self._left_until = 0
        self._sought = 0  # where the last search for a Sync ended in the bytes that it had
        self._turns = turns_of_loop()
        self.paused = False  # the last `answer` ended so that others have their turn
        self._wire = wire
        self._session = session
        self._at_hand = session.at_hand
        self._encoder = encoder
        self._answers = answers
        self._known: dict[bytes, _Known] = {}
        # By the form, and the formats of the arguments and columns.
        self._shapes: dict[tuple[int, bytes, bytes], _Shape] = {}

    def answer(self) -> bool:
        """Answer what has arrived; return whether something is left, which the task handles."""
        wire, reader, changes = self._wire, self._wire.reader, self._changes
        answered, self._reads, self.paused = 0, 0, False
        begin, began = wire.gathered, perf_counter()
        try:
            while not changes.in_flight and wire.is_open and (ahead := reader.ahead()) is not None:
                is_late = answered and not self._turns.has_time()
                if is_late or wire.gathered - begin >= MOST_BYTES:
                    self.paused = True
                    break
                count = self._transaction(*ahead)
                if not count:
                    break
                answered += count
        except DatabaseError as error:  # the task meets it, too, and tells the client
            logger.debug("not at hand: %s", error)
        except Exception:  # the task may get on, so nobody else would tell
            logger.exception("the fast path has failed")
        if answered:
            if self._reads:  # of the others their session takes the time
                each = (perf_counter() - began) / answered
                STATEMENTS["select"].observe(each, self._reads)
            wire.flush()
        return reader.buffered > 0 and not changes.in_flight

    def _transaction(self, data: bytes, at: int) -> int:
        """Answer the messages from `at` up to a Sync; return how many statements they ran.

        It is 0 if they are left to the task.
        """
        code, at_hand = data[at], self._at_hand
        if self._changes.take_refusal():
            return 0
        if code == _QUERY:
            return self._query(data, at)
        if code != _BIND and code != _PARSE:
            return 0
        if self._left_until and self._wire.reader.position < self._left_until:
            return 0
        if at_hand.can_begin():
            unnamed, count = at_hand.unnamed(), 0
            try:
                count = self._pipeline(data, at)
            finally:
                if not count:
                    at_hand.restore(unnamed)
                    self._left_until = self._wire.reader.position + self._sought - at
            if count:
                return count
        return self._changes.begin(data, at)

    def _pipeline(self, data: bytes, at: int) -> int:
        """Answer the messages from `at` up to a Sync, as `_transaction` does."""
        size, count, encoded = len(data), 0, 0
        out: list[message.Bytes] = []
        while not data.startswith(SYNC, at):
            self._sought = at
            end = end_of(data, at)
            if not end or encoded >= MOST_BYTES or count == MOST or len(out) >= 2 * MOST:
                return 0
            code = data[at]
            if code == _PARSE:
                parsed = parse_of(data, at + 5, end)
                if parsed is None or self._at_hand.parse(*parsed) is None:
                    return 0
                out.append(message.PARSE_COMPLETE)
                at = end
                continue
            if code != _BIND:
                return 0
            stop = end + len(DESCRIBE) if data.startswith(DESCRIBE, end) else end
            if not data.startswith(EXECUTE, stop) or size < stop + EXECUTE_SIZE:
                return 0
            known = self._statement(data, at + 5, end)
            if known is None:
                return 0
            answer = self._answered(known, data, at + 5, end, stop)
            if answer is None:
                return 0
            out.append(answer)
            encoded += len(answer)
            last = known.statement
            at = stop + EXECUTE_SIZE
            count += 1
        if not count:
            return 0
        self._wire.reader.skip_to(at + len(SYNC))
        out.append(_READY)
        self._wire.put(b"".join(out))
        self._at_hand.end(last)
        self._reads += count
        return count

    def _query(self, data: bytes, at: int) -> int:
        """Answer a Query message; return the number of its statements, 0 if it is left."""
        query = query_of(data, at)
        if query is None:
            return 0
        text, end = query
        words = text[:32].split(None, 1)
        if not words or words[0].rstrip(";").lower() not in _WORDS:
            return 0
        at_hand = self._at_hand
        known = at_hand.query(text)
        if known is None:
            return 0
        statement, args = known
        if not at_hand.can_begin() or not at_hand.may_read(statement):
            return self._changes.query(data, at, end, statement, args, text)
        assert statement.desc is not None, text
        encoder = self._encoder(statement.desc, ())
        found = None if encoder.shows_names else at_hand.rows(statement, args)
        if found is None:
            return 0
        self._wire.reader.skip_to(end)
        self._wire.put(b"".join((encoder.description, *self._rows(encoder, found.rows, 0), _READY)))
        at_hand.end(statement, text)
        self._reads += 1
        return 1

    def _statement(self, data: bytes, at: int, end: int) -> _Known | None:
        """Return the statement of a Bind message, whose body is from `at` to `end`."""
        name_end = data.find(b"\0", at + 1, end)
        if data[at] or name_end < 0:
            return None
        name = data[at + 1 : name_end]
        known = self._known.get(name)
        statement = self._at_hand.statement(
            message.decode_text(name) if known is None else known.name
        )
        if statement is None:
            return None
        style, plan = self._session.output_style(names=False), self._at_hand.plan(statement)
        if known is None or known.plan is not plan or known.style is not style:
            form = self._answers.form(plan, statement.desc, style)
            known = _Known(message.decode_text(name), len(name), plan, style, form)
            if len(self._known) >= MOST_SHAPES:
                self._known.clear()
            self._known[name] = known
        known.statement = statement
        return known

    def _answered(
        self, known: _Known, data: bytes, at: int, end: int, stop: int
    ) -> message.Bytes | None:
        """Return the answer to a Bind, perhaps a Describe, and the Execute that is at `stop`."""
        begin = at + 1 + known.length  # the end of the statement's name
        request = known.form, data[begin : stop + EXECUTE_SIZE]
        answer = self._answers.get(request)
        if answer is not None and self._at_hand.holds(answer.proof):
            return answer.data
        bound = self._bound(known, data, begin, end)
        if bound is None:
            return None
        shape, args = bound
        found = self._at_hand.rows(known.statement, args)
        if found is None:
            return None
        most = _INT32(data, stop + len(EXECUTE))[0]
        encoded = b"".join(
            (
                message.BIND_COMPLETE,
                shape.encoder.description if stop > end else b"",
                *self._rows(shape.encoder, found.rows, most),
            )
        )
        if found.proof is not None:
            self._answers.put(request, Answer(encoded, found.proof))
        return encoded

    def _rows(
        self, encoder: RowEncoder, rows: Sequence[Row], most: int
    ) -> tuple[message.Bytes, message.Bytes]:
        """Return the messages of rows, at most `most` of them if that is above 0, and the last."""
        is_cut = 0 < most <= len(rows)
        if is_cut:
            rows = rows[:most]
        encoded = encoder.tuples(rows, self._session.output_style(names=False)) if rows else b""
        if is_cut:
            return encoded, message.PORTAL_SUSPENDED
        if len(rows) < len(_TAGS):
            return encoded, _TAGS[len(rows)]
        return encoded, message.command_complete(f"SELECT {len(rows)}")

    def _bound(
        self, known: _Known, data: bytes, name_end: int, end: int
    ) -> tuple[_Shape, Sequence[Datum]] | None:
        """Return how a Bind message is read, in which the name ends there, and its arguments."""
        if end < name_end + 5:
            return None
        at = name_end + 3 + 2 * _COUNT(data, name_end + 1)[0]
        formats = data[name_end + 1 : at]
        if end < at + 2:
            return None
        count, at = _COUNT(data, at)[0], at + 2
        values: list[bytes | None] = []
        for _ in range(count):
            if end < at + 4:
                return None
            size, at = _INT32(data, at)[0], at + 4
            if size < 0:
                if size != -1:
                    return None
                values.append(None)
                continue
            values.append(data[at : at + size])
            at += size
        if end < at + 2:
            return None
        results = data[at:end]
        name = known.form, formats, results
        shape = self._shapes.get(name)
        if shape is None:
            shape = self._shape(known.statement, formats, results)
            if shape is None:
                return None
            if len(self._shapes) >= MOST_SHAPES:
                self._shapes.clear()
            self._shapes[name] = shape
        decoders = shape.decoders
        if len(decoders) != count:
            return None
        args = [
            None if value is None else decode(value)
            for value, decode in zip(values, decoders, strict=True)
        ]
        return shape, args

    def _shape(self, statement: Statement, formats: bytes, results: bytes) -> _Shape | None:
        """Return the shape of Bind messages with these formats; None if it is left to the task."""
        parameters, desc = statement.parameters, statement.desc
        codes, shown = _codes(formats), _codes(results)
        if codes is None or shown is None or len(codes) not in (0, 1, len(parameters)):
            return None
        if desc is None or not set(codes) <= {0, 1}:
            return None
        if len(codes) < 2:
            codes = (*codes, 0)[:1] * len(parameters)
        encoder = self._encoder(desc, result_formats(shown, len(desc.columns)))
        if encoder.shows_names or any(map(takes_names, parameters)):
            return None
        decoders = [
            decoder(type, code, self._time_zone)
            for type, code in zip(parameters, codes, strict=True)
        ]
        return _Shape(decoders, encoder)

    def _time_zone(self) -> str:
        return self._session.time_zone


def _codes(counted: bytes) -> tuple[int, ...] | None:
    """Return format codes, given with their number before; None if they are not so many."""
    count = _COUNT(counted)[0]
    if len(counted) != 2 + 2 * count:
        return None
    return Struct(f"!{count}h").unpack_from(counted, 2)
