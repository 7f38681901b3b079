"""The client: what the adapter offers to whoever speaks to people, as Protocols.

A `Client` is one per environment and makes `Session`s, one per connection. A session takes SQL and
arguments and gives `Execution`s: what there is to send. Data crosses as Arrow record batches in the
physical form of `foreshore.types`, arguments as datums; the encodings, and the formats of COPY, are
the server's business.

The rules of the conversation:

- One call at a time; an Execution is used up before the next call. Any call or iteration may raise
  DatabaseError. Whoever calls then says `await session.fail()`, once, whatever raised it (also its
  own faults, such as an argument that cannot be decoded); the session puts its transaction into
  the right state there, and nowhere else needs to.
- Cancelling the task that awaits a call (the client is gone) stops the work; `close` follows.
- `simple` runs the statements of one Query message by PostgreSQL's rules of implicit transactions;
  what has to be durable for the last of them is so before its Completed is given.
- In the extended protocol an implicit transaction ends with `sync`, which may raise; or, if it is
  one statement that changes something, with that.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa

from foreshore.errors import DatabaseError
from foreshore.sql.plan import CopyOptions as CopyOptions
from foreshore.text import OutputStyle
from foreshore.types import Datum, RelationDesc, SqlType


@dataclass(frozen=True, slots=True)
class Startup:
    """Who connects and what they ask for; authenticated where that is required."""

    user: str
    database: str
    parameters: Mapping[str, str]  # all others of the startup message, `options` included
    peer: str = ""  # the client's address, for logs and pg_stat_activity


@dataclass(frozen=True, slots=True)
class Notice:
    """Something to tell the client beside its results."""

    message: str
    severity: str = "NOTICE"
    sqlstate: str = "00000"
    detail: str | None = None
    hint: str | None = None


# --- what a statement gives -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Completed:
    """It is done; `tag` is the CommandComplete."""

    tag: str


@dataclass(frozen=True, slots=True)
class EmptyQuery:
    """There was no statement."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows, in `desc`'s columns, and then the tag for their number.

    In the extended protocol at most as many come as `execute` was asked for, and `suspended()`
    tells then whether the portal has more. `streaming` asks that each batch be sent at once: the
    next may be a long time coming (SUBSCRIBE).
    """

    desc: RelationDesc
    batches: AsyncIterator[pa.RecordBatch]
    tag: Callable[[int], str]
    suspended: Callable[[], bool] = _never
    streaming: bool = False


class CopyTarget(Protocol):
    """Where the rows of a COPY FROM STDIN go; nothing is visible before `finish`."""

    async def write(self, batch: pa.RecordBatch) -> None:
        """Take more rows, in the columns of `CopyIn.desc`."""
        ...

    async def finish(self, *, last: bool) -> str:
        """Complete the statement; return its tag. By the usual rules of transactions, no sooner.

        `last` says that nothing else follows in its implicit transaction.
        """
        ...

    def abort(self) -> None:
        """Forget all rows; the client failed, or is gone."""
        ...


@dataclass(frozen=True, slots=True)
class CopyIn:
    """COPY `table` FROM STDIN of the columns `desc`."""

    table: str
    desc: RelationDesc
    options: CopyOptions
    target: CopyTarget


@dataclass(frozen=True, slots=True)
class CopyOut:
    """COPY TO STDOUT of rows in the columns `desc`."""

    desc: RelationDesc
    options: CopyOptions
    batches: AsyncIterator[pa.RecordBatch]
    tag: Callable[[int], str]
    streaming: bool = False


Execution: TypeAlias = Completed | Rows | CopyIn | CopyOut | EmptyQuery


# --- what the adapter implements ------------------------------------------------------------


class Statement(Protocol):
    """A prepared statement."""

    @property
    def parameters(self) -> tuple[SqlType, ...]:
        """The types of its parameters, inferred where they were not stated."""
        ...

    @property
    def desc(self) -> RelationDesc | None:
        """The columns of its rows; None if it gives none."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether the text held no statement."""
        ...


class Portal(Protocol):
    """A statement with arguments, ready to run or running."""

    @property
    def desc(self) -> RelationDesc | None:
        """The columns of its rows; None if it gives none."""
        ...

    @property
    def changes(self) -> bool:
        """Whether it matters for it to know that it is the last before a Sync."""
        ...

    @property
    def formats(self) -> Sequence[int]:
        """The result formats as `bind` was given them: none, one for all, or one for each."""
        ...


