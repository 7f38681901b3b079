"""A session: one client's conversation with the database.

`simple` runs the statements of a Query message. What the session has is in parts of its own:

    extended       prepared statements, portals and executions of the extended protocol
    transactions   the running transaction and its savepoints
    portals        statements with arguments, and cursors; `statements` are the prepared ones
    planner        plans, for the catalog as the transaction sees it
    activity       what it is doing, and time-outs
    interrupts     cancel requests, and the end of the session
    news           notices, notifications, changed parameters

A statement that loses a race with another transaction is planned and run again, while nobody has
seen anything of it (`attempt`).
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

from foreshore import interruptible, tracing
from foreshore.adapter import dispatch
from foreshore.adapter.client import Backend, Completed, CopyIn, EmptyQuery, Execution
from foreshore.adapter.control.statements import Statements
from foreshore.adapter.coordinator.coordinator import Coordinator
from foreshore.adapter.ddl.catalog_lock import rebase_on
from foreshore.adapter.introspection.failing_views import explained
from foreshore.adapter.introspection.relations import builtin_rows
from foreshore.adapter.plans.prepared import NO_STATEMENT, PlanCache, Prepared
from foreshore.adapter.session.extended import ExtendedProtocol
from foreshore.adapter.session.planner import SessionPlanner
from foreshore.adapter.session.shaped_texts import Shapes
from foreshore.adapter.session.transactions import Transactions
from foreshore.adapter.statement.activity import Activity
from foreshore.adapter.statement.context import ONCE, StatementContext
from foreshore.adapter.statement.interrupts import Interrupts
from foreshore.adapter.statement.last_values import LastValues
from foreshore.adapter.statement.news import News
from foreshore.adapter.statement.planning_cost import PlanningCost, is_short, planning_owner
from foreshore.adapter.statement.portals import Portals
from foreshore.adapter.statement.result import Outcome, Selected, check_returned
from foreshore.adapter.statement.roles import SessionRoles
from foreshore.catalog.builtin.object_names import object_names
from foreshore.catalog.item import Role
from foreshore.errors import (
    Conflict,
    DatabaseError,
    FeatureNotSupported,
    TableAltered,
    TableDropped,
    TransactionTimeout,
    UndefinedObject,
)
from foreshore.output_style import OutputStyle
from foreshore.scratch_share import ScratchShare
from foreshore.session_variables import Variables
from foreshore.sql.parse.script import Script, Unread
from foreshore.statement_history import Who
from foreshore.types import Datum

P = ParamSpec("P")
R = TypeVar("R")

ATTEMPTS = 10


class Home(Protocol):
    """Where a session is: what it shares with others."""

    @property
    def coordinator(self) -> Coordinator:
        """The catalog, times and collections."""

    @property
    def sessions(self) -> "Mapping[int, Session]":
        """All sessions, by their numbers."""

    @property
    def plans(self) -> PlanCache:
        """The plans of texts."""

    @property
    def shapes(self) -> Shapes:
        """The shapes of texts."""

    @property
    def planning_cost(self) -> PlanningCost:
        """The time that planning took."""

    def forget(self, session: "Session") -> None:
        """Forget a session that has ended."""


class Session:
    """One session; calls come one at a time, but for those of `interrupts`."""

    def __init__(
        self,
        environment: "Home",
        pid: int,
        role: Role,
        variables: Variables,
        backend: Backend,
    ) -> None:
        self.environment = environment
        self.coordinator: Coordinator = environment.coordinator
        self.pid = pid
        self.backend = backend
        self.variables = variables
        self.news = News(pid, variables, lambda: self.transactions.running is not None)
        self.interrupts = Interrupts(ScratchShare(variables))
        self.activity = Activity(
            self.coordinator.clock,
            variables,
            self.interrupts,
            self.coordinator.statement_history,
            self._who,
        )
        self.planner = SessionPlanner(self)
        self.roles = SessionRoles(
            role, variables, lambda: self.planner.state, lambda: self.coordinator.state
        )
        self.portals = Portals(variables)
        self.transactions: Transactions = Transactions(
            pid,
            self.coordinator,
            variables,
            self.interrupts,
            self.news.inbox,
            self.portals,
            self.context,
        )
        self.statements = Statements(self)
        self.extended = ExtendedProtocol(self)
        self.last_values = LastValues()

    @property
    def plan_lookups(self) -> Mapping[str, Mapping[str, int]]:
        """Of all sessions, hits and misses of plans for texts, by reason."""
        shapes = self.environment.shapes
        return {"hit": shapes.hits, "miss": shapes.misses}

    # --- what the client sees ------------------------------------------------------------------

    @property
    def transaction_status(self) -> str:
        """I outside of a transaction block, T inside, E inside a failed one."""
        running = self.transactions.running
        if running is None or not running.block:
            return "I"
        return "E" if self.transactions.failed else "T"

    @property
    def role(self) -> Role:
        """The current role, whose rights count."""
        return self.roles.current

    @property
    def time_zone(self) -> str:
        """The session's time zone."""
        return self.variables["timezone"]

    @property
    def client_encoding(self) -> str:
        """The encoding of the client, by PostgreSQL's name."""
        return self.variables["client_encoding"]

    @property
    def database(self) -> str:
        """The session's database."""
        return self.variables["database"]

    @property
    def cluster(self) -> str:
        """The name of the cluster that answers the session's queries."""
        return self.variables["cluster"]

    @property
    def dialect(self) -> str:
        """The database in whose spelling queries are written."""
        return self.variables["sql_dialect"]

    def output_style(self, *, names: bool) -> OutputStyle:
        """Return how the session has values shown; with the `names` of objects if asked for."""
        style = self.variables.settings.style
        if not names:
            return style
        rows_of = partial(builtin_rows, self.context())
        return style._replace(names=object_names(rows_of, self.coordinator.catalog_answers.names))

    # --- its end -------------------------------------------------------------------------------

    def outlives_client(self) -> bool:
        """Whether what runs goes on now that the client has gone."""
        return self.activity.outlives_client(self.interrupts.terminate)

    def expire(self, now: float) -> None:
        """End the session if it, or its transaction, has been idle or running for too long."""
        if self.transactions.is_overdue:
            self.interrupts.terminate(TransactionTimeout())
            return
        if not self.transactions.is_implicit:
            reason = self.activity.expired(now, in_block=self.transactions.in_block)
            if reason is not None:
                self.interrupts.terminate(reason)

    async def close(self) -> None:
        """End the session and all that it holds."""
        self.activity.close()
        try:
            await self.transactions.rollback()
        finally:
            self.portals.close_but()
            self.statements.clear()
            self.environment.forget(self)
            self.interrupts.ended.set()

    # --- running -------------------------------------------------------------------------------

    def context(
        self,
        prepared: Prepared = NO_STATEMENT,
        many: Sequence[Sequence[Datum]] = ONCE,
        *,
        alone: bool = False,
        again: bool = False,
    ) -> StatementContext:
        """Return the context of one run of a statement, in the running transaction if any."""
        transactions, services = self.transactions, self.coordinator
        return StatementContext(
            prepared, many[0], many, alone,
            transactions.running or transactions.new(), self.planner,
            # names, times, tables, views, engines, feeds, process
            services, services, services, services, services, services, services,
            self.environment.sessions, self, self.pid, self.roles, self.variables,
            set(), self.interrupts, self.news.notice, again,
        )  # fmt: skip

    async def run_aside(
        self, is_small: bool, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Return what `work` gives, run on a thread unless it `is_small`."""
        if is_small:
            return work(*args, **kwargs)
        with self.activity.planning(), self.interrupts.running():
            owner = planning_owner(self.coordinator.locks, self.transactions.running, self.roles)
            return await interruptible.run(owner, work, *args, **kwargs)

    async def script(self, sql: str, *, by_shapes: bool = False) -> Script:
        """Return the statements of a text, to be run one after the other.

        If it is read `by_shapes`, those whose syntax is known are not parsed.

        A failed transaction accepts none that PostgreSQL has, whether it is supported or not.
        """
        plans, is_plain = self.environment.plans, self.dialect == "postgres"
        if is_plain and (known := plans.script(sql)) is not None:
            return Script.of(known)
        try:
            with tracing.phase("parse"):
                is_known = self.environment.shapes.is_known if by_shapes else None
                script = await self.run_aside(is_short(sql), Script, self.dialect, sql, is_known)
            if is_plain and script.count == len(parsed := script.parsed):
                plans.put_script(sql, parsed)
            return script
        except FeatureNotSupported:
            self.transactions.check_may_parse(sql)
            raise

    def begin_statement(self, text: str, *, continues: bool = False) -> None:
        """Note that a statement begins, and what others have changed since the last one."""
        self.activity.begin(text, continues=continues)
        self.rebase()

    def rebase(self) -> None:
        """Let a transaction that changes the catalog see what others have changed since."""
        transaction = self.transactions.running
        if transaction is not None and transaction.staged.catalog is not None:
            # The commit raises it again, unless the client rolls back.
            with suppress(Conflict, UndefinedObject):
                rebase_on(transaction, self.coordinator.state)

    async def run_once(self, context: StatementContext) -> Outcome:
        """Run one statement; if it is alone, its transaction ends with it."""
        outcome = await dispatch.run(self, context)
        transaction = context.transaction
        if transaction.staged.rows or transaction.has_effects:
            if not isinstance(outcome, Completed):
                check_returned(outcome, self.variables.settings.limits)
            if context.alone and not isinstance(outcome, CopyIn):
                await self.transactions.commit(context)
        return outcome

    async def attempt(
        self,
        run: Callable[[StatementContext], Awaitable[R]],
        prepared: Prepared,
        many: Sequence[Sequence[Datum]] = ONCE,
        *,
        alone: bool,
    ) -> R:
        """Return the result of `run`, which runs a statement in the context that it is given.

        Each execution of it has a row of arguments. A statement that is `alone` in its transaction
        runs again after a conflict, and so does the first of a transaction that meets ALTER or DROP
        TABLE; it then locks the tables that it writes. Raises the error after `ATTEMPTS`, or if one
        of its functions has done what no transaction undoes.
        """
        coordinator = self.coordinator
        transaction = self.transactions.running or self.transactions.begin()
        is_first = transaction.is_untouched and transaction not in coordinator.locks.held
        has_advisory = self.pid in coordinator.advisory.by_transactions
        advisory = self.transactions.advisory_locks if has_advisory else 0
        before = transaction.staged, advisory
        conflicts = 0
        while True:
            context = self.context(prepared, many, alone=alone, again=conflicts > 0)
            try:
                with self.interrupts:
                    if self.activity.root is None:
                        return await run(context)
                    with tracing.phase("execute"):
                        return await run(context)
            except (Conflict, TableDropped) as error:
                conflicts += 1
                altered = isinstance(error, TableAltered | TableDropped)
                may_run_again = is_first if altered else alone
                if not may_run_again or conflicts >= ATTEMPTS or context.lasting_effects:
                    raise
                self.transactions.met_alter |= altered
            self.transactions.begin_again(context.transaction, *before)
            self.news.notice.drain()
            prepared, args = await self.planner.ready_again(prepared, many[0])
            many = (args, *many[1:])

    def _who(self) -> Who:
        """Return whose statements the session runs."""
        user, application = self.roles.session, self.variables["application_name"]
        return Who(user.id, user.name, self.database, application, self.pid)

    def explained(self, error: DatabaseError) -> DatabaseError:
        """Return an error as the client gets it: one in the data of a view names the view."""
        return explained(self.coordinator, error)

    async def fail(self, error: DatabaseError | None = None) -> None:
        """Mark a transaction block as failed after an error; roll an implicit one back."""
        self.activity.end(error, is_kept=error is not None)
        await self.transactions.fail()

    # --- simple protocol -----------------------------------------------------------------------

    async def simple(self, sql: str) -> AsyncIterator[Execution]:
        """Run all statements of `sql` one after the other, up to the first that fails."""
        self.begin_statement(sql)
        found = None if self.transactions.failed else self.planner.texts.find(sql)
        script = await self.script(sql, by_shapes=True) if found is None else None
        count = 1 if script is None else script.count
        if not count:
            self.activity.end(is_kept=False)
            yield EmptyQuery()
        single = count == 1
        for number in range(1, count + 1):
            if number > 1:
                self.begin_statement(sql, continues=True)
            alone = self.transactions.begin_statement(last=single, is_one_of_several=not single)
            if script is not None:
                found = await self._next_of(script, sql, 0 if single else number)
            assert found is not None
            prepared, args = found
            outcome = await self.attempt(self.run_once, prepared, (args,), alone=alone)
            if not alone and number == count and not isinstance(outcome, CopyIn):
                await self.transactions.commit_implicit()
            try:
                yield self.extended.execution(outcome)
            finally:
                if isinstance(outcome, Selected):
                    outcome.source.close()
            if self.interrupts.active:
                self.activity.end()
        await self.extended.sync()

    async def _next_of(
        self, script: Script, sql: str, number: int
    ) -> tuple[Prepared, Sequence[Datum]]:
        """Return the next statement of a script, and its arguments if it is planned by its shape.

        Its number is 0 if it is the only one.
        """
        if not script.waiting:
            await self.run_aside(False, script.go_on)
        statement = script.waiting.popleft()
        text = script.text_of(statement)
        self.transactions.check_may_parse(text)
        if isinstance(statement, Unread):
            if not self.transactions.failed:
                found = self.planner.texts.find_shape(statement.shape, text)
                if found is not None:
                    return found
            statement = await self.run_aside(is_short(text), script.read, statement)
        return await self.planner.prepared_of(sql, statement, number), ()
