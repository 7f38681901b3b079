"""The transactions of a session, one after the other: begin, commit, roll back, savepoints.

BEGIN opens a transaction block, which COMMIT or ROLLBACK ends. Outside a block a transaction is
implicit, as in PostgreSQL: it has the statements of one Query message, or those between two Syncs,
and commits with the last of them, before that returns anything. A statement that is alone in its
transaction commits within its attempts (`Session.attempt`), so it runs again if that fails.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from foreshore import blocking
from foreshore.adapter.ddl import temporary
from foreshore.adapter.services.collections import Collections
from foreshore.adapter.services.process import Process
from foreshore.adapter.session import commit as committing
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.interrupts import Interrupts, Sheltered
from foreshore.adapter.statement.portals import BoundPortal, Portals
from foreshore.adapter.transaction.locks import CATALOG
from foreshore.adapter.transaction.transaction import NOTHING_STAGED, Staged, Transaction
from foreshore.errors import InFailedSqlTransaction, InvalidSavepoint
from foreshore.ids import temporary_schema
from foreshore.notifications import NO_SIGNALS, Inbox
from foreshore.session_limits import check_room
from foreshore.session_variables import Mark, Variables
from foreshore.setting_kinds import milliseconds
from foreshore.sql import plan as plans

MUCH = 16 << 20  # bytes of rows, which take long to be freed


class Ended(Collections, Process, Protocol):
    """What is told of the end of a transaction."""


@dataclass(frozen=True, slots=True)
class Savepoint:
    """The state that ROLLBACK TO restores."""

    name: str
    staged: Staged
    variables: Mark
    portals: frozenset[BoundPortal]  # those that were open
    locks: int  # the numbers of locks and advisory locks of the transaction
    advisory: int


class Transactions:
    """The running transaction of session `pid`, if any, and its savepoints.

    `context` returns the context of no statement, in the running transaction.
    """

    def __init__(
        self,
        pid: int,
        coordinator: Ended,
        variables: Variables,
        interrupts: Interrupts,
        inbox: Inbox,
        portals: Portals,
        context: Callable[[], StatementContext],
    ) -> None:
        self._pid = pid
        self._temporary_schema = temporary_schema(pid)
        self._coordinator = coordinator
        self._variables = variables
        self._interrupts = interrupts
        self._inbox = inbox
        self._portals = portals
        self._context = context
        self.running: Transaction | None = None
        self.failed = False
        self.is_one_of_several = False  # the running statement, in its Query message
        self.met_alter = False  # the transaction was tried again because of ALTER TABLE
        self._savepoints: list[Savepoint] = []

    @property
    def in_block(self) -> bool:
        """Whether a transaction block is open."""
        return self.running is not None and self.running.block

    @property
    def is_implicit(self) -> bool:
        """Whether a transaction runs outside a block."""
        return self.running is not None and not self.running.block

    @property
    def is_overdue(self) -> bool:
        """Whether the running transaction has taken longer than it may."""
        if self.running is None:
            return False
        names = ["transaction_timeout", "max_transaction_time"]
        locks = self._coordinator.locks
        if locks.holds_catalog(self.running) and locks.is_waited_for(CATALOG):
            names.append("max_catalog_lock_time")
        limits = [limit for name in names if (limit := milliseconds(self._variables[name]))]
        lasts_ms = self._coordinator.clock.now() - self.running.started // 1000
        return bool(limits) and lasts_ms >= min(limits)

    def check_not_failed(self, plan: plans.Plan | None) -> None:
        """Raise InFailedSqlTransaction if the transaction has failed and `plan` does not end it."""
        if self.failed and not isinstance(plan, plans.Commit | plans.Rollback | plans.Savepoint):
            raise InFailedSqlTransaction

    def check_may_parse(self, text: str) -> None:
        """Raise InFailedSqlTransaction as `check_not_failed` does, before planning."""
        words = text[:100].split(None, 1)
        ends = words and words[0].rstrip(";").lower() in ("commit", "rollback", "end", "abort")
        if self.failed and not ends:
            raise InFailedSqlTransaction

    @property
    def advisory_locks(self) -> int:
        """The number of the transaction's advisory locks."""
        advisory = self._coordinator.advisory
        return advisory.mark(self._pid) if self._pid in advisory.by_transactions else 0

    def begin(self, *, block: bool = False) -> Transaction:
        """Return the running transaction, a new one if there is none."""
        if self.running is None:
            self.running = self.new()
        if block:
            self.running.block = True
        return self.running

    def begin_statement(self, *, last: bool, is_one_of_several: bool = False) -> bool:
        """Begin an implicit transaction if none runs; return whether the statement is alone in it.

        It is if it is the first, and the `last` before a Sync or of its Query message. Then the
        transaction ends within its attempts.
        """
        self.is_one_of_several = is_one_of_several
        if self.running is not None:
            return False
        self.running = self.new()
        return last

    def new(self) -> Transaction:
        """Return a transaction that begins now."""
        coordinator = self._coordinator
        return Transaction(coordinator.clock.now() * 1000, coordinator.oracle.read_ts())

    # --- statements that run otherwise ---------------------------------------------------------

    def mark(self) -> tuple[Staged, int] | None:
        """Return what `undo` needs to undo the next statement."""
        running = self.running
        return None if running is None else (running.staged, len(running.counted))

    async def undo(self, mark: tuple[Staged, int] | None) -> None:
        """Undo what was staged since the mark, as it will be made otherwise; locks stay."""
        if mark is None:
            await self.rollback(is_counted=False)
            return
        (staged, counted), transaction = mark, self.begin()
        transaction.staged = staged
        self._coordinator.activity.uncount(transaction.counted[counted:])
        del transaction.counted[counted:]

    # --- the end -------------------------------------------------------------------------------

    async def commit_implicit(self) -> None:
        """Commit what the statement has done, unless its transaction is a block."""
        transaction = self.running
        if transaction is not None and not transaction.block and transaction.has_effects:
            await self.commit()

    async def commit(self, context: StatementContext | None = None) -> None:
        """Make what the transaction did durable and visible, or roll back and raise why not.

        `context` is that of a statement, if one commits it.
        """
        transaction = self.running
        if transaction is None:
            return
        if transaction.staged is NOTHING_STAGED:
            self._has_committed(transaction)
            return
        channels, reserved = self._coordinator.channels, 0
        try:
            if transaction.staged.signals is not NO_SIGNALS:
                reserved = channels.reserve(transaction.staged.signals)
            if transaction.staged.rows or transaction.has_effects:
                await self._commit_effects(transaction, context or self._context())
        except BaseException:
            await self.rollback()
            raise
        finally:
            if reserved:
                channels.release(reserved)
        self._has_committed(transaction)

    def _has_committed(self, transaction: Transaction) -> None:
        activity = self._coordinator.activity
        activity.commits[self._variables["database"]] += 1
        if transaction.staged is not NOTHING_STAGED:
            for id, rows in transaction.staged.rows.items():
                activity.committed(id, rows.count)
            if transaction.staged.signals is not NO_SIGNALS:
                self._send_signals(transaction)
        if self._variables.touched or self._savepoints:
            self._variables.commit()
        self._end(transaction)
        if self._portals or self._portals.streams:
            self._portals.end(committed=True)

    async def _commit_effects(self, transaction: Transaction, context: StatementContext) -> None:
        change = transaction.staged.catalog
        state = context.names.catalog.state if change is None else change.state
        if self._temporary_schema in state.parts:
            temporary.before_commit(context)
            if not transaction.has_effects:
                return
        if transaction.staged.catalog is not None or self._coordinator.locks.tables:
            with self._interrupts.running():
                await committing.wait_for_tables(context)
                await committing.wait_for_views(context)
        applied = None
        if transaction.staged.signals is not NO_SIGNALS:
            applied = partial(self._send_signals, transaction)
        with Sheltered(self._interrupts):
            await committing.commit_effects(context, applied)

    def _send_signals(self, transaction: Transaction) -> None:
        transaction.send_signals(self._coordinator.channels, self._inbox)

    async def rollback(self, *, is_counted: bool = True) -> None:
        """Undo what the transaction did; it is not counted if it runs again."""
        if self.running is not None:
            self._coordinator.activity.rollbacks[self._variables["database"]] += is_counted
            if not is_counted:
                self._coordinator.activity.uncount(self.running.counted)
            self._end(self.running)
        self._variables.rollback()
        self._end_portals(committed=False)

    async def fail(self) -> None:
        """Mark a transaction block as failed after an error; roll an implicit one back."""
        transaction = self.running
        if transaction is None or not transaction.block:
            await self.rollback()
            return
        self.failed = True
        if self._savepoints:  # it may go on from one of them
            self._release_since_savepoint(transaction)
            return
        transaction.staged = NOTHING_STAGED
        self._release(transaction)
        self._end_portals(committed=False)

    def begin_again(self, transaction: Transaction, staged: Staged, advisory: int) -> None:
        """Undo the first statement of a transaction, or find it undone, to try it again.

        Before, the transaction had `staged`, and the number `advisory` of advisory locks.
        """
        self._coordinator.activity.uncount(transaction.counted)
        if self.running is transaction:
            self._release(transaction, advisory)
        self.running = transaction.anew(staged, self._coordinator.oracle.read_ts())

    def _end(self, transaction: Transaction) -> None:
        self.running = None
        self.failed = self.met_alter = False
        if self._savepoints:
            self._savepoints.clear()
        self._release(transaction)
        if transaction.file is not None or transaction.staged.kept > MUCH:
            blocking.let_go(transaction.forget_rows())

    def _release(self, transaction: Transaction, advisory: int = 0) -> None:
        """Release what a transaction holds, but for its first advisory locks."""
        coordinator = self._coordinator
        if transaction in coordinator.holds.owned:
            coordinator.holds.release(transaction)
        if coordinator.sequences.private:
            coordinator.sequences.forget_private(transaction)
        if transaction in coordinator.resizes.owned:
            coordinator.resizes.end(transaction)
        if coordinator.locks.held or coordinator.advisory.by_transactions:
            self._release_locks(transaction, 0, advisory)

    def _release_locks(self, transaction: Transaction, locks: int, advisory: int) -> None:
        """Release all but the first `locks` and `advisory` locks of the transaction."""
        coordinator = self._coordinator
        if transaction in coordinator.locks.held:
            coordinator.locks.release(transaction, locks)
        if self._pid in coordinator.advisory.by_transactions:
            coordinator.advisory.release_transaction(self._pid, advisory)

    def _end_portals(self, *, committed: bool) -> None:
        if self._portals or self._portals.streams:
            self._portals.end(committed=committed)

    # --- savepoints ----------------------------------------------------------------------------

    def set_savepoint(self, name: str) -> None:
        """Set a savepoint in the running transaction."""
        check_room(self._variables, "max_savepoints", len(self._savepoints), "savepoints")
        transaction, coordinator = self.begin(), self._coordinator
        savepoint = Savepoint(
            name,
            transaction.staged.fork(),
            self._variables.mark(),
            frozenset(self._portals.values()),
            coordinator.locks.mark(transaction),
            self.advisory_locks,
        )
        self._savepoints.append(savepoint)

    def release_savepoint(self, name: str) -> None:
        """Forget savepoint `name` and those after it."""
        place = self._place_of(name)
        self._variables.release(self._savepoints[place].variables)
        del self._savepoints[place:]

    def return_to(self, name: str) -> None:
        """Undo what the transaction did since savepoint `name`, and go on from there."""
        place = self._place_of(name)
        transaction, savepoint = self.begin(), self._savepoints[place]
        del self._savepoints[place + 1 :]
        transaction.staged = savepoint.staged.fork()
        self._release_since_savepoint(transaction)
        self._variables.return_to(savepoint.variables)
        self._portals.close_but(savepoint.portals)
        self.failed = False

    def _place_of(self, name: str) -> int:
        """Return the place of the latest savepoint `name`."""
        for place in reversed(range(len(self._savepoints))):
            if self._savepoints[place].name == name:
                return place
        raise InvalidSavepoint(f'savepoint "{name}" does not exist')

    def _release_since_savepoint(self, transaction: Transaction) -> None:
        savepoint = self._savepoints[-1]
        self._release_locks(transaction, savepoint.locks, savepoint.advisory)
