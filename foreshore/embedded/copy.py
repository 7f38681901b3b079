"""`foreshore.replica`: a live local copy of a query, for programs without an event loop."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from foreshore.embedded.copy_async import AsyncCopy, CopyEvent, State, replica_async
from foreshore.embedded.database import LoopThread
from foreshore.embedded.result import Result
from foreshore.errors import DatabaseError


class Copy:
    """A table that follows a query; any thread may use it."""

    def __init__(self, loop: LoopThread, copy: AsyncCopy) -> None:
        self._loop, self._copy = loop, copy
        self._closed = False

    @property
    def time(self) -> int | None:
        """The time, in milliseconds since 1970, at which the copy is right; None: not yet."""
        return self._copy.time

    @property
    def state(self) -> State:
        """Whether it is `live`; `disconnected` ones are right at their time, and go on trying."""
        return self._copy.state

    @property
    def error(self) -> DatabaseError | None:
        """The error of a copy that is disconnected or failed."""
        return self._copy.error

    @property
    def received(self) -> int:
        """How many rows the server has sent since the copy was opened."""
        return self._copy.received

    def sql(self, text: str, params: Sequence[Any] = ()) -> Result:
        """Return the rows of a query in DuckDB's SQL, which reads one moment of the copy."""
        return self._loop.wait(self._copy.sql(text, params))

    def sql_with_time(self, text: str, params: Sequence[Any] = ()) -> tuple[int, Result]:
        """Return also the time of that moment."""
        return self._loop.wait(self._copy.sql_with_time(text, params))

    def wait(self, time: int | None = None, timeout: float | None = None) -> int:
        """Wait until the copy has all changes up to `time`, by default the server's present.

        Returns the copy's time. Raises TimeoutError after `timeout` seconds, or the error that has
        ended the copy.
        """
        return self._loop.wait(self._copy.wait(time, timeout))

    def close(self) -> None:
        """Follow no more, and close the file. The durable subscription stays."""
        if not self._closed:
            self._closed = True
            self._loop.wait(self._copy.close())
            self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def replica(
    where: str | Path,
    query: str,
    *,
    path: str | Path | None = None,
    table: str = "copy",
    subscription: str | None = None,
    on_event: Callable[[CopyEvent], None] | None = None,
) -> Copy:
    """Keep a table of DuckDB equal to the result of a query at a server.

    The table is in the file `path`, with the time at which it is right, or in memory. It goes on
    through lost connections, and in later processes, from that time. If it has contents, this
    returns at once, also while the server is away; else it returns with the first contents.
    `subscription` names a durable subscription of the server, which is made and keeps the history
    for the copy however long it is away. `on_event` is called, on the thread of the copy, when it
    is connected or disconnected, when contents have not come for two seconds, and when they were
    read again.

    Raises LockFileExists if another process has the file, InvalidParameterValue if it is the copy
    of another query.
    """
    loop = LoopThread()
    try:
        copy = loop.wait(
            replica_async(
                where,
                query,
                path=path,
                table=table,
                subscription=subscription,
                on_event=on_event,
            )
        )
    except BaseException:
        loop.close()
        raise
    return Copy(loop, copy)
