"""The adapter's interface to the server, as Protocols.

An environment has one `Client`, which makes a `Session` for each connection. A session takes SQL
and arguments and returns `Execution`s, the results to send. Rows are Arrow record batches in the
physical form of `foreshore.types`, arguments are datums. The server does the encodings, and the
formats of COPY.

Rules:

- One call at a time, and an Execution is consumed before the next call. Any call or iteration may
  raise DatabaseError. After an error, also one of the caller's own, such as an argument that cannot
  be decoded, the caller awaits `session.fail()` once. This puts the transaction into the right
  state.
- Cancelling the task that awaits a call, because the client is gone, stops the work; `close`
  follows.
- `simple` runs the statements of one Query message by PostgreSQL's rules of implicit transactions.
  The changes are durable before the last statement's Completed is returned.
- In the extended protocol `sync` ends an implicit transaction and may raise. If the transaction is
  one statement that changes something, this statement ends it.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
from msgspec import Struct

from foreshore.catalog.item import Role
from foreshore.errors import DatabaseError, InvalidParameterValue, Unavailable
from foreshore.notifications import Notification
from foreshore.output_style import OutputStyle
from foreshore.sql.plan import CopyOptions as CopyOptions
from foreshore.table_rows import Row
from foreshore.tokens import AccessToken
from foreshore.types import Datum, RelationDesc, SqlType


class HistoryGone(InvalidParameterValue):
    """A past time cannot be read, as the history from then on is not kept."""


class TooManyRequests(Unavailable):
    """More requests of webhooks wait than are kept."""

    sqlstate = "53400"

    def __init__(self) -> None:
        super().__init__("too many requests wait to be written", hint="Try it again later.")


@dataclass(frozen=True, slots=True)
class Login:
    """A role, as far as it matters before its client has a session."""

    id: str
    name: str
    superuser: bool = True
    can_login: bool = True
    verifier: str | None = None  # of the password, as `foreshore.scram` writes it
    valid_until: int | None = None  # of the password, in microseconds since 1970
    connection_limit: int = -1  # none
    groups: frozenset[str] = frozenset()  # names of the role and of those it is a member of
    token: int | None = None  # the number of the access token that its client has shown


@dataclass(frozen=True, slots=True)
class Encryption:
    """The TLS of a connection, as pg_stat_ssl shows it."""

    version: str  # such as TLSv1.3
    cipher: str
    bits: int  # of its key
    client_dn: str | None = None  # the name in the client's certificate
    issuer_dn: str | None = None


@dataclass(frozen=True, slots=True)
class Startup:
    """The startup message of an authenticated client."""

    user: str
    database: str
    parameters: Mapping[str, str]  # session variables that it sets
    peer: str = ""  # the client's address, for logs and pg_stat_activity
    key_bytes: int = 4  # the length of the key that a cancel request must have
    encryption: Encryption | None = None
    login: Login | None = None  # what the client has proven to be


@dataclass(frozen=True, slots=True)
class Backend:
    """A session as pg_stat_activity shows it, and its key."""

    address: str = ""  # of the client; empty for a session of the environment's own
    encryption: Encryption | None = None
    kind: str = "background worker"
    secret: bytes = b""  # that a cancel request must have


@dataclass(frozen=True, slots=True)
class Notice:
    """A message to the client beside its results."""

    message: str
    severity: str = "NOTICE"
    sqlstate: str = "00000"
    detail: str | None = None
    hint: str | None = None


# --- results of a statement -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadRelation:
    """A relation that a statement names; `name` has its schema, with quotes where needed.

    The kind is "table", "view" or "materialized view"; an index counts on any cluster.
    """

    name: str
    kind: str
    is_indexed: bool


@dataclass(frozen=True, slots=True)
class Reading:
    """The relations that a prepared statement reads, and its other effects.

    `order` is how the query of a SUBSCRIBE orders its result: columns from 0, whether they descend,
    and whether NULLs come first.
    """

    is_query: bool  # whether it is a query and nothing else
    relations: Sequence[ReadRelation]  # that it names; not the system's
    reads_system: bool  # whether it reads relations of the system
    acts: Sequence[str]  # the functions it calls that change something outside of its result
    order: Sequence[tuple[int, bool, bool]] = ()


class Completed(Struct, frozen=True):
    """The statement is complete; `tag` is the text of CommandComplete."""

    tag: str


@dataclass(frozen=True, slots=True)
class EmptyQuery:
    """The text had no statement."""


UNCOUNTED = ("SHOW", "EXPLAIN", "CREATE TOKEN")  # verbs of tags without a number of rows


class Rows(Struct):
    """Rows in the columns of `desc`, and the verb of the tag.

    In the extended protocol there are at most as many as `execute` asked for; once they are taken,
    the portal `has_more` or not. If `streaming`, each batch is to be sent at once, because the next
    one may come much later (SUBSCRIBE). Few rows may be there as `tuples`, whose data are of the
    columns' types; the batches give the same rows.
    """

    desc: RelationDesc
    verb: str
    make_batches: Callable[["Rows"], AsyncIterator[pa.RecordBatch]]
    has_more: bool = False
    streaming: bool = False
    tuples: Sequence[Row] | None = None
    binary: bool = False  # in the simple protocol the values are binary

    @property
    def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """The rows, to be taken once."""
        return self.make_batches(self)

    def tag(self, count: int) -> str:
        """Return the tag for this number of rows."""
        return self.verb if self.verb in UNCOUNTED else f"{self.verb} {count}"


class CopyTarget(Protocol):
    """Takes the rows of a COPY FROM STDIN; nothing is visible before `finish`."""

    async def write(self, batch: pa.RecordBatch) -> None:
        """Add rows in the columns of `CopyIn.desc`."""

    async def finish(self, *, last: bool) -> str:
        """Complete the statement and return its tag; the transaction ends by the usual rules.

        If `last`, nothing else follows in its implicit transaction.
        """

    def abort(self) -> None:
        """Discard all rows, because the client failed or is gone."""


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


# --- implemented by the adapter -------------------------------------------------------------


class Statement(Protocol):
    """A prepared statement."""

    @property
    def parameters(self) -> tuple[SqlType, ...]:
        """The types of its parameters, inferred if they were not declared."""

    @property
    def desc(self) -> RelationDesc | None:
        """The columns of its rows; None if it returns none."""

    @property
    def is_empty(self) -> bool:
        """Whether the text has no statement."""

    @property
    def changes(self) -> bool:
        """Whether running it may leave something to commit."""


class Portal(Protocol):
    """A statement with arguments."""

    @property
    def desc(self) -> RelationDesc | None:
        """The columns of its rows; None if it returns none."""

    @property
    def changes(self) -> bool:
        """Whether `execute` must be told that a Sync follows."""

    @property
    def formats(self) -> Sequence[int]:
        """The result formats given to `bind`: none, one for all columns, or one for each."""


class ExtendedProtocol(Protocol):
    """The prepared statements and portals of a session, as the server uses them."""

    async def parse(self, name: str, sql: str, parameter_oids: Sequence[int]) -> Statement:
        """Prepare a statement; `""` replaces the unnamed one. Types given as 0 are inferred."""

    def told(self) -> None:
        """Note that the client knows the columns of its prepared statements, as `sync` does.

        Until then a statement may have other columns when it runs; its `Rows` have these.
        """

    def statement(self, name: str, types: Sequence[SqlType] = ()) -> Statement:
        """Return the prepared statement; raises InvalidSqlStatementName.

        If `types` are given it is another one with the same text, planned for parameters of these.
        """

    def meaning(self, statement: str) -> str:
        """Return a digest of the objects that a prepared query stands for, and of their policies.

        As long as it is the same, a copy of the result can be carried on from an earlier time.
        """

    def reading(self, statement: str) -> Reading:
        """Return what a prepared statement reads."""

    async def bind(
        self,
        portal: str,
        name: Any,
        args: Sequence[Datum],
        formats: Sequence[int],
        size: int = 0,
    ) -> Portal:
        """Make a portal of a statement, perhaps given by its name; `""` replaces the unnamed one.

        `size` is that of the arguments in bytes.

        An argument of a reg* type that is not a number is its text, looked up as a name.
        """

    def portal(self, name: str) -> Portal:
        """Return the portal; raises InvalidCursorName."""

    async def execute(self, portal: str, max_rows: int, *, last: bool = False) -> Execution:
        """Run or continue the portal for at most `max_rows` rows (0: all).

        If `last`, a Sync follows. If it is also the first statement of its transaction, it commits
        before it returns anything, and so can run again after a conflict.
        """

    def find_statement(self, name: str) -> Statement | None:
        """Return a prepared statement whose executions may be given to `run`, if there is one."""

    def takes_many(self, statement: Any) -> bool:
        """Whether `run` may run several executions of a statement as one."""

    async def ready(self, statement: Any) -> None:
        """Plan a statement of `find_statement` again if it has to be, as `bind` does."""

    async def run(
        self,
        statement: Any,
        many: Sequence[Sequence[Datum]],
        formats: Sequence[int],
        max_rows: int,
        *,
        last: bool,
    ) -> Sequence[Execution]:
        """Bind the unnamed portal to the first of `many` arguments and run it, or some as one.

        The statement is `ready`. If `last`, a Sync follows the last ones. Results are for the first
        arguments; an error is that of the first.
        """

    async def close_statement(self, name: str) -> None:
        """Close a prepared statement, if it exists, and its portals."""

    async def close_portal(self, name: str) -> None:
        """Close a portal, if it exists."""

    async def sync(self) -> None:
        """End the implicit transaction, if there is one."""


class News(Protocol):
    """Notices, notifications and changed parameters for the client of a session."""

    def changed_parameters(self) -> Mapping[str, str]:
        """Return the reported parameters that changed since the last call; at first, all."""

    @property
    def may_wait(self) -> bool:
        """Whether notices, notifications or changed parameters may be there."""

    def notices(self) -> Sequence[Notice]:
        """Return the notices since the last call."""

    def when_noticed(self, tell: Callable[[], None]) -> None:
        """Call `tell` when there are notices that should be sent at once."""

    def notifications(self, most: int) -> Sequence[Notification]:
        """Return the next notifications, at most so many; none within a transaction."""

    def when_notified(self, tell: Callable[[], None]) -> None:
        """Call `tell` when there are notifications."""


class Interrupts(Protocol):
    """Ends the running statement of a session, or the session."""

    def running(self) -> AbstractContextManager[None]:
        """Let a cancel request or a time-out interrupt the body, a part of a statement."""

    def when_terminated(self, end: Callable[[DatabaseError], None]) -> None:
        """Call `end` with the reason when the session has to end."""

    def terminate(self, reason: DatabaseError) -> None:
        """End the session with `reason`, after a commit that is under way."""


class Session(Protocol):
    """The session of one connection."""

    @property
    def pid(self) -> int:
        """The number of the session, which cancel requests use."""

    @property
    def transaction_status(self) -> str:
        """I outside a transaction block, T inside, E inside a failed one."""

    @property
    def backend(self) -> Backend:
        """Its client, and the key that cancel requests must have."""

    @property
    def news(self) -> News:
        """Notices, notifications and changed parameters."""

    @property
    def interrupts(self) -> Interrupts:
        """Ends the running statement, or the session."""

    @property
    def extended(self) -> ExtendedProtocol:
        """The statements and portals of the extended protocol."""

    @property
    def time_zone(self) -> str:
        """The time zone in which timestamptz values are written and read."""

    @property
    def client_encoding(self) -> str:
        """PostgreSQL's name of the encoding in which the client reads and writes texts."""

    def output_style(self, *, names: bool) -> OutputStyle:
        """Return how the session shows values, with `names` of objects if requested."""

    def outlives_client(self) -> bool:
        """Whether what runs goes on to its end, as in PostgreSQL, now that the client has gone."""

    def simple(self, sql: str) -> AsyncIterator[Execution]:
        """Run the statements of `sql` in order, up to the first that fails."""

    def explained(self, error: DatabaseError) -> DatabaseError:
        """Return an error as the client gets it: one in the data of a view names the view."""

    async def fail(self, error: DatabaseError | None = None) -> None:
        """Fail the transaction block, or roll back the implicit transaction, after an error.

        `error` is the one sent to the client; the history of statements keeps it.
        """

    async def close(self) -> None:
        """End the session and release its resources."""


