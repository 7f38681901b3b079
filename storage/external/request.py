"""Requests: what a process of its own finds out or does, once."""

import asyncio
from typing import Any

from foreshore.errors import ConnectionFailure, DatabaseError
from foreshore.processes.handshake import Handshake
from foreshore.processes.launch import Launcher
from foreshore.processes.messages import Hello, Message
from foreshore.processes.transport import Connection, Tables
from foreshore.storage.external.answers import Refused

LONGEST_SECONDS = 30.0


async def answer_to(launcher: Launcher, request: Message, answers: Any) -> Any:
    """Return the answer of a process that is started for it; see `answer_with_tables`."""
    found, _ = await answer_with_tables(launcher, request, answers)
    return found


async def answer_with_tables(
    launcher: Launcher, request: Message, answers: Any, longest_seconds: float = LONGEST_SECONDS
) -> tuple[Any, Tables]:
    """Return the answer of a process that is started for it, one of `answers`, and its tables.

    Raises DatabaseError if it is refused, or does not come within some seconds.
    """
    answer: asyncio.Future[tuple[Any, Tables]] = asyncio.get_running_loop().create_future()

    def deliver(found: Any, tables: Tables) -> None:
        if not answer.done():
            answer.set_result((found, tables))

    def lost() -> None:
        if not answer.done():
            answer.set_exception(ConnectionFailure("the process that asks has ended"))

    try:
        async with asyncio.timeout(longest_seconds), launcher.start() as process:
            connection: Connection[Any] = Connection(
                answers,
                lambda _, found, tables: deliver(found, tables),
                lambda _: lost(),
                Handshake("connects", process.secret),
            )
            await process.connect(connection)
            try:
                if process.exited.is_set():
                    lost()
                else:
                    await connection.proven()
                    connection.send(Hello("request"))
                    connection.send(request)
                found, tables = await answer
            finally:
                connection.abort()
    except TimeoutError:
        raise ConnectionFailure(
            f"the external system has not answered within {longest_seconds:.0f} seconds"
        ) from None
    except OSError as error:
        raise ConnectionFailure(f"no process: {error}") from error
    if isinstance(found, Refused):
        raise DatabaseError(
            found.error, sqlstate=found.sqlstate, detail=found.detail, hint=found.hint
        )
    return found, tables
