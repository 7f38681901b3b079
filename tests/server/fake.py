"""A client in memory: answers, by statement text, that a test has put there, and transactions.

It keeps the rules of `foreshore.adapter.client` strictly, so that what passes here may rely on them:
it fails a test that makes two calls at once, or goes on after an error without `fail`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from foreshore.adapter.client import (
    Backend,
    Completed,
    CopyIn,
    CopyOptions,
    CopyOut,
    EmptyQuery,
    Execution,
    Login,
    Notice,
    Reading,
    Rows,
    Session,
    Startup,
)
from foreshore.errors import (
    DatabaseError,
    DuplicatePreparedStatement,
    InFailedSqlTransaction,
    InvalidCursorName,
    InvalidSqlStatementName,
    QueryCanceled,
    SyntaxError_,
    UndefinedTable,
)
from foreshore.notifications import Inbox, Notification
from foreshore.output_style import OutputStyle
from foreshore.tokens import AccessToken
from foreshore.types import ColumnType, Datum, RelationDesc, SqlType, type_of_oid

Answer = Callable[["FakeSession", Sequence[Datum]], Execution | Any]

PARAMETERS = {
    "server_version": "15.0",
    "server_encoding": "UTF8",
    "client_encoding": "UTF8",
    "DateStyle": "ISO, MDY",
    "TimeZone": "UTC",
    "integer_datetimes": "on",
    "standard_conforming_strings": "on",
    "application_name": "",
    "is_superuser": "on",
    "session_authorization": "foreshore",
    "IntervalStyle": "postgres",
    "in_hot_standby": "off",
    "default_transaction_read_only": "off",
}


def desc_of(**columns: SqlType) -> RelationDesc:
    return RelationDesc(tuple(columns), tuple(map(ColumnType, columns.values())))


@dataclass
class FakeStatement:
    sql: str
    parameters: tuple[SqlType, ...] = ()
    desc: RelationDesc | None = None
    answer: Answer | None = None

    @property
    def is_empty(self) -> bool:
        return not self.sql

    @property
    def changes(self) -> bool:
        return False


@dataclass
class FakePortal:
    statement: FakeStatement
    args: Sequence[Datum]
    formats: Sequence[int]
    batches: AsyncIterator[pa.RecordBatch] | None = None
    left: pa.RecordBatch | None = None

    @property
    def desc(self) -> RelationDesc | None:
        return self.statement.desc

    @property
    def changes(self) -> bool:
        return False


@dataclass
class FakeClient:
    statements: dict[str, FakeStatement] = field(default_factory=dict)
    sessions: dict[int, "FakeSession"] = field(default_factory=dict)
    startups: list[Startup] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    copied: list[pa.RecordBatch] = field(default_factory=list)
    aborted: int = 0  # of COPY FROM
    roles: dict[str, Login] = field(default_factory=lambda: {"foreshore": Login("o1", "foreshore")})

    def rows(
        self, sql: str, desc: RelationDesc, *batches: Any, parameters: tuple[SqlType, ...] = ()
    ) -> None:
        """Answer `sql` with `batches`: record batches, or a function of the arguments to one."""
        schema = desc.arrow_schema()

        async def give(args: Sequence[Datum]) -> AsyncIterator[pa.RecordBatch]:
            for batch in batches:
                made = batch(*args) if callable(batch) else batch
                if isinstance(made, Mapping):
                    arrays = [pa.array(made[f.name], f.type) for f in schema]
                    made = pa.RecordBatch.from_arrays(arrays, schema=schema)
                yield made

        def answer(session: "FakeSession", args: Sequence[Datum]) -> Execution:
            return Rows(desc, "SELECT", lambda rows: give(args))

        self.statements[sql] = FakeStatement(sql, parameters, desc, answer)

    def has_condition(self, webhook: tuple[str, str, str]) -> bool:
        return True

    async def receive(
        self, webhook: tuple[str, str, str], headers: Mapping[str, bytes], body: bytes
    ) -> None:
        raise UndefinedTable("there are no webhooks")

    def does(self, sql: str, answer: Answer, parameters: tuple[SqlType, ...] = ()) -> None:
        self.statements[sql] = FakeStatement(sql, parameters, None, answer)

    def copy_in(self, sql: str, desc: RelationDesc, options: CopyOptions) -> None:
        self.does(sql, lambda session, _: CopyIn("t", desc, options, FakeTarget(self)))

    def copy_out(
        self, sql: str, desc: RelationDesc, options: CopyOptions, *batches: pa.RecordBatch
    ) -> None:
        async def give() -> AsyncIterator[pa.RecordBatch]:
            for batch in batches:
                yield batch

        self.does(
            sql, lambda session, _: CopyOut(desc, options, give(), lambda count: f"COPY {count}")
        )

    def login(self, name: str) -> Login | None:
        found = self.roles.get(name)
        return None if found is None else replace(found, token=None)

    def login_by(self, token: AccessToken) -> Login | None:
        known = [each for each in self.roles.values() if each.token == token.number]
        return next((each for each in known if each.id == token.role), None)

    async def connect(self, startup: Startup) -> Session:
        self.startups.append(startup)
        pid = 1000 + len(self.startups)
        session = FakeSession(self, pid)
        session.parameters["application_name"] = startup.parameters.get("application_name", "")
        self.sessions[pid] = session
        return session

    def cancel(self, pid: int, secret: bytes) -> None:
        session = self.sessions.get(pid)
        if session is not None and secret == session.backend.secret:
            session.cancelled.set()


@dataclass
class FakeTarget:
    client: FakeClient
    pending: list[pa.RecordBatch] = field(default_factory=list)

    async def write(self, batch: pa.RecordBatch) -> None:
        self.pending.append(batch)

    async def finish(self, *, last: bool) -> str:
        self.client.copied.extend(self.pending)
        return f"COPY {sum(batch.num_rows for batch in self.pending)}"

    def abort(self) -> None:
        self.client.aborted += 1


class FakeSession:
    def __init__(self, client: FakeClient, pid: int) -> None:
        self.client = client
        self.extended = self.news = self.interrupts = self
        self.pid = pid
        self.inbox = Inbox(pid)
        self.backend = Backend(secret=b"\xde\xad\xbe\xef")
        self.transaction_status = "I"
        self.time_zone = "UTC"
        self.client_encoding = "UTF8"
        self.parameters = dict(PARAMETERS)
        self.pending_notices: list[Notice] = []
        self.cancelled = asyncio.Event()
        self.follows = False
        self.closed = False
        self.failures = 0
        self._statements: dict[str, FakeStatement] = {}
        self._portals: dict[str, FakePortal] = {}
        self._calling = False
        self._must_fail = False

    def meaning(self, statement: str) -> str:
        return "00"

    def reading(self, statement: str) -> Reading:
        return Reading(True, (), False, ())

    def output_style(self, *, names: bool) -> OutputStyle:
        return OutputStyle(self.time_zone)

    @contextmanager
    def _call(self) -> Any:
        assert not self._calling, "two calls at once"
        assert not self._must_fail, "an error was not followed by fail()"
        assert not self.closed
        self._calling = True
        try:
            yield
        except BaseException:
            self._must_fail = True
            raise
        finally:
            self._calling = False

    def changed_parameters(self) -> dict[str, str]:
        changed, self.parameters = self.parameters, {}
        return changed

    def when_noticed(self, tell: Callable[[], None]) -> None:
        self.tell = tell

    def notifications(self, most: int) -> Sequence[Notification]:
        return self.inbox.take(most)

    def when_notified(self, tell: Callable[[], None]) -> None:
        self.inbox.tell = tell

    def when_terminated(self, end: Callable[[DatabaseError], None]) -> None:
        self.end = end

    def terminate(self, reason: DatabaseError) -> None:
        self.end(reason)

    @property
    def may_wait(self) -> bool:
        return bool(self.parameters or self.pending_notices or self.inbox.waiting)

    def notices(self) -> list[Notice]:
        told, self.pending_notices = self.pending_notices, []
        return told

    def _find(self, sql: str) -> FakeStatement:
        sql = sql.strip().rstrip(";").strip()
        verb = sql.upper()
        if not sql:
            return FakeStatement("")
        if verb.startswith(("BEGIN", "COMMIT", "ROLLBACK")):
            return FakeStatement(sql, (), None, lambda session, _: session._transact(verb))
        found = self.client.statements.get(sql)
        if found is None:
            raise SyntaxError_(f'syntax error at or near "{sql.split()[0]}"', position=1)
        return found

    def _transact(self, verb: str) -> Completed:
        failed = self.transaction_status == "E"
        self.transaction_status = "T" if verb.startswith("BEGIN") else "I"
        return Completed("ROLLBACK" if failed else verb.split()[0])

    async def _run(self, statement: FakeStatement, args: Sequence[Datum]) -> Execution:
        if not statement.sql:
            return EmptyQuery()
        if self.transaction_status == "E" and not statement.sql.upper().startswith(
            ("ROLLBACK", "COMMIT")
        ):
            raise InFailedSqlTransaction
        assert statement.answer is not None
        made = statement.answer(self, args)
        return await made if asyncio.iscoroutine(made) else made

    async def hang(self) -> None:
        """Wait until the session is cancelled."""
        self.cancelled.clear()
        await self.cancelled.wait()
        raise QueryCanceled

    async def parse(self, name: str, sql: str, parameter_oids: Sequence[int]) -> FakeStatement:
        with self._call():
            if name and name in self._statements:
                raise DuplicatePreparedStatement(f'prepared statement "{name}" already exists')
            found = self._find(sql)
            types = list(found.parameters)
            for i, oid in enumerate(parameter_oids):
                stated = type_of_oid(oid) if oid else None
                if stated is not None and i < len(types) and stated.name != "numeric":
                    types[i] = stated
            statement = FakeStatement(found.sql, tuple(types), found.desc, found.answer)
            self._statements[name] = statement
            return statement

    def statement(self, name: str, types: Sequence[SqlType] = ()) -> FakeStatement:
        assert not types
        with self._call():
            if name not in self._statements:
                raise InvalidSqlStatementName(f'prepared statement "{name}" does not exist')
            return self._statements[name]

    async def bind(
        self,
        portal: str,
        name: str | FakeStatement,
        args: Sequence[Datum],
        formats: Sequence[int],
        size: int = 0,
    ) -> FakePortal:
        found = self.statement(name) if isinstance(name, str) else name
        with self._call():
            self._portals[portal] = FakePortal(found, args, formats)
            return self._portals[portal]

    def running(self) -> AbstractContextManager[None]:
        return nullcontext()

    def told(self) -> None:
        pass

    def outlives_client(self) -> bool:
        return not self.follows

    def portal(self, name: str) -> FakePortal:
        with self._call():
            if name not in self._portals:
                raise InvalidCursorName(f'portal "{name}" does not exist')
            return self._portals[name]

    def find_statement(self, name: str) -> FakeStatement | None:
        found = self._statements.get(name)
        return None if found is None or not found.sql else found

    def takes_many(self, statement: FakeStatement) -> bool:
        return False

    async def ready(self, statement: FakeStatement) -> None:
        if self.transaction_status == "E" and not statement.sql.upper().startswith(
            ("ROLLBACK", "COMMIT")
        ):
            raise InFailedSqlTransaction

    async def run(
        self,
        statement: FakeStatement,
        many: Sequence[Sequence[Datum]],
        formats: Sequence[int],
        max_rows: int,
        *,
        last: bool,
    ) -> Sequence[Execution]:
        await self.bind("", statement, many[0], formats)
        return (await self.execute("", max_rows, last=last),)

    async def execute(self, portal: str, max_rows: int, *, last: bool = False) -> Execution:
        found = self.portal(portal)
        with self._call():
            if found.batches is None:
                execution = await self._run(found.statement, found.args)
                if not isinstance(execution, Rows):
                    return execution
                found.batches = execution.batches
            assert found.desc is not None
            return Rows(found.desc, "SELECT", lambda rows: self._limited(found, max_rows, rows))

    async def _limited(
        self, portal: FakePortal, max_rows: int, rows: Rows
    ) -> AsyncIterator[pa.RecordBatch]:
        sent = 0
        assert portal.batches is not None
        while True:
            if portal.left is None:
                with self._call():
                    portal.left = await anext(portal.batches, None)
                if portal.left is None:
                    return
            batch = portal.left
            if max_rows and sent + batch.num_rows >= max_rows:
                take = max_rows - sent
                rest = batch.slice(take)
                portal.left = rest if rest.num_rows else None
                rows.has_more = True
                yield batch.slice(0, take)
                return
            portal.left = None
            sent += batch.num_rows
            yield batch

    async def close_statement(self, name: str) -> None:
        with self._call():
            self._statements.pop(name, None)

    async def close_portal(self, name: str) -> None:
        with self._call():
            self._portals.pop(name, None)

    async def sync(self) -> None:
        with self._call():
            if self.transaction_status == "I":
                self._portals.clear()

    async def simple(self, sql: str) -> AsyncIterator[Execution]:
        with self._call():
            texts = [text for text in sql.split(";") if text.strip()]
        if not texts:
            yield EmptyQuery()
        for text in texts:
            with self._call():
                execution = await self._run(self._find(text), ())
            yield execution

    def explained(self, error: DatabaseError) -> DatabaseError:
        return error

    async def fail(self, error: DatabaseError | None = None) -> None:
        self.failures += 1
        self._must_fail = False
        if self.transaction_status == "T":
            self.transaction_status = "E"

    async def close(self) -> None:
        self.closed = True
        self.client.closed.append(self.pid)
        del self.client.sessions[self.pid]
