"""The extended protocol of a session: prepared statements, portals, and their executions."""

from collections.abc import Sequence
from itertools import repeat
from typing import TYPE_CHECKING

from foreshore.adapter.client import Completed, EmptyQuery, Execution, Reading
from foreshore.adapter.control.portals import text_size
from foreshore.adapter.plans.prepared import Prepared
from foreshore.adapter.rights.reading import reading_of
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.executions import Apart
from foreshore.adapter.statement.portals import BoundPortal
from foreshore.adapter.statement.result import Outcome, Selected, Several, TupleSource, taken
from foreshore.adapter.subscribe.meaning import meaning_of
from foreshore.adapter.transaction.transaction import NOTHING_STAGED
from foreshore.adapter.write.executions import may_run_together
from foreshore.errors import (
    AdminShutdown,
    Conflict,
    DatabaseError,
    LockNotAvailable,
    ObjectNotInPrerequisiteState,
    QueryCanceled,
)
from foreshore.sql.plan import CopyFrom, Declare, Execute, Fetch, LockTable
from foreshore.types import Datum, SqlType

if TYPE_CHECKING:
    from foreshore.adapter.session.session import Session

# EXECUTE and FETCH, whose columns are those of what they name, COPY, which ignores a Sync, and what
# needs a block.
APART = CopyFrom | Declare | Execute | Fetch | LockTable


