"""A session: one client's conversation with the database.

`simple` runs the statements of a Query message; `parse`, `bind` and `execute` those of the extended
protocol, up to `sync`. What the session has is in parts of its own:

    transactions   the running transaction and its savepoints
    portals        statements with arguments, and cursors; `statements` are the prepared ones
    planner        plans, for the catalog as the transaction sees it
    activity       what it is doing, and time-outs
    interrupts     cancel requests, and the end of the session

A statement that loses a race with another transaction is planned and run again, while nobody has
seen anything of it (`attempt`).
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import ParamSpec, Protocol, TypeVar

from foreshore import interruptible, tracing
from foreshore.adapter import dispatch
from foreshore.adapter.client import (
    Completed,
    CopyIn,
    EmptyQuery,
    Encryption,
    Execution,
    Notice,
    Ran,
    Reading,
)
from foreshore.adapter.control.portals import text_size
from foreshore.adapter.control.statements import Statements
from foreshore.adapter.coordinator.coordinator import Coordinator
from foreshore.adapter.ddl.catalog_lock import rebase_on
from foreshore.adapter.introspection.failing_views import explained
from foreshore.adapter.introspection.relations import builtin_rows
from foreshore.adapter.plans.prepared import NO_STATEMENT, PlanCache, Prepared
from foreshore.adapter.rights.authorize import authorize
from foreshore.adapter.rights.reading import reading_of
from foreshore.adapter.session.planner import SessionPlanner
from foreshore.adapter.session.shaped_texts import ShapedTexts, Shapes
from foreshore.adapter.session.transactions import Transactions
from foreshore.adapter.statement.activity import Activity
from foreshore.adapter.statement.context import Notices, StatementContext
from foreshore.adapter.statement.interrupts import Interrupts
from foreshore.adapter.statement.last_values import LastValues
from foreshore.adapter.statement.planning_cost import PlanningCost, is_short, planning_owner
from foreshore.adapter.statement.portals import BoundPortal, Portals
from foreshore.adapter.statement.result import (
    Outcome,
    Selected,
    TupleSource,
    check_returned,
    taken,
)
from foreshore.adapter.statement.roles import SessionRoles
from foreshore.adapter.subscribe.meaning import meaning_of
from foreshore.adapter.together import (
    FEWEST_TOGETHER,
    RanTogether,
    may_run_together,
    run_together,
)
from foreshore.adapter.transaction.transaction import NOTHING_STAGED
from foreshore.catalog.builtin.object_names import object_names
from foreshore.catalog.item import Role
from foreshore.errors import (
    AdminShutdown,
    Conflict,
    DatabaseError,
    FeatureNotSupported,
    ObjectNotInPrerequisiteState,
    QueryCanceled,
    TableAltered,
    TableDropped,
    TransactionTimeout,
    UndefinedObject,
)
from foreshore.ids import temporary_schema
from foreshore.notifications import Inbox, Notification
from foreshore.output_style import OutputStyle
from foreshore.scratch_share import ScratchShare
from foreshore.session_variables import Variables
from foreshore.sql.parse.parse import Statement as Syntax
from foreshore.sql.parse.script import Script, Unread
from foreshore.sql.plan import CopyFrom, Execute, Fetch, Select
from foreshore.statement_history import Who
from foreshore.types import Datum, SqlType

P = ParamSpec("P")
R = TypeVar("R")

ATTEMPTS = 10
# EXECUTE and FETCH, whose columns are those of what they name, and COPY, which ignores a Sync.
APART = CopyFrom | Execute | Fetch


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
    """One session; calls come one at a time, but for `interrupt`."""

    def __init__(
        self,
        environment: "Home",
        pid: int,
        role: Role,
        variables: Variables,
        peer: str,
        key_bytes: int,
    ) -> None:
        self.environment = environment
        self.coordinator: Coordinator = environment.coordinator
        self.pid = pid
        self.temporary_schema = temporary_schema(pid)  # its name and its id
        self.secret = secrets.token_bytes(key_bytes)
        self.variables = variables
        self.notice = Notices(variables)
        self.peer = peer
        self.encryption: Encryption | None = None  # of the client's connection
        self.backend_type = "client backend"  # or what the environment needs it for
        self.interrupts = Interrupts(ScratchShare(variables))
        self.inbox = Inbox(pid)
        self.activity = Activity(
            self.coordinator.clock,
            variables,
            self.interrupts,
            self.coordinator.statement_history,
            self._who,
        )
        self.planner = SessionPlanner(self)
        self.texts = ShapedTexts(self)
        self.roles = SessionRoles(
            role, variables, lambda: self.planner.state, lambda: self.coordinator.state
        )
        self.portals = Portals(variables)
        self.transactions = Transactions(
            pid,
            self.temporary_schema,
            self.coordinator,
            variables,
            self.interrupts,
            self.inbox,
            self.portals,
            self.context,
        )
        self.statements = Statements(self)
        self.is_one_of_several = False  # the running statement, in its Query message
        self.last_values = LastValues()
        self.closed = asyncio.Event()
        self._end: Callable[[DatabaseError], None] = lambda _: None

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
        return style._replace(names=object_names(partial(builtin_rows, self.context())))

    def changed_parameters(self) -> Mapping[str, str]:
        """Return what ParameterStatus has to tell since the last call."""
        return self.variables.drain_reports()

    @property
    def has_news(self) -> bool:
        """Whether there may be notices, notifications or changed parameters."""
        variables = self.variables
        is_set = variables.version != variables.reported_version
        return bool(is_set or self.notice.waiting or self.inbox.waiting)

    def notices(self) -> Sequence[Notice]:
        """Return the notices since the last call."""
        return self.notice.drain()

    def when_noticed(self, tell: Callable[[], None]) -> None:
        """Have `tell` called when there are notices that should not wait for an answer."""
        self.notice.tell = tell

    def notifications(self, most: int) -> Sequence[Notification]:
        """Return the next notifications, at most so many; none within a transaction."""
        if not self.inbox or self.transactions.running is not None:
            return ()
        return self.inbox.take(most)

    def when_notified(self, tell: Callable[[], None]) -> None:
        """Have `tell` called when there are notifications."""
        self.inbox.tell = tell

    # --- its end -------------------------------------------------------------------------------

    def when_terminated(self, end: Callable[[DatabaseError], None]) -> None:
        """Have `end` called when the session is to end at once, whatever its client does."""
        self._end = end

    def interruptible(self) -> AbstractContextManager[None]:
        """Let a cancel request or a time-out interrupt the body, which is a part of a statement."""
        return self.interrupts.running()

    def interrupt(self, reason: DatabaseError) -> None:
        """End the running statement with `reason`."""
        self.interrupts.request(reason)

    def terminate(self, reason: DatabaseError) -> None:
        """End the session at once with `reason`; a commit on its way to the disk is let through."""
        self.interrupts.outside_of_shelter(partial(self._end, reason))

    def outlives_client(self) -> bool:
        """Whether what runs goes on now that the client has gone."""
        return self.activity.outlives_client(self.terminate)

    def expire(self, now: float) -> None:
        """End the session if it, or its transaction, has been idle or running for too long."""
        if self.transactions.is_overdue:
            self.terminate(TransactionTimeout())
            return
        if not self.transactions.is_implicit:
            reason = self.activity.expired(now, in_block=self.transactions.in_block)
            if reason is not None:
                self.terminate(reason)

    async def close(self) -> None:
        """End the session and all that it holds."""
        self.activity.close()
        try:
            await self.transactions.rollback()
        finally:
            self.portals.close_but()
            self.statements.clear()
            self.environment.forget(self)
            self.closed.set()

    # --- running -------------------------------------------------------------------------------

    def context(
        self,
        prepared: Prepared = NO_STATEMENT,
        args: Sequence[Datum] = (),
        *,
        alone: bool = False,
        again: bool = False,
    ) -> StatementContext:
        """Return the context of one run of a statement, in the running transaction if any."""
        transactions, services = self.transactions, self.coordinator
        return StatementContext(
            prepared, args, alone, transactions.running or transactions.new(), self.planner,
            # names, times, tables, views, engines, feeds, process
            services, services, services, services, services, services, services,
            self.environment.sessions, self, self.pid, self.roles, self.variables,
            set(), self.interrupts, self.notice, again,
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

    def _begin_statement(self, text: str, *, continues: bool = False) -> None:
        self.activity.begin(text, continues=continues)
        self._rebase()

    def _rebase(self) -> None:
        """Let a transaction that changes the catalog see what others have changed since."""
        transaction = self.transactions.running
        if transaction is not None and transaction.staged.catalog is not None:
            # The commit raises it again, unless the client rolls back.
            with suppress(Conflict, UndefinedObject):
                rebase_on(transaction, self.coordinator.state)

    async def _run_once(self, context: StatementContext) -> Outcome:
        """Run one statement; if it is alone, its transaction ends with it."""
        outcome = await dispatch.run(self, context)
        if context.transaction.staged is not NOTHING_STAGED:
            if context.transaction.has_effects:
                check_returned(outcome, self.variables.settings.limits)
            if context.alone and not isinstance(outcome, CopyIn):
                await self.transactions.commit_implicit()
        return outcome

    async def attempt(
        self,
        run: Callable[[StatementContext], Awaitable[R]],
        prepared: Prepared,
        args: Sequence[Datum],
        *,
        alone: bool,
    ) -> R:
        """Return the result of `run`, which runs a statement in the context that it is given.

        A statement that is `alone` in its transaction runs again after a conflict, and so does the
        first of a transaction that meets ALTER or DROP TABLE; it then locks the tables that it
        writes. Raises the error after `ATTEMPTS`, or if one of its functions has done what no
        transaction undoes.
        """
        coordinator = self.coordinator
        transaction = self.transactions.running or self.transactions.begin()
        is_first = transaction.is_untouched and transaction not in coordinator.locks.held
        has_advisory = self.pid in coordinator.advisory.by_transactions
        advisory = self.transactions.advisory_locks if has_advisory else 0
        before = transaction.staged, advisory
        may_retry = alone and not transaction.block
        conflicts = 0
        while True:
            context = self.context(prepared, args, alone=alone, again=conflicts > 0)
            try:
                with self.interrupts:
                    if self.activity.root is None:
                        return await run(context)
                    with tracing.phase("execute"):
                        return await run(context)
            except (Conflict, TableDropped) as error:
                conflicts += 1
                altered = isinstance(error, TableAltered | TableDropped)
                may_run_again = is_first if altered else may_retry
                if not may_run_again or conflicts >= ATTEMPTS or context.lasting_effects:
                    raise
                self.transactions.met_alter |= altered
            self.transactions.begin_again(context.transaction, *before)
            self.notice.drain()
            prepared, args = await self.planner.ready_again(prepared, args)

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

    # --- extended protocol ---------------------------------------------------------------------

    async def parse(self, name: str, sql: str, parameter_oids: Sequence[int]) -> Prepared:
        """Prepare a statement."""
        known = self.statements.known(name, sql, parameter_oids)
        if known is not None:
            return known
        if self.interrupts.active:  # the client still fetches the rows of another statement
            return await self.statements.parse(name, sql, parameter_oids)
        self._begin_statement(sql)
        found = await self.statements.parse(name, sql, parameter_oids)
        self.activity.drop("PREPARE")
        return found

    def told(self) -> None:
        """Note that the client knows the columns of what it has prepared."""
        self.statements.batch += 1

    def statement(self, name: str, types: Sequence[SqlType] = ()) -> Prepared:
        """Return the prepared statement, perhaps for parameters of other types."""
        return self.statements.named(name, types)

    def meaning(self, statement: str) -> str:
        """Return a digest that differs once a prepared query stands for something else."""
        return meaning_of(self.planner.state, self.role.id, self.statements.named(statement))

    def reading(self, statement: str) -> Reading:
        """Return what a prepared statement reads."""
        return reading_of(self.planner.state, self.statements.named(statement))

    async def bind(
        self,
        portal: str,
        name: str | Prepared,
        args: Sequence[Datum],
        formats: Sequence[int],
        size: int = 0,
    ) -> BoundPortal:
        """Make a portal."""
        prepared = self.statements.named(name) if isinstance(name, str) else name
        if not prepared.is_empty:
            if self.transactions.failed:
                self.transactions.check_not_failed(prepared.made.plan)
            else:
                await self.planner.ready(prepared)
        if len(formats) > 1:  # one for each of the columns: they are known
            self.told()
        size += text_size(prepared)
        bound = BoundPortal(portal, prepared, args, formats, desc=prepared.desc, size=size)
        self.portals.add(bound)
        return bound

    def portal(self, name: str) -> BoundPortal:
        """Return the portal."""
        return self.portals.named(name)

    async def execute(self, portal: str, max_rows: int, *, last: bool = False) -> Execution:
        """Run the portal, or go on with it, for at most `max_rows` rows; `last` before a Sync."""
        bound = self.portals.named(portal)
        if bound.statement.syntax is None:
            return EmptyQuery()
        self.transactions.check_not_failed(bound.statement.made.plan)
        if bound.result is not None:
            return self._rows(bound.result, max_rows)
        if bound.done:
            raise ObjectNotInPrerequisiteState(f'portal "{portal}" cannot be run')
        bound.done = True
        alone = self._begin_alone(bound.statement, last=last)
        if not self.transactions.failed:
            await self.planner.ready(bound.statement)
        outcome = await self.attempt(self._run_once, bound.statement, bound.args, alone=alone)
        if isinstance(outcome, Selected):
            bound.result = outcome
        return self._execution(outcome, max_rows)

    def _begin_alone(self, prepared: Prepared, *, last: bool) -> bool:
        """Begin a statement of the extended protocol; return whether its transaction has no other.

        It has none if it is the first, and the last before a Sync.
        """
        assert prepared.syntax is not None
        self._begin_statement(prepared.syntax.text)
        is_first = self.transactions.running is None
        if is_first:
            self.transactions.begin()
        self.is_one_of_several = False
        # Whether a COPY is the last, whoever sends its rows says when they are there.
        if isinstance(prepared.made.plan, CopyFrom):
            return is_first
        return is_first and last and (prepared.changes or isinstance(prepared.made.plan, Select))

    def _execution(self, outcome: Outcome, max_rows: int) -> Execution:
        """Return what the client gets of an outcome."""
        if isinstance(outcome, Selected):
            return self._rows(outcome, max_rows)
        if isinstance(outcome, Completed):
            self.activity.returned(outcome.tag)
            self.activity.end()
        return outcome

    def find_statement(self, name: str) -> Prepared | None:
        """Return a prepared statement that `run` takes, if there is one of this name."""
        prepared = self.statements.get(name)
        if prepared is None or prepared.syntax is None or isinstance(prepared.made.plan, APART):
            return None
        return prepared

    def takes_many(self, prepared: Prepared) -> bool:
        """Whether `run` may run several executions of a statement as one change."""
        return not prepared.made.takes_names and may_run_together(prepared)

    async def ready(self, prepared: Prepared) -> None:
        """Plan a statement again if it has to be."""
        if self.transactions.failed:
            self.transactions.check_not_failed(prepared.made.plan)
            return
        self._rebase()
        if not self.planner.is_valid(prepared):
            await self.planner.ready(prepared)

    async def run(
        self,
        prepared: Prepared,
        many: Sequence[Sequence[Datum]],
        formats: Sequence[int],
        max_rows: int,
        *,
        last: bool,
    ) -> Ran:
        """Run a statement, which is ready, with the first of `many` arguments, or some together."""
        if "" in self.portals:
            self.portals.close("")
        singly = 1
        if len(many) >= FEWEST_TOGETHER and not self.transactions.failed:
            ran = await self._execute_together(prepared, many)
            if ran.tags:
                return Ran([Completed(tag) for tag in ran.tags], ran.singly)
            singly = max(1, ran.singly)
            await self.ready(prepared)  # others may have run meanwhile
        last = last and len(many) == 1
        alone = self._begin_alone(prepared, last=last)
        outcome = await self.attempt(self._run_once, prepared, many[0], alone=alone)
        result = outcome if isinstance(outcome, Selected) else None
        is_over = result is None or isinstance(result.source, TupleSource)
        if not (last and is_over) or self.transactions.in_block:  # else nothing is left of it
            self.portals[""] = BoundPortal(
                "", prepared, many[0], formats, result=result, done=True, desc=prepared.desc
            )
        return Ran((self._execution(outcome, max_rows),), singly - 1)

    async def _execute_together(
        self, prepared: Prepared, many: Sequence[Sequence[Datum]]
    ) -> RanTogether:
        """Run a statement with each of `many` arguments, as far as they may run together.

        It raises the error of an interruption only: after others nothing has happened.
        """
        ran = singly = RanTogether((), len(many))
        if not self.takes_many(prepared):
            return singly
        assert prepared.syntax is not None
        self._begin_statement(prepared.syntax.text)
        is_new = self.transactions.running is None
        transaction = self.transactions.begin()
        staged, reads, counted = transaction.staged, transaction.reads, len(transaction.counted)
        try:
            context = self.context(prepared)
            authorize(context)
            with self.interrupts.running():
                dispatch.settle(context)
                ran = await run_together(context, many)
        except (QueryCanceled, AdminShutdown):
            raise
        except DatabaseError:  # of one of them, which gets it when they run one by one
            ran = singly
            self.notice.drain()
        finally:
            if ran.tags:
                self.activity.returned(ran.tags[-1])
            self.activity.end(is_kept=bool(ran.tags))
        if ran.tags:
            done = BoundPortal("", prepared, many[len(ran.tags) - 1], done=True, desc=prepared.desc)
            self.portals.add(done)
        elif is_new:
            await self.transactions.rollback(is_counted=False)
        else:
            transaction.staged = staged
            transaction.read_only(reads)
            self.coordinator.activity.uncount(transaction.counted[counted:])
            del transaction.counted[counted:]
        return ran

    def _rows(self, selected: Selected, max_rows: int) -> Execution:
        limits = self.variables.settings.limits
        return taken(selected, max_rows, self.interrupts, self.activity.end_rows, limits=limits)

    async def close_statement(self, name: str) -> None:
        """Forget a prepared statement, if there is one."""
        self.statements.pop(name, None)

    async def close_portal(self, name: str) -> None:
        """Forget a portal, if there is one."""
        self.portals.close(name)

    async def sync(self) -> None:
        """End the implicit transaction, if there is one."""
        if self.interrupts.active:
            self.activity.end()
        self.statements.batch += 1
        transaction = self.transactions.running
        if transaction is None:
            if self.portals:
                self.portals.end(committed=True)
        elif not transaction.block:
            # It may wait for others.
            waits = transaction.staged is not NOTHING_STAGED and transaction.has_effects
            if waits:
                self._begin_statement(self.activity.query)
            await self.transactions.commit()
            if waits:
                self.activity.drop("COMMIT")  # it was remembered when it had run

    # --- simple protocol -----------------------------------------------------------------------

    async def simple(self, sql: str) -> AsyncIterator[Execution]:
        """Run all statements of `sql` one after the other, up to the first that fails."""
        self._begin_statement(sql)
        args: Sequence[Datum] = ()
        known: Prepared | None = None
        if not self.transactions.failed and (found := self.texts.find(sql)) is not None:
            known, args = found
            assert known.syntax is not None
            script, text, count = None, known.syntax.text, 1
        else:
            script = await self.script(sql, by_shapes=True)
            text, count = sql, script.count
        if not count:
            yield EmptyQuery()
        single = count == 1
        self.is_one_of_several = not single
        for number in range(1, count + 1):
            if number > 1:
                self._begin_statement(sql, continues=True)
            if script is not None:
                if not script.waiting:
                    await self.run_aside(False, script.go_on)
                statement = script.waiting.popleft()
                text = script.text_of(statement)
            self.transactions.check_may_parse(text)
            if not self.transactions.failed:
                self.transactions.begin()
            prepared = known
            if script is not None:
                place = 0 if single else number
                prepared, args = await self._planned(script, statement, sql, place)
            assert prepared is not None
            outcome = await self.attempt(self._run_once, prepared, args, alone=single)
            if number == count and not isinstance(outcome, CopyIn):
                await self.transactions.commit_implicit()
            if isinstance(outcome, Selected):
                try:
                    limits = self.variables.settings.limits
                    yield taken(outcome, 0, self.interrupts, self.activity.returned, limits=limits)
                finally:
                    outcome.source.close()
            else:
                if isinstance(outcome, Completed):
                    self.activity.returned(outcome.tag)
                yield outcome
            self.activity.end()
        if self.transactions.is_implicit:
            await self.transactions.commit()

    async def _planned(
        self, script: Script, statement: Syntax | Unread, sql: str, number: int
    ) -> tuple[Prepared, Sequence[Datum]]:
        """Return a statement of a script, and its arguments if it is planned by its shape."""
        if isinstance(statement, Unread):
            text = script.text_of(statement)
            if not self.transactions.failed:
                found = self.texts.find_shape(statement.shape, text)
                if found is not None:
                    return found
            statement = await self.run_aside(is_short(text), script.read, statement)
        return await self.planner.prepared_of(sql, statement, number), ()