# Takes a role, a database and session variables.
OpenSession: TypeAlias = Callable[["Role", str, Mapping[str, str]], Session]


class ServerConfiguration(Protocol):
    """The configuration files of the server, as far as statements can look at them."""

    def reload(self) -> bool:
        """Read the files again, and return whether all can be used. It reads files."""

    def rules(self) -> Sequence[Mapping[str, Any]]:
        """Return the rules of who may connect, as they are written at present. It reads a file.

        They have the columns of pg_hba_file_rules.
        """


class Client(Protocol):
    """An environment's interface to the server."""

    def login(self, name: str) -> Login | None:
        """Return what is known of a role; None if there is none of this name."""

    def login_by(self, token: AccessToken) -> Login | None:
        """Return the role whose token this is; None if it is none, has expired or was dropped."""

    async def connect(self, startup: Startup) -> Session:
        """Start a session; raises InvalidAuthorization, InvalidCatalogName and the like."""

    def has_condition(self, webhook: tuple[str, str, str]) -> bool:
        """Return whether the webhook database.schema.name has a CHECK; raises UndefinedTable."""
        ...

    async def receive(
        self, webhook: tuple[str, str, str], headers: Mapping[str, bytes], body: bytes
    ) -> None:
        """Write the rows of a request to the webhook database.schema.name, durably.

        The names of headers are in lower case. Raises UndefinedTable, TooManyRequests,
        InsufficientPrivilege and what is wrong with the request.
        """

    def cancel(self, pid: int, secret: bytes) -> None:
        """Cancel the running statement of session `pid`, if `secret` is its key."""
