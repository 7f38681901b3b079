"""Executions of a prepared statement, as drivers send them: Bind, perhaps Describe, Execute.

All are of the unnamed portal. Those of one statement that have arrived in a row are one request,
with a row of arguments for each. Whatever else comes, is not whole, is long, or has an argument
that is wrong, is left in the reader, to be handled message by message.
"""

from collections.abc import Callable, Sequence
from struct import Struct as Layout
from typing import NamedTuple

from msgspec import Struct

from foreshore.adapter.client import Session, Statement
from foreshore.errors import DatabaseError
from foreshore.object_names import takes_names
from foreshore.server.codec import RowEncoder, result_formats
from foreshore.server.parameters import Decode, decoder
from foreshore.server.wire import Wire
from foreshore.types import Datum, RelationDesc, SqlType

LONGEST = 16_384  # bytes of a message that is handled here
MOST = 512  # executions of one request
MOST_BYTES = 1 << 16  # of their messages
MOST_FORMS = 256

DESCRIBE = b"D\0\0\0\x06P\0"  # the unnamed portal
EXECUTE = b"E\0\0\0\x09\0"  # the same; the number of rows follows
EXECUTE_SIZE = len(EXECUTE) + 4
SYNC = b"S\0\0\0\x04"

_COUNT = Layout("!H").unpack_from
_INT32 = Layout("!i").unpack_from
_BIND = b"B"[0]

Encoder = Callable[[RelationDesc, Sequence[int]], RowEncoder]


class Form(NamedTuple):
    """How messages with these formats are read, for a statement of these parameters and columns."""

    name: str  # of the statement
    parameters: Sequence[SqlType]
    desc: RelationDesc | None
    decoders: Sequence[Decode]
    encoder: RowEncoder | None  # of its rows, if it returns any
    formats: tuple[int, ...]


class Executions(Struct, frozen=True, gc=False):
    """Executions of one statement, in their order."""

    statement: Statement
    form: Form
    rows: Sequence[Sequence[Datum]]  # the arguments of each
    described: Sequence[bool]  # whether the portal of each is described
    most: int  # rows to be returned; 0: all
    is_last: bool  # a Sync follows, which is read with them


class _Bind(Struct, frozen=True, gc=False):
    """A Bind message of the unnamed portal, and where it ends."""

    head: bytes  # the statement's name, a zero, and the formats of the values
    values: list[bytes | None]
    results: bytes
    end: int


