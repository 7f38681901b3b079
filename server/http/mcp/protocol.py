"""The messages of the Model Context Protocol: JSON-RPC 2.0, one message in one POST.

    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "query", ...}}

Two kinds of revisions are spoken. Those up to 2025-11-25 begin with `initialize`. Since 2026-07-28
each request says in `_meta` which revision it is of, and repeats its method and name in headers.
Neither needs a session: nothing is kept between two requests.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from foreshore.json_errors import describe_json_error
from foreshore.server.http.messages import as_json
from foreshore.server.http.params import decoder

STATELESS = ("2026-07-28",)
HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26")  # the newest first
SUPPORTED = (*STATELESS, *HANDSHAKE)

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
HEADER_MISMATCH = -32020
UNSUPPORTED_VERSION = -32022

_STATUS = {METHOD_NOT_FOUND: 404, INTERNAL_ERROR: 500}  # of stateless revisions; 400 of others
_META = "io.modelcontextprotocol/"
_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class RpcError(Exception):
    """A request that is answered by an error; `data` tells the client more."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


@dataclass(frozen=True, slots=True)
class Call:
    """A request; without an id it is a notification, which has no answer."""

    id: int | str | None
    method: str
    params: Mapping[str, Any]
    version: str | None  # None: of a revision with a handshake that the request does not name

    @property
    def is_stateless(self) -> bool:
        """Whether it is of a revision without a handshake."""
        return self.version in STATELESS


class Message(msgspec.Struct, frozen=True):
    """A message as it came; one without a method is an answer, which is ignored."""

    jsonrpc: str
    id: int | str | None = None
    method: str | None = None
    params: dict[str, Any] = {}


_decoder = decoder(Message)


def decoded(body: bytes) -> Message:
    """Return the message in a body; raises RpcError."""
    try:
        message = _decoder.decode(body)
    except msgspec.ValidationError as error:
        raise RpcError(INVALID_REQUEST, f"invalid request: {describe_json_error(error)}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RpcError(PARSE_ERROR, describe_json_error(error)) from None
    if message.jsonrpc != "2.0":
        raise RpcError(INVALID_REQUEST, 'invalid request: "jsonrpc" must be "2.0"')
    return message


def call_of(message: Message, headers: Mapping[str, str]) -> Call:
    """Return a request, with headers whose names are in lower case; raises RpcError."""
    assert message.method is not None
    call = Call(message.id, message.method, message.params, _version(message, headers))
    if call.is_stateless and call.id is not None:
        _check_headers(call, headers)
    return call


def _version(message: Message, headers: Mapping[str, str]) -> str | None:
    """Return the revision that a request names; raises RpcError if it is not supported."""
    given = message.params.get("_meta")
    meta = given if isinstance(given, dict) else {}
    named, stated = headers.get("mcp-protocol-version"), meta.get(f"{_META}protocolVersion")
    version = stated if named is None else named
    if version is not None and version not in SUPPORTED:
        raise _unsupported(version)
    if message.id is not None and stated is not None and named != stated:
        raise RpcError(HEADER_MISMATCH, 'the header MCP-Protocol-Version and "_meta" differ')
    if message.id is not None and version in STATELESS:
        for member, kind in (("protocolVersion", str), ("clientCapabilities", dict)):
            if not isinstance(meta.get(f"{_META}{member}"), kind):
                raise RpcError(INVALID_PARAMS, f'the request needs "{_META}{member}" in "_meta"')
    return version


def _check_headers(call: Call, headers: Mapping[str, str]) -> None:
    """Raise RpcError unless the headers repeat the method and the name of a request."""
    if headers.get("mcp-method") != call.method:
        raise RpcError(HEADER_MISMATCH, "the header Mcp-Method and the method differ")
    member = _NAMED_BY.get(call.method)
    if member is None:
        return
    if _header_text(headers.get("mcp-name", "")) != call.params.get(member):
        raise RpcError(HEADER_MISMATCH, f'the header Mcp-Name and "{member}" differ')


def _header_text(value: str) -> str | None:
    """Return the text of a header, which may be in Base64; None if it is not valid."""
    if not (value.startswith("=?base64?") and value.endswith("?=")):
        return value
    try:
        return base64.b64decode(value[9:-2], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None


def _unsupported(version: object) -> RpcError:
    """Return the error of a request of a revision that is not spoken."""
    data = {"supported": SUPPORTED, "requested": version}
    return RpcError(UNSUPPORTED_VERSION, "unsupported protocol version", data)


def agreed(requested: object) -> str:
    """Return the revision that answers an `initialize`."""
    return requested if isinstance(requested, str) and requested in HANDSHAKE else HANDSHAKE[0]


def result(call: Call, members: Mapping[str, Any]) -> bytes:
    """Return the answer to a request."""
    shown = {"resultType": "complete", **members} if call.is_stateless else members
    return as_json({"jsonrpc": "2.0", "id": call.id, "result": shown})


def failure(id: int | str | None, error: RpcError) -> bytes:
    """Return the answer to a request that has failed."""
    fields = {"code": error.code, "message": error.message}
    if error.data is not None:
        fields["data"] = error.data
    return as_json({"jsonrpc": "2.0", "id": id, "error": fields})


def status_of(call: Call | None, error: RpcError) -> int:
    """Return the HTTP status of an error; `call` is None if it has not been understood."""
    if call is not None and not call.is_stateless:
        return 200
    return _STATUS.get(error.code, 400)
