"""What a process answers to a request."""

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import dataclass

from foreshore.errors import DatabaseError
from foreshore.processes.messages import Message
from foreshore.processes.transport import Tables
from foreshore.storage.external.process import Send
from foreshore.storage.external.process_memory import out_of_memory

logger = logging.getLogger(__name__)


class Done(Message, frozen=True):
    """A request was carried out."""


class Refused(Message, frozen=True):
    """A request could not be carried out: the fields of an error."""

    error: str
    sqlstate: str
    detail: str | None = None
    hint: str | None = None


@dataclass(frozen=True, slots=True)
class WithTables:
    """An answer that comes with tables."""

    message: Message
    tables: Tables


async def answered(work: Awaitable[Message | WithTables]) -> Message | WithTables:
    """Return what `work` does, or Refused with its error."""
    try:
        return await work
    except DatabaseError as error:
        return Refused(error.message, error.sqlstate, error.detail, error.hint)
    except OSError as error:
        return Refused(str(error), "08001")
    except MemoryError:
        refused = out_of_memory()
        return Refused(refused.message, refused.sqlstate, refused.detail, refused.hint)
    except Exception as error:
        logger.exception("a request has failed")
        return Refused(f"internal error: {error}", "XX000")


class Answering:
    """Answers requests beside each other."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Awaitable[Message | WithTables], send: Send) -> None:
        """Send what `work` returns, or Refused, when it is there."""
        task = asyncio.get_running_loop().create_task(self._answer(work, send))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, work: Awaitable[Message | WithTables], send: Send) -> None:
        found = await answered(work)
        if isinstance(found, WithTables):
            send(found.message, found.tables)
        else:
            send(found)
