"""Requests: what a program asks for, as values that are decoded from JSON."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from foreshore import blocking
from foreshore.errors import ProtocolViolation
from foreshore.json_errors import describe_json_error
from foreshore.server.http.params import Params, check_text, check_values, decoder

Options = Mapping[str, str | bool | int | float]  # session variables
T = TypeVar("T")
R = TypeVar("R", bound="SqlRequest")

_HINT = 'Send {"query": "...", "params": ["text", 1, null]} or {"queries": [{"query": "..."}]}.'
MOST_OPTIONS = 10_000  # characters, as PostgreSQL allows when a session begins
LONG = 1 << 17  # bytes of a request: some milliseconds of decoding


class ExtendedQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One statement, with the values of its parameters."""

    query: str
    params: Params = ()


class SqlRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Statements to run: a text of several, one with `params`, or several with parameters.

    `options` are session variables.
    """

    query: str | None = None
    params: Params | None = None
    queries: tuple[ExtendedQuery, ...] | None = None
    options: Options | None = None

    @property
    def texts(self) -> Sequence[str]:
        """The texts of SQL."""
        if self.query is not None:
            return (self.query,)
        return [each.query for each in self.queries or ()]


class SocketStart(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The first message of a WebSocket: who the client is, session variables, the form of rows.

    With `batches` rows come as RowBatch messages of several rows, else as one Row message each.
    """

    user: str | None = None
    password: str | None = None
    token: str | None = None
    options: Options | None = None
    batches: bool = False


class SocketRequest(SqlRequest, frozen=True, forbid_unknown_fields=True):
    """A later message of a WebSocket: statements, or that the running one is to be cancelled."""

    cancel: bool = False


_sql = decoder(SqlRequest)
_start = msgspec.json.Decoder(SocketStart)
_socket = decoder(SocketRequest)
_options: msgspec.json.Decoder[Options] = msgspec.json.Decoder(dict[str, str | bool | int | float])
_params = decoder(tuple[Any, ...])


async def sql_request(data: bytes) -> SqlRequest:
    """Return the request in a body; raises ProtocolViolation."""
    if len(data) > LONG:
        return await blocking.run(None, decode_sql, data)
    return decode_sql(data)


def decode_sql(data: bytes) -> SqlRequest:
    """Return the request in a body; raises ProtocolViolation."""
    return _checked(_decoded(_sql, data))


def socket_start(data: bytes) -> SocketStart:
    """Return the first message of a WebSocket; raises ProtocolViolation."""
    return _decoded(_start, data)


async def socket_request(data: bytes) -> SocketRequest:
    """Return a later message of a WebSocket; raises ProtocolViolation."""

    def decode() -> SocketRequest:
        found = _decoded(_socket, data)
        return found if found.cancel else _checked(found)

    return await blocking.run(None, decode) if len(data) > LONG else decode()


def options_of(text: str) -> dict[str, str]:
    """Return the session variables that a query parameter gives; raises ProtocolViolation."""
    return option_texts(_decoded(_options, text.encode())) if text else {}


def option_texts(options: Options | None) -> dict[str, str]:
    """Return the texts of session variables; raises ProtocolViolation if they are too long."""
    given = (options or {}).items()
    found = {name: each if isinstance(each, str) else str(each).lower() for name, each in given}
    if sum(len(name) + len(each) for name, each in found.items()) > MOST_OPTIONS:
        raise ProtocolViolation(
            f"options may have at most {MOST_OPTIONS} characters", sqlstate="54000"
        )
    return found


def params_of(text: str) -> tuple[Any, ...]:
    """Return the parameters that a query parameter gives; raises ProtocolViolation."""
    return _decoded(_params, text.encode()) if text else ()


def _decoded(decoder: "msgspec.json.Decoder[T]", data: bytes) -> T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolViolation(
            f"invalid request: {describe_json_error(error)}", hint=_HINT
        ) from None


def _checked(request: R) -> R:
    if (request.query is None) == (request.queries is None):
        raise ProtocolViolation('invalid request: it needs either "query" or "queries"', hint=_HINT)
    if request.params is not None:
        if request.query is None:
            raise ProtocolViolation('invalid request: "params" are beside "query"', hint=_HINT)
        only = ExtendedQuery(request.query, request.params)
        request = msgspec.structs.replace(request, query=None, params=None, queries=(only,))
    for text in request.texts:
        check_text(text)
    for each in request.queries or ():
        check_values(each.params)
    return request
