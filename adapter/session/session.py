"""A session: one client's statements, portals, variables and transaction.

A statement outside of a block is a transaction of its own; several in one Query message, or between
two Syncs, are one together, as in PostgreSQL. What a statement writes is kept in the transaction
until it ends, so nothing is durable or visible before. A statement on its own that loses a race is
run again, since nobody has seen anything of it; so is the first of a longer transaction that meets
ALTER TABLE.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from foreshore import blocking
from foreshore.adapter import dispatch as sequence
from foreshore.adapter.client import Completed, CopyIn, CopyOut, EmptyQuery, Execution, Notice
from foreshore.adapter.coordinator import Coordinator
from foreshore.adapter.ddl.catalog_lock import follow_catalog
from foreshore.adapter.introspection.relations import builtin_rows
from foreshore.adapter.read.result import Outcome, RowSource, Selected, Taking
from foreshore.adapter.retry import SideEffectLog, attempted
from foreshore.adapter.session import temporary
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.session.interrupt import Interrupts
from foreshore.adapter.session.planner import SessionPlanner
from foreshore.adapter.session.planning_cost import is_short
from foreshore.adapter.session.prepared import NO_STATEMENT, BoundPortal, Prepared
from foreshore.adapter.session.savepoints import Savepoint
from foreshore.adapter.session.variables import Variables
from foreshore.adapter.transaction import commit as committing
from foreshore.adapter.transaction.transaction import NOTHING_STAGED, Staged, Transaction
from foreshore.adapter.write.nextval import LastValues
from foreshore.catalog.builtin.object_names import object_names
from foreshore.catalog.item import Role
from foreshore.errors import (
    Conflict,
    DatabaseError,
    DuplicatePreparedStatement,
    IdleInTransactionSessionTimeout,
    IdleSessionTimeout,
    InFailedSqlTransaction,
    InvalidCursorName,
    InvalidSqlStatementName,
    ObjectNotInPrerequisiteState,
    QueryCanceled,
    SyntaxError_,
)
from foreshore.garbage import collection_paused
from foreshore.ids import temporary_schema
from foreshore.settings import milliseconds
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import Commit, CopyFrom, Execute, Fetch, Plan, Rollback
from foreshore.sql.plan import Savepoint as SavepointPlan
from foreshore.text import OutputStyle
from foreshore.types import Datum, type_of_oid

if TYPE_CHECKING:
    from foreshore.adapter.environment import Environment

logger = logging.getLogger(__name__)


P = ParamSpec("P")
R = TypeVar("R")


class Session:
    """One session; calls come one at a time, but for `interrupt`."""

    def __init__(
        self,
        environment: "Environment",
        pid: int,
        role: Role,
        variables: Variables,
        connected_at: int,
        peer: str,
    ) -> None:
        self.environment = environment
        self.coordinator: Coordinator = environment.coordinator
        self.pid = pid
        self.temporary_schema = temporary_schema(pid)  # its name and its id
        self.secret = secrets.randbits(32)
        self.role = role
        self.variables = variables
        self.connected_at = connected_at
        self.peer = peer
        self.query = ""
        self.query_at: int | None = None  # microseconds since 1970, as all times of activity
        self.state_at = connected_at
        self.interrupts = Interrupts()
        self.planner = SessionPlanner(self)
        self.transaction: Transaction | None = None
        self.savepoints: list[Savepoint] = []
        self.met_alter = False  # the transaction was tried again because of ALTER TABLE
        self.failed = False
        self.is_one_of_several = False  # the statement at hand, in its Query message
        self.statements: dict[str, Prepared] = {}
        self.batch = 0  # of messages, in the extended protocol: grows when the client is told more
        self.portals: dict[str, BoundPortal] = {}
        self.last_values = LastValues()
        self._streams: list[RowSource] = []  # of COPY; they end with the transaction
        self._notices: list[Notice] = []
        self._tell: Callable[[], None] = lambda: None
        self._end: Callable[[DatabaseError], None] = lambda _: None
        self.closed = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._idle_since = asyncio.get_running_loop().time()

    # --- what the client sees ------------------------------------------------------------------

    @property
    def transaction_status(self) -> str:
        """I outside of a transaction block, T inside, E inside a failed one."""
        if self.transaction is None or not self.transaction.block:
            return "I"
        return "E" if self.failed else "T"

    @property
    def state(self) -> str:
        """What the session is doing, as pg_stat_activity says it."""
        if self.interrupts.active:
            return "active"
        return {"I": "idle", "T": "idle in transaction", "E": "idle in transaction (aborted)"}[
            self.transaction_status
        ]

    @property
    def time_zone(self) -> str:
        """The session's time zone."""
        return self.variables["timezone"]

    def output_style(self, *, names: bool) -> OutputStyle:
        """Return how the session has values shown; with the `names` of objects if asked for."""
        digits = int(self.variables["extra_float_digits"])
        known = object_names(partial(builtin_rows, self.context())) if names else None
        return OutputStyle(self.time_zone, digits, known)

    @property
    def database(self) -> str:
        """The session's database."""
        return self.variables["database"]

    @property
    def cluster(self) -> str:
        """The name of the cluster that answers the session's queries."""
        return self.variables["cluster"]

    def changed_parameters(self) -> Mapping[str, str]:
        """Return what ParameterStatus has to tell since the last call."""
        return self.variables.drain_reports()

    def notices(self) -> Sequence[Notice]:
        """Return the notices since the last call."""
        notices, self._notices = self._notices, []
        return notices

    def interruptible(self) -> AbstractContextManager[None]:
        """Let a cancel request or a time-out interrupt the body, which is a part of a statement."""
        return self.interrupts.running()

    def when_noticed(self, tell: Callable[[], None]) -> None:
        """Have `tell` called when there are notices that should not wait for an answer."""
        self._tell = tell

    def when_terminated(self, end: Callable[[DatabaseError], None]) -> None:
        """Have `end` called when the session is to end at once, whatever its client does."""
        self._end = end

    def notice(
        self,
        message: str,
        *,
        now: bool = False,
        severity: str = "NOTICE",
        sqlstate: str = "00000",
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        """Tell the client something beside its results, if it wants to hear of such things.

        It hears of it with the next answer, or at once if `now`.
        """
        ranks = {"debug1": 0, "log": 1, "info": 2, "notice": 3, "warning": 4, "error": 5}
        wanted = ranks.get(self.variables["client_min_messages"], 0)
        if ranks[severity.lower()] >= wanted:
            self._notices.append(Notice(message, severity, sqlstate, detail, hint))
            if now:
                self._tell()

    # --- transactions --------------------------------------------------------------------------

    def begin(self, *, block: bool = False) -> Transaction:
        """Return the running transaction, a new one if there is none."""
        if self.transaction is None:
            self.transaction = self._new_transaction()
        if block:
            self.transaction.block = True
        return self.transaction

    def _new_transaction(self) -> Transaction:
        return Transaction(self.coordinator.clock.now() * 1000, self.coordinator.oracle.read_ts())

    def context(
        self,
        prepared: Prepared = NO_STATEMENT,
        args: Sequence[Datum] = (),
        side_effects: SideEffectLog | None = None,
        *,
        alone: bool = False,
    ) -> StatementContext:
        """Return the context of one run of a statement, in the running transaction if any."""
        return StatementContext(
            prepared,
            args,
            alone,
            self.transaction or self._new_transaction(),
            self.planner,
            self.coordinator,
            self.environment.sessions,
            self.pid,
            self.role,
            self.variables,
            self.last_values,
            side_effects or SideEffectLog(),
            self.met_alter,
            self.interrupts,
            self.notice,
            self._streams.append,
        )

    async def commit(self) -> None:
        """Make what the transaction did durable and visible; its end, whatever comes of it."""
        transaction = self.transaction
        if transaction is None:
            return
        try:
            if transaction.has_effects:
                context = self.context()
                temporary.before_commit(context)
            if transaction.has_effects:
                if transaction.catalog is not None or self.coordinator.locks.any_table:
                    with self.interrupts.running():
                        await committing.wait_for_tables(context)
                        await committing.wait_for_views(context)
                with self.interrupts.sheltered():
                    await committing.commit_effects(context)
        except BaseException:
            await self.rollback()
            raise
        self.transaction = None
        self.failed = False
        self.savepoints.clear()
        self.met_alter = False
        self._let_go(transaction)
        self.variables.commit()
        self._close_portals(committed=True)

    def _let_go(self, transaction: Transaction, advisory: int = 0) -> None:
        self.coordinator.holds.release(transaction)
        if self.coordinator.sequences.private:
            self.coordinator.sequences.forget_private(transaction)
        if self.coordinator.locks.holds_any(transaction):
            self.coordinator.locks.release(transaction)
        self.coordinator.advisory.release_transaction(self.pid, advisory)

    def begin_again(self, transaction: Transaction, staged: Staged, advisory: int) -> None:
        """Undo the first statement of a transaction, or find it undone, to try it again.

        Before, the transaction had `staged`, and the number `advisory` of advisory locks.
        """
        if self.transaction is transaction:
            self._let_go(transaction, advisory)
        self.transaction = transaction.anew(staged, self.coordinator.oracle.read_ts())
        self._notices.clear()

    async def rollback(self) -> None:
        """Forget what the transaction did."""
        transaction, self.transaction = self.transaction, None
        self.failed = False
        self.savepoints.clear()
        self.met_alter = False
        if transaction is not None:
            self._let_go(transaction)
        self.variables.rollback()
        self._close_portals(committed=False)

    def _close_portals(self, *, committed: bool) -> None:
        """Close those that end with the transaction: WITH HOLD, if that has not committed."""
        while self._streams:
            self._streams.pop().close()
        for each in self.portals.values():
            each.held = each.held or (committed and each.hold)
        self.close_portals([each for each in self.portals.values() if each.held])

    def close_portals(self, kept: Collection[BoundPortal] = ()) -> None:
        """Close all portals and cursors but those `kept`."""
        for name, portal in list(self.portals.items()):
            if portal not in kept:
                portal.close()
                del self.portals[name]

    async def fail(self) -> None:
        """Hear of an error: a transaction block becomes failed, an implicit one is rolled back."""
        self._statement_over()
        transaction = self.transaction
        if transaction is None or not transaction.block:
            await self.rollback()
            return
        self.failed = True
        if self.savepoints:  # it may go on from one of them
            self._release_since_savepoint(transaction)
        else:
            self._give_up(transaction)

    def _give_up(self, transaction: Transaction) -> None:
        transaction.staged = NOTHING_STAGED
        self.coordinator.holds.release(transaction)
        if self.coordinator.locks.holds_any(transaction):
            self.coordinator.locks.release(transaction)
        self.coordinator.advisory.release_transaction(self.pid)
        self._close_portals(committed=False)

    # --- savepoints ----------------------------------------------------------------------------

    def set_savepoint(self, name: str) -> None:
        """Set a savepoint in the running transaction."""
        transaction = self.begin()
        savepoint = Savepoint(
            name,
            transaction.staged.fork(),
            self.variables.mark(),
            frozenset(self.portals.values()),
            self.coordinator.locks.mark(transaction),
            self.coordinator.advisory.mark(self.pid),
        )
        self.savepoints.append(savepoint)

    def return_to(self, place: int) -> None:
        """Undo what the running transaction did since a savepoint, and go on from there."""
        transaction, savepoint = self.begin(), self.savepoints[place]
        del self.savepoints[place + 1 :]
        transaction.staged = savepoint.staged.fork()
        self._release_since_savepoint(transaction)
        self.variables.return_to(savepoint.variables)
        self.close_portals(savepoint.portals)
        self.failed = False

    def _release_since_savepoint(self, transaction: Transaction) -> None:
        savepoint = self.savepoints[-1]
        if self.coordinator.locks.holds_any(transaction):
            self.coordinator.locks.release(transaction, savepoint.locks)
        self.coordinator.advisory.release_transaction(self.pid, savepoint.advisory)

    # --- running -------------------------------------------------------------------------------

    def interrupt(self, reason: DatabaseError) -> None:
        """Let the statement that is under way end with `reason`."""
        self.interrupts.request(reason)

    def terminate(self, reason: DatabaseError) -> None:
        """Let the session end at once with `reason`, but for a commit that is on its way."""
        self.interrupts.outside_of_shelter(partial(self._end, reason))

    def _statement_begins(self, text: str) -> None:
        self.query = text
        self.query_at = self.state_at = self.coordinator.clock.now() * 1000
        self.interrupts.begin()
        if self.transaction is not None and self.transaction.catalog is not None:
            with suppress(Conflict):  # the commit raises it again, unless the client rolls back
                follow_catalog(self.transaction, self.coordinator.state)
        timeout = self.variables["statement_timeout"]
        if timeout != "0":
            ms = milliseconds(timeout) or 0
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(
                ms / 1000,
                self.interrupt,
                QueryCanceled("canceling statement due to statement timeout"),
            )

    def _statement_over(self) -> None:
        if self.interrupts.active:
            self.state_at = self.coordinator.clock.now() * 1000
        self.interrupts.end()
        self._idle_since = asyncio.get_running_loop().time()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _run(self, prepared: Prepared, args: Sequence[Datum], *, alone: bool) -> Outcome:
        """Run one statement; if it is `alone`, its transaction ends with it."""
        assert prepared.plan is not None

        async def attempt(context: StatementContext) -> Outcome:
            outcome = await sequence.run(self, context)
            if alone and not isinstance(outcome, CopyIn):
                await self.commit_implicit()
            return outcome

        return await attempted(self, attempt, prepared, args, alone=alone)

    async def commit_implicit(self) -> None:
        """Commit what the statement at hand has done, if its transaction is no block."""
        transaction = self.transaction
        if transaction is not None and not transaction.block and transaction.has_effects:
            await self.commit()

    def _check_not_failed(self, plan: Plan | None) -> None:
        if self.failed and not isinstance(plan, Commit | Rollback | SavepointPlan):
            raise InFailedSqlTransaction

    # --- extended protocol ---------------------------------------------------------------------

    async def parse(self, name: str, sql: str, parameter_oids: Sequence[int]) -> Prepared:
        """Prepare a statement."""
        if name and name in self.statements:
            raise DuplicatePreparedStatement(f'prepared statement "{name}" already exists')
        if not name:
            self.statements.pop("", None)
        known = None if self.failed else self.planner.known(sql, parameter_oids)
        if known is not None:
            known.name, known.batch = name, self.batch
            self.statements[name] = known
            return known
        if self.interrupts.active:  # another's rows are still being fetched
            return await self._parsed(name, sql, parameter_oids)
        self._statement_begins(sql)
        try:
            return await self._parsed(name, sql, parameter_oids)
        finally:
            self._statement_over()

    async def _parsed(self, name: str, sql: str, parameter_oids: Sequence[int]) -> Prepared:
        """Prepare a statement that no session has planned yet."""
        syntaxes = await self.run_aside(is_short(sql), parse, sql)
        if len(syntaxes) > 1:
            raise SyntaxError_("cannot insert multiple commands into a prepared statement")
        if not syntaxes:
            prepared = Prepared(name, None)
        else:
            declared = tuple(type_of_oid(oid) if oid else None for oid in parameter_oids)
            prepared = Prepared(name, syntaxes[0], declared, batch=self.batch)
            if self.failed and not sequence.ends_transaction(syntaxes[0]):
                raise InFailedSqlTransaction
            await self.planner.ready(prepared)
            self.planner.remember(prepared, sql, parameter_oids)
        self.statements[name] = prepared
        return prepared

    def told(self) -> None:
        """Hear that the client knows the columns of what it has prepared."""
        self.batch += 1

    def statement(self, name: str) -> Prepared:
        """Return the prepared statement."""
        prepared = self.statements.get(name)
        if prepared is None:
            raise InvalidSqlStatementName(
                f'prepared statement "{name}" does not exist'
                if name
                else "unnamed prepared statement does not exist"
            )
        if isinstance(prepared.plan, Fetch | Execute):  # of the cursor of that name by now
            prepared.desc = sequence.described(self, prepared.plan)
        return prepared

    async def bind(
        self, portal: str, statement: str, args: Sequence[Datum], result_formats: Sequence[int]
    ) -> BoundPortal:
        """Make a portal."""
        prepared = self.statement(statement)
        if not prepared.is_empty:
            if self.failed:
                self._check_not_failed(prepared.plan)
            else:
                await self.planner.ready(prepared)
        if len(result_formats) > 1:  # one for each of the columns: they are known
            self.told()
        old = self.portals.get(portal)
        if old is not None:
            if portal:
                raise InvalidCursorName(f'portal "{portal}" already exists', sqlstate="42P03")
            old.close()
        bound = BoundPortal(
            portal,
            prepared,
            sequence.resolved_args(self.planner, prepared, args),
            result_formats,
            desc=prepared.desc,
        )
        self.portals[portal] = bound
        return bound

    def portal(self, name: str) -> BoundPortal:
        """Return the portal."""
        portal = self.portals.get(name)
        if portal is None:
            raise InvalidCursorName(f'portal "{name}" does not exist')
        return portal

    async def execute(self, portal: str, max_rows: int, *, last: bool = False) -> Execution:
        """Run the portal, or go on with it, for at most `max_rows` rows; `last` before a Sync."""
        bound = self.portal(portal)
        prepared = bound.statement
        if prepared.syntax is None:
            return EmptyQuery()
        self._check_not_failed(prepared.plan)
        if bound.result is not None:
            return self._rows(bound.result, max_rows)
        if bound.done:
            raise ObjectNotInPrerequisiteState(f'portal "{portal}" cannot be run')
        self._statement_begins(prepared.syntax.text)
        is_first = self.transaction is None
        if not self.failed:
            self.begin()
            await self.planner.ready(prepared)
        bound.done = True
        self.is_one_of_several = False
        # Whether a COPY is the last, whoever sends its rows says when they are there.
        last = last or isinstance(prepared.plan, CopyFrom)
        outcome = await self._run(prepared, bound.args, alone=is_first and last)
        match outcome:
            case Selected():
                bound.result = outcome
                return self._rows(outcome, max_rows)
            case Completed():
                self._statement_over()
                return outcome
            case CopyIn() | CopyOut():
                return outcome

    def _rows(self, selected: Selected, max_rows: int) -> Execution:
        return Taking(selected, max_rows, self.interrupts).rows(self._statement_over)

    async def close_statement(self, name: str) -> None:
        """Forget a prepared statement, if there is one."""
        self.statements.pop(name, None)

    async def close_portal(self, name: str) -> None:
        """Forget a portal, if there is one."""
        portal = self.portals.pop(name, None)
        if portal is not None:
            portal.close()

    async def sync(self) -> None:
        """End the implicit transaction, if there is one."""
        self._statement_over()
        self.told()
        if self.transaction is not None and not self.transaction.block:
            if self.transaction.has_effects:
                self._statement_begins(self.query)  # it may have to wait for others
            await self.commit()
            self._statement_over()
        elif self.transaction is None and self.portals:
            self._close_portals(committed=True)

    # --- simple protocol -----------------------------------------------------------------------

    async def simple(self, sql: str) -> AsyncIterator[Execution]:
        """Run all statements of `sql` one after the other, up to the first that fails."""
        self._statement_begins(sql)
        known = None if self.failed else self.planner.known(sql)
        if known is not None and known.syntax is not None and not known.parameters:
            syntaxes = [known.syntax]
        else:
            known = None
            syntaxes = await self.run_aside(is_short(sql), parse, sql)
        if not syntaxes:
            yield EmptyQuery()
        single = len(syntaxes) == 1
        self.is_one_of_several = not single
        for number, syntax in enumerate(syntaxes, 1):
            if number > 1:
                self._statement_begins(sql)
            last = number == len(syntaxes)
            if self.failed and not sequence.ends_transaction(syntax):
                raise InFailedSqlTransaction
            if not self.failed:
                self.begin()
            prepared = known
            if prepared is None:
                prepared = await self.planner.prepared_of(syntax)
                if single:
                    self.planner.remember(prepared, sql)
            outcome = await self._run(prepared, (), alone=single)
            if isinstance(outcome, CopyIn):
                yield outcome
            else:
                if last:
                    await self.commit_implicit()
                match outcome:
                    case Selected():
                        rows = Taking(outcome, 0, self.interrupts).rows()
                        try:
                            yield rows
                        finally:
                            outcome.source.close()
                    case _:
                        yield outcome
            self._statement_over()
        if self._in_implicit():
            await self.commit()

    async def run_aside(
        self, is_small: bool, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Return what `work` gives, run on a thread unless it `is_small`."""
        if is_small:
            return work(*args, **kwargs)
        with self.interrupts.running():
            return await blocking.run(None, collection_paused()(work), *args, **kwargs)

    def _in_implicit(self) -> bool:
        return self.transaction is not None and not self.transaction.block

    def expire(self, now: float) -> None:
        """End the session if it has been idle for too long, inside of a block or outside."""
        transaction = self.transaction
        if self.interrupts.active or (transaction is not None and not transaction.block):
            return
        kind = "session" if transaction is None else "in_transaction_session"
        timeout = milliseconds(self.variables[f"idle_{kind}_timeout"])
        if timeout and now - self._idle_since >= timeout / 1000:
            self.terminate(
                IdleSessionTimeout() if transaction is None else IdleInTransactionSessionTimeout()
            )

    async def close(self) -> None:
        """End the session and all that it holds."""
        self._statement_over()
        try:
            await self.rollback()
        finally:
            self.close_portals()
            self.statements.clear()
            self.environment.forget(self)
            self.closed.set()