class ExecutionReader:
    """The executions that a client sends."""

    def __init__(self, wire: Wire, session: Session, encoder: Encoder) -> None:
        self._wire = wire
        self._session = session
        self._encoder = encoder
        self._forms: dict[tuple[bytes, bytes], Form] = {}

    def next(self) -> Executions | None:
        """Return the executions that come next, which are read; None: something else comes."""
        ahead = self._wire.reader.ahead()
        if ahead is None:
            return None
        data, at = ahead
        first = _bind_at(data, at) if data[at] == _BIND else None
        if first is None:
            return None
        found = self._find(first)
        if found is None:
            return None
        statement, form = found
        rows: list[Sequence[Datum]] = []
        described: list[bool] = []
        decoders, until, most = form.decoders, at + MOST_BYTES, 0
        bind: _Bind | None = first
        while bind is not None:
            is_described = data.startswith(DESCRIBE, bind.end)
            execute = bind.end + len(DESCRIBE) if is_described else bind.end
            end = execute + EXECUTE_SIZE
            if not data.startswith(EXECUTE, execute) or len(data) < end:
                break
            limit = _INT32(data, execute + len(EXECUTE))[0]
            args = None if limit > 0 and rows else _decoded(bind.values, decoders)
            if args is None:
                break
            rows.append(args)
            described.append(is_described)
            at, most = end, max(0, limit)
            if most or at >= until or len(rows) == MOST or data[at : at + 1] != b"B":
                break
            if len(rows) == 1 and not self._session.extended.takes_many(statement):
                break  # what is decoded later may depend on what this one does
            bind = _bind_at(data, at)
            if bind is not None and not _are_alike(bind, first):
                break
        if not rows:
            return None
        is_last = data.startswith(SYNC, at)
        self._wire.reader.skip_to(at + len(SYNC) if is_last else at)
        return Executions(statement, form, rows, described, most, is_last)

    def _find(self, bind: _Bind) -> tuple[Statement, Form] | None:
        """Return the statement of a message, and how such are read; None if they are left."""
        key = bind.head, bind.results
        form = self._forms.get(key)
        if form is not None:
            statement = self._session.extended.find_statement(form.name)
            if statement is None:
                return None
            if form.parameters is statement.parameters and form.desc is statement.desc:
                return statement, form
        name, _, formats = bind.head.partition(b"\0")
        try:
            statement = self._session.extended.find_statement(name.decode())
        except UnicodeDecodeError:
            return None
        if statement is None:
            return None
        form = self._new_form(name.decode(), statement, _codes(formats), _codes(bind.results))
        if form is None:
            return None
        if len(self._forms) >= MOST_FORMS:
            self._forms.clear()
        self._forms[key] = form
        return statement, form

    def _new_form(
        self,
        name: str,
        statement: Statement,
        codes: tuple[int, ...] | None,
        shown: tuple[int, ...] | None,
    ) -> Form | None:
        parameters, desc = statement.parameters, statement.desc
        if codes is None or shown is None or len(codes) not in (0, 1, len(parameters)):
            return None
        if not {*codes, *shown} <= {0, 1} or any(map(takes_names, parameters)):
            return None
        encoder = None
        if desc is not None:
            if len(shown) not in (0, 1, len(desc.columns)):
                return None
            encoder = self._encoder(desc, result_formats(shown, len(desc.columns)))
        if len(codes) < 2:
            codes = (*codes, 0)[:1] * len(parameters)
        decoders = [
            decoder(type, code, self._time_zone)
            for type, code in zip(parameters, codes, strict=True)
        ]
        return Form(name, parameters, desc, decoders, encoder, shown)

    def _time_zone(self) -> str:
        return self._session.time_zone


def _bind_at(data: bytes, at: int) -> _Bind | None:
    """Return the Bind message at `at`; None if it is not there as a whole, or names a portal."""
    size = len(data)
    if size < at + 5:
        return None
    end = at + 1 + _INT32(data, at + 1)[0]
    if not at + 13 <= end <= min(size, at + LONGEST) or data[at + 5]:
        return None
    name_end = data.find(b"\0", at + 6, end)
    if name_end < 0 or end < name_end + 3:
        return None
    begin, at = at + 6, name_end + 3 + 2 * _COUNT(data, name_end + 1)[0]
    if end < at + 2:
        return None
    head, count = data[begin:at], _COUNT(data, at)[0]
    at += 2
    values: list[bytes | None] = []
    for _ in range(count):
        if end < at + 4:
            return None
        length, at = _INT32(data, at)[0], at + 4
        if length < 0:
            if length != -1:
                return None
            values.append(None)
            continue
        values.append(data[at : at + length])
        at += length
    if end < at + 2:
        return None
    return _Bind(head, values, data[at:end], end)


def _are_alike(a: _Bind, b: _Bind) -> bool:
    """Whether two messages are of one statement, with values in one form."""
    return a.head == b.head and a.results == b.results


def _decoded(values: Sequence[bytes | None], decoders: Sequence[Decode]) -> Sequence[Datum] | None:
    """Return arguments; None if one of them is wrong, or they are too few or too many."""
    if len(values) != len(decoders):
        return None
    try:
        return [
            None if value is None else decode(value)
            for value, decode in zip(values, decoders, strict=True)
        ]
    except DatabaseError:
        return None


def _codes(counted: bytes) -> tuple[int, ...] | None:
    """Return format codes, given with their number before; None if they are not so many."""
    count = _COUNT(counted)[0]
    if len(counted) != 2 + 2 * count:
        return None
    return Layout(f"!{count}h").unpack_from(counted, 2)