class Session(Protocol):
    """One connection's conversation with the database."""

    @property
    def pid(self) -> int:
        """The number by which the session is known, also to a cancel request."""
        ...

    @property
    def secret(self) -> int:
        """The key that a cancel request must have; 32 random bits."""
        ...

    @property
    def transaction_status(self) -> str:
        """I outside of a transaction block, T inside, E inside a failed one."""
        ...

    @property
    def time_zone(self) -> str:
        """The session's time zone, in which timestamptz are shown and read."""
        ...

    def output_style(self, *, names: bool) -> OutputStyle:
        """Return how the session has values shown; with the `names` of objects if asked for."""
        ...

    def changed_parameters(self) -> Mapping[str, str]:
        """Return what ParameterStatus has to tell since the last call; at first, all of them."""
        ...

    def notices(self) -> Sequence[Notice]:
        """Return the notices since the last call."""
        ...

    def interruptible(self) -> AbstractContextManager[None]:
        """Let a cancel request or a time-out interrupt the body, which is a part of a statement."""
        ...

    def when_noticed(self, tell: Callable[[], None]) -> None:
        """Have `tell` called when there are notices that should not wait for an answer."""
        ...

    def when_terminated(self, end: Callable[[DatabaseError], None]) -> None:
        """Have `end` called, with the reason, when the session is to end whatever happens."""
        ...

    def terminate(self, reason: DatabaseError) -> None:
        """Let the session end at once with `reason`, but for a commit that is on its way."""
        ...

    async def parse(self, name: str, sql: str, parameter_oids: Sequence[int]) -> Statement:
        """Prepare a statement; `""` is the unnamed one, which is replaced. 0 is: infer the type."""
        ...

    def told(self) -> None:
        """Hear that the client is told the columns of what it has prepared; `sync` says so, too.

        Until then they may turn out to be others when it is run: those of its `Rows`.
        """
        ...

    def statement(self, name: str) -> Statement:
        """Return the prepared statement; raises InvalidSqlStatementName."""
        ...

    async def bind(
        self, portal: str, statement: str, args: Sequence[Datum], result_formats: Sequence[int]
    ) -> Portal:
        """Make a portal; `""` is the unnamed one, which is replaced.

        An argument of a reg* type that is no number comes as its text, to be looked up as a name.
        """
        ...

    def portal(self, name: str) -> Portal:
        """Return the portal; raises InvalidCursorName."""
        ...

    async def execute(self, portal: str, max_rows: int, *, last: bool = False) -> Execution:
        """Run the portal, or go on with it, for at most `max_rows` rows (0: all).

        `last` says that a Sync follows: if it is the first of its transaction, too, it is
        committed before it gives anything, and so can be run again after a conflict.
        """
        ...

    async def close_statement(self, name: str) -> None:
        """Forget a prepared statement, if there is one, and its portals."""
        ...

    async def close_portal(self, name: str) -> None:
        """Forget a portal, if there is one."""
        ...

    async def sync(self) -> None:
        """End the implicit transaction, if there is one."""
        ...

    def simple(self, sql: str) -> AsyncIterator[Execution]:
        """Run all statements of `sql` one after the other, up to the first that fails."""
        ...

    async def fail(self) -> None:
        """Hear of an error: a transaction block becomes failed, an implicit one is rolled back."""
        ...

    async def close(self) -> None:
        """End the session and all that it holds."""
        ...


class Client(Protocol):
    """An environment, as the server sees it."""

    async def connect(self, startup: Startup) -> Session:
        """Begin a session; raises InvalidAuthorization, InvalidCatalogName and the like."""
        ...

    def cancel(self, pid: int, secret: int) -> None:
        """Cancel what the session `pid` runs, if `secret` is its key; else do nothing."""
        ...


__all__ = [
    "Client",
    "Completed",
    "CopyIn",
    "CopyOptions",
    "CopyOut",
    "CopyTarget",
    "EmptyQuery",
    "Execution",
    "Notice",
    "Portal",
    "Rows",
    "Session",
    "Startup",
    "Statement",
]