class ExtendedProtocol:
    """The prepared statements and portals of a session, and what runs them, up to `sync`."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._planner = session.planner
        self._portals = session.portals
        self._statements = session.statements
        self._transactions = session.transactions
        self._interrupts, self._activity = session.interrupts, session.activity

    async def parse(self, name: str, sql: str, parameter_oids: Sequence[int]) -> Prepared:
        """Prepare a statement."""
        known = self._statements.known(name, sql, parameter_oids)
        if known is not None:
            return known
        if self._interrupts.active:  # the client still fetches the rows of another statement
            return await self._statements.parse(name, sql, parameter_oids)
        self._session.begin_statement(sql)
        found = await self._statements.parse(name, sql, parameter_oids)
        self._activity.drop("PREPARE")
        return found

    def told(self) -> None:
        """Note that the client knows the columns of what it has prepared."""
        self._statements.batch += 1

    def statement(self, name: str, types: Sequence[SqlType] = ()) -> Prepared:
        """Return the prepared statement, perhaps for parameters of other types."""
        return self._statements.named(name, types)

    def meaning(self, statement: str) -> str:
        """Return a digest that differs once a prepared query stands for something else."""
        return meaning_of(
            self._planner.state, self._session.role.id, self._statements.named(statement)
        )

    def reading(self, statement: str) -> Reading:
        """Return what a prepared statement reads."""
        return reading_of(self._planner.state, self._statements.named(statement))

    async def bind(
        self,
        portal: str,
        name: str | Prepared,
        args: Sequence[Datum],
        formats: Sequence[int],
        size: int = 0,
    ) -> BoundPortal:
        """Make a portal."""
        prepared = self._statements.named(name) if isinstance(name, str) else name
        if not prepared.is_empty:
            await self.ready(prepared)
        if len(formats) > 1:  # one for each of the columns: they are known
            self.told()
        size += text_size(prepared)
        bound = BoundPortal(portal, prepared, args, formats, desc=prepared.desc, size=size)
        self._portals.add(bound)
        return bound

    def portal(self, name: str) -> BoundPortal:
        """Return the portal."""
        return self._portals.named(name)

    async def execute(self, portal: str, max_rows: int, *, last: bool = False) -> Execution:
        """Run the portal, or go on with it, for at most `max_rows` rows; `last` before a Sync."""
        bound = self._portals.named(portal)
        if bound.statement.syntax is None:
            return EmptyQuery()
        self._transactions.check_not_failed(bound.statement.made.plan)
        if bound.result is not None:
            return self._rows(bound.result, max_rows)
        if bound.done:
            raise ObjectNotInPrerequisiteState(f'portal "{portal}" cannot be run')
        bound.done = True
        # Whether a COPY is the last, whoever sends its rows says when they are there.
        last = last or isinstance(bound.statement.made.plan, CopyFrom)
        alone = self._begin(bound.statement, last=last)
        await self.ready(bound.statement)
        session = self._session
        outcome = await session.attempt(
            session.run_once, bound.statement, (bound.args,), alone=alone
        )
        if isinstance(outcome, Selected):
            bound.result = outcome
        return self.execution(outcome, max_rows)

    def _begin(self, prepared: Prepared, *, last: bool) -> bool:
        """Begin a statement; return whether it is alone in its transaction."""
        assert prepared.syntax is not None
        self._activity.begin(prepared.syntax.text)
        return self._transactions.begin_statement(last=last)

    def execution(self, outcome: Outcome, max_rows: int = 0) -> Execution:
        """Return what the client gets of an outcome; its statement ends when all is taken."""
        if isinstance(outcome, Selected):
            return self._rows(outcome, max_rows)
        if isinstance(outcome, Completed):
            self._activity.end_with(outcome.tag)
        assert not isinstance(outcome, Several), outcome
        return outcome

    def find_statement(self, name: str) -> Prepared | None:
        """Return a prepared statement that `run` takes, if there is one of this name."""
        prepared = self._statements.get(name)
        if prepared is None or prepared.syntax is None or isinstance(prepared.made.plan, APART):
            return None
        return prepared

    def takes_many(self, prepared: Prepared) -> bool:
        """Whether `run` may run several executions of a statement as one."""
        return may_run_together(prepared, self._planner.state)

    async def ready(self, prepared: Prepared) -> None:
        """Plan a statement again if it has to be."""
        if self._transactions.failed:
            self._transactions.check_not_failed(prepared.made.plan)
            return
        self._session.rebase()
        if not self._planner.is_valid(prepared):
            await self._planner.ready(prepared)

    async def run(
        self,
        prepared: Prepared,
        many: Sequence[Sequence[Datum]],
        formats: Sequence[int],
        max_rows: int,
        *,
        last: bool,
    ) -> Sequence[Execution]:
        """Run a statement, which is ready, with the first of `many` arguments, or some as one."""
        if "" in self._portals:
            self._portals.close("")
        outcomes = await self._run_several(prepared, many, last=last) if len(many) > 1 else ()
        if not outcomes:
            session = self._session
            alone = self._begin(prepared, last=last and len(many) == 1)
            outcomes = (await session.attempt(session.run_once, prepared, many[:1], alone=alone),)
        args, newest = many[len(outcomes) - 1], outcomes[-1]
        result = newest if isinstance(newest, Selected) else None
        is_over = result is None or isinstance(result.source, TupleSource)
        last = last and len(outcomes) == len(many)
        if not (last and is_over) or self._transactions.in_block:  # else nothing is left of it
            self._portals[""] = BoundPortal(
                "", prepared, args, formats, result=result, done=True, desc=prepared.desc
            )
        return list(map(self.execution, outcomes, repeat(max_rows)))

    async def _run_several(
        self, prepared: Prepared, many: Sequence[Sequence[Datum]], *, last: bool
    ) -> Sequence[Outcome]:
        """Return the outcomes of the first executions of some, which have run as one.

        There are none if the first one has to run by itself, perhaps as it has an error. A lock for
        which they have waited in vain is not waited for again.
        """
        session, transactions = self._session, self._transactions
        while len(many) > 1 and not transactions.failed:
            before = transactions.mark()
            alone = self._begin(prepared, last=last)
            try:
                return await session.attempt(self._run_as_one, prepared, many, alone=alone)
            except (Conflict, LockNotAvailable, QueryCanceled, AdminShutdown):
                raise
            except Apart as apart:
                many = many[: apart.count]
            except DatabaseError:
                many = many[: len(many) // 2]
            last = False
            self._activity.end(is_kept=False)
            session.news.notice.drain()
            await transactions.undo(before)
            await self.ready(prepared)  # others may have run meanwhile
        return ()

    async def _run_as_one(self, context: StatementContext) -> Sequence[Outcome]:
        if not self.takes_many(context.prepared):  # as planned again
            raise Apart(1)
        outcome = await self._session.run_once(context)
        assert isinstance(outcome, Several), outcome
        return outcome.outcomes

    def _rows(self, selected: Selected, max_rows: int) -> Execution:
        limits, end = self._session.variables.settings.limits, self._activity.end_with
        return taken(selected, max_rows, self._interrupts, end, limits=limits)

    async def close_statement(self, name: str) -> None:
        """Forget a prepared statement, if there is one."""
        self._statements.pop(name, None)

    async def close_portal(self, name: str) -> None:
        """Forget a portal, if there is one."""
        self._portals.close(name)

    async def sync(self) -> None:
        """End the implicit transaction, if there is one."""
        if self._interrupts.active:
            self._activity.end()
        self._statements.batch += 1
        transaction = self._transactions.running
        if transaction is None:
            if self._portals:
                self._portals.end(committed=True)
        elif not transaction.block:
            # It may wait for others.
            waits = transaction.staged is not NOTHING_STAGED and transaction.has_effects
            if waits:
                self._session.begin_statement(self._activity.query)
            await self._transactions.commit()
            if waits:
                self._activity.drop("COMMIT")  # it was remembered when it had run
