"""Statements: run a request in a session, by the rules of the simple or the extended protocol."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from sys import getsizeof
from typing import Any

from foreshore import blocking
from foreshore.adapter.client import CopyIn, CopyOut, Execution, Session, Statement
from foreshore.array_text import ShapeNotSupported
from foreshore.errors import FeatureNotSupported
from foreshore.server.http.params import text_of
from foreshore.server.http.requests import ExtendedQuery, SqlRequest
from foreshore.server.message import Bind
from foreshore.server.parameters import arguments, with_shapes
from foreshore.types import Datum, SqlType

LONG_ARGUMENTS = 1 << 17  # bytes of parameters: some ten milliseconds of decoding


async def executions(session: Session, request: SqlRequest) -> AsyncGenerator[Execution, None]:
    """Run the statements in order, in one implicit transaction, up to the first that fails.

    Each Execution is consumed before the next one is asked for. Raises DatabaseError.
    """
    if request.query is not None:
        found = session.simple(request.query)
    else:
        found = _extended(session, request.queries or ())
    try:
        async for execution in found:
            refuse_copy(execution)
            yield execution
    finally:
        if (close := getattr(found, "aclose", None)) is not None:
            await close()


async def _extended(session: Session, queries: Sequence[ExtendedQuery]) -> AsyncIterator[Execution]:
    for number, each in enumerate(queries, 1):
        yield await begin(session, each, last=number == len(queries))
        await session.extended.close_portal("")
    await session.extended.sync()


async def begin(session: Session, query: ExtendedQuery, *, last: bool) -> Execution:
    """Run one statement with its parameters; `last` if its implicit transaction ends with it."""
    await bind(session, await session.extended.parse("", query.query, ()), query.params)
    return await session.extended.execute("", 0, last=last)


async def bind(session: Session, statement: Statement, params: Sequence[Any]) -> None:
    """Bind the unnamed statement to the values of its parameters."""
    try:
        args = await _arguments(session, params, statement.parameters)
    except ShapeNotSupported:
        texts = _as_bind(params, statement.parameters)
        statement = session.extended.statement("", with_shapes(texts, statement.parameters))
        args = await _arguments(session, params, statement.parameters)
    await session.extended.bind("", statement, args, ())


async def _arguments(
    session: Session, params: Sequence[Any], types: Sequence[SqlType]
) -> list[Datum]:
    """Return the parameters' values; those that may be long are decoded on a thread."""
    zone = session.time_zone
    # As many as are not expected are refused before they are looked at.
    if len(params) != len(types) or sum(map(_size, params)) <= LONG_ARGUMENTS:
        return _decoded(params, types, zone)
    return await blocking.run(None, _decoded, params, types, zone)


def _decoded(params: Sequence[Any], types: Sequence[SqlType], zone: str) -> list[Datum]:
    return arguments(_as_bind(params, types), types, zone)


def _as_bind(params: Sequence[Any], types: Sequence[SqlType]) -> Bind:
    """Return the message that has the values of parameters as texts."""
    values: Sequence[bytes | None] = (None,) * len(params)
    if len(params) == len(types):
        texts = [text_of(value, type) for value, type in zip(params, types, strict=True)]
        values = [None if each is None else each.encode() for each in texts]
    return Bind("", "", (), values, ())


def _size(value: Any) -> int:
    """Return about the bytes of a parameter; arrays and objects of any size count as long ones."""
    if isinstance(value, str):
        return len(value)
    return LONG_ARGUMENTS + 1 if isinstance(value, list | tuple | dict) else getsizeof(value)


def refuse_copy(execution: Execution) -> None:
    """Raise FeatureNotSupported for COPY with the client, which HTTP has no messages for."""
    if isinstance(execution, CopyIn):
        execution.target.abort()
    if isinstance(execution, CopyIn | CopyOut):
        way = "FROM STDIN" if isinstance(execution, CopyIn) else "TO STDOUT"
        raise FeatureNotSupported(
            f"COPY {way} is not supported over HTTP",
            hint="Use the PostgreSQL port, INSERT with parameters, or a query.",
        )
