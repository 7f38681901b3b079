"""Statements of a session that are answered without waiting, in the callback that received them.

Between two awaits nothing changes, so several reads are one transaction at one time. It is begun
only outside of any other, and leaves nothing behind. A plan is found valid once for each state of
the catalog and of the session's variables.

A change of rows by VALUES or by a key runs as any statement does, but must not wait for anything:
as a transaction of its own until it has joined its group, within a block at all (`change`). So do
BEGIN and COMMIT. If one would wait, or fails, it is undone, and the caller makes the ordinary
calls.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from foreshore import tracing
from foreshore.adapter import dispatch
from foreshore.adapter.client import Completed, Landed, RowsAtHand
from foreshore.adapter.read.keys.at_hand import AtHandProof, IndexRows, TableRows
from foreshore.adapter.read.result import ALL, Outcome, Selected, TupleSource
from foreshore.adapter.rights.authorize import is_allowed
from foreshore.adapter.session.prepared import Prepared
from foreshore.adapter.transaction.commit import write_of
from foreshore.adapter.waits.snapshots import unfilled_sources
from foreshore.adapter.write.returning import compiled_list
from foreshore.expr.functions.system import RANDOM, RANDOM_UUID
from foreshore.result_limits import is_unlimited
from foreshore.sql.plan import Begin, Commit, Delete, Insert, Query, Rollback, Select, Update
from foreshore.sql.rewrite.values_template import MOST_IN_PASSING
from foreshore.table_rows import Row
from foreshore.types import Datum

if TYPE_CHECKING:
    from foreshore.adapter.session.session import Session


logger = logging.getLogger(__name__)

R = TypeVar("R")


class StatementsAtHand:
    """The statements of a session whose answers are at hand."""

    def __init__(self, session: "Session") -> None:
        self._session = session

    def can_begin(self) -> bool:
        """Whether the session is idle, outside of a transaction, and has nothing to tell."""
        session = self._session
        return session.transactions.running is None and not session.portals and self._is_idle()

    def statement(self, name: str) -> Prepared | None:
        """Return a prepared statement that may be answered at once."""
        prepared = self._session.statements.get(name)
        if prepared is None or prepared.at_hand is None:
            return None
        return prepared if self._is_found_valid(prepared) else None

    def parse(self, sql: str, parameter_oids: Sequence[int]) -> Prepared | None:
        """Prepare the unnamed statement, if its plan is known."""
        return self._session.statements.known("", sql, parameter_oids)

    def unnamed(self) -> Prepared | None:
        """Return the unnamed statement, if there is one."""
        return self._session.statements.get("")

    def restore(self, unnamed: Prepared | None) -> None:
        """Undo each `parse` since `unnamed` was returned."""
        statements = self._session.statements
        if unnamed is not None:
            statements[""] = unnamed
        else:
            statements.pop("", None)

    def query(self, sql: str) -> tuple[Prepared, Sequence[Datum]] | None:
        """Return the only statement of a Query message, and its arguments, if its plan is known."""
        return None if self._session.transactions.failed else self._session.planner.known_text(sql)

    def may_read(self, statement: Prepared) -> bool:
        """Whether a statement of `query` may be answered by `rows`."""
        return statement.at_hand is not None and self._is_found_valid(statement)

    def plan(self, statement: Prepared) -> object:
        """Return what decides a statement's rows, which sessions share."""
        return statement.at_hand

    def rows(self, statement: Prepared, args: Sequence[Datum]) -> RowsAtHand | None:
        """Return a statement's rows, whose data are of its columns' types; None: not at once."""
        assert statement.at_hand is not None
        coordinator = self._session.coordinator
        time = coordinator.oracle.read_ts()

        def value(name: str) -> Datum:
            return self._session.context(statement, args).session_value(time)(name)

        return statement.at_hand.rows(coordinator, time, args, value)

    def holds(self, proof: AtHandProof) -> bool:
        """Whether rows that `rows` has returned are still those of the statement."""
        coordinator = self._session.coordinator
        return proof.holds(coordinator, coordinator.oracle.read_ts())

    def end(self, last: Prepared, text: str | None = None) -> None:
        """Note that statements were answered, of which this is the last one."""
        session = self._session
        session.activity.ran(_shown(last, text))
        session.coordinator.activity.commits[session.database] += 1
        session.told()

    def changes(self, name: str) -> Prepared | None:
        """Return a prepared statement, if it `may_run`."""
        prepared = self._session.statements.get(name)
        if prepared is None or not self.may_run(prepared):
            return None
        return prepared if self._session.planner.is_valid(prepared) else None

    def may_run(self, prepared: Prepared) -> bool:
        """Whether a statement, whose plan is valid, may run now without waiting."""
        session, running = self._session, self._session.transactions.running
        if tracing.is_on():  # its phases take place one after the other in `Session`
            return False
        if not _runs_at_once(prepared, in_block=running is not None):
            return False
        if running is not None and (
            not running.block
            or session.transactions.failed
            or running.catalog is not None
            or not session.portals.keys() <= {""}  # which a Bind replaces
            or not self._is_idle()
        ):
            return False
        match prepared.plan:
            case Insert(table=table) | Update(table=table) | Delete(table=table):
                state, locks = session.coordinator.state, session.coordinator.locks
                if state.foreign_keys_of(table) or state.references_to(table):
                    return False
                if prepared.desc is not None and (
                    session.coordinator.catalog.planned[table].computed
                    or not is_unlimited(session.variables)
                ):
                    return False
                locks_no_key = isinstance(prepared.plan, Insert) and not prepared.plan.on_conflict
                return locks_no_key or not locks.is_waited_for(table)
            case Select():
                return is_unlimited(session.variables)
            case _:
                return True

    def change(
        self, prepared: Prepared, args: Sequence[Datum], landed: Landed, text: str | None = None
    ) -> bool:
        """Run a statement that `may_run`; return whether it ran.

        `landed` is called, perhaps later: with its tag and rows once these are certain, or with
        None if nothing has happened, so that the statement is to run as any other.
        """
        session, transactions = self._session, self._session.transactions
        session.activity.begin(_shown(prepared, text))
        session.is_one_of_several = False
        session.portals.close("")
        is_alone = transactions.running is None
        transaction = transactions.begin()
        undo = transactions.before_statement()

        rows: Sequence[Row] = ()
        template = prepared.template
        draws = template is not None and bool(template.calls)
        forget_numbers = session.last_values.begin() if draws else None

        def ended(tag: str | None) -> None:
            if tag is not None:
                session.activity.returned(tag)
            session.activity.end(is_kept=tag is not None)
            session.told()
            landed(tag, rows)

        def committed(has_committed: bool) -> None:
            ended(tag if has_committed else None)

        try:
            context = session.context(prepared, args, alone=is_alone)
            if isinstance(prepared.plan, Commit):
                tag = "COMMIT"
            else:
                outcome = _at_once(dispatch.run(session, context))
                if session.notice.waiting:
                    raise _Waits
                tag, rows = _answer_of(outcome)
                if transaction.block:
                    ended(tag)
                    return True
            if not transaction.has_effects:
                _at_once(transactions.commit())
                ended(tag)
                return True
            write = _at_once(write_of(context, {})) if transactions.may_submit() else None
            if write is None or write.lock_timeout_ms or write.moves:
                raise _Waits
            transactions.submit(write, committed)
        except Exception as error:  # what runs it as any other meets it, too
            logger.debug("not at once: %s", error)
            session.notice.drain()
            if forget_numbers is not None:
                for taken in forget_numbers():
                    session.coordinator.sequences.take_back(taken)
            if is_alone:
                _at_once(transactions.rollback(is_counted=False))
            else:
                undo()
            session.activity.drop("PREPARE")
            return False
        finally:
            if draws:
                session.last_values.taken = None
        return True

    def _is_idle(self) -> bool:
        """Whether nothing runs in the session, and there is nothing to tell."""
        session = self._session
        return (
            not session.portals.streams
            and not session.interrupts.active
            and not session.notice.waiting
            and not session.variables.has_reports
        )

    def _is_found_valid(self, prepared: Prepared) -> bool:
        """Whether the plan is valid, as is found once for each state."""
        state, version = self._session.coordinator.catalog.state, self._session.variables.version
        found_valid = prepared.found_valid
        if found_valid[0] is state and found_valid[1] == version:
            return True
        if not self._is_valid(prepared):
            return False
        prepared.found_valid = state, version
        return True

    def _is_valid(self, prepared: Prepared) -> bool:
        """Whether the plan is valid, also as to the inputs and what answers for them."""
        session, coordinator = self._session, self._session.coordinator
        variables = session.variables
        if not session.planner.is_valid(prepared) or not is_allowed(session.context(prepared)):
            return False
        if variables["cluster_replica"] or variables["emit_timestamp_notice"] == "on":
            return False
        if not is_unlimited(variables) or variables["real_time_recency"] == "on":
            return False
        if unfilled_sources(coordinator, prepared.used):
            return False
        altered = coordinator.state.altered_below(prepared.used)
        if max(altered.values(), default=0) > coordinator.oracle.read_ts():
            return False
        if not isinstance(prepared.at_hand, IndexRows):
            return True
        cluster = coordinator.state.cluster(session.cluster)
        return cluster is not None and coordinator.has_replica(cluster.id)


class _Waits(Exception):
    """A statement would wait for something."""


def _at_once(work: Coroutine[Any, Any, R]) -> R:
    """Return what `work` gives without waiting; it is cancelled, and raises, if it would wait."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    try:
        work.throw(asyncio.CancelledError())
    except asyncio.CancelledError:
        raise _Waits from None
    work.close()
    raise _Waits


def _shown(prepared: Prepared, text: str | None) -> str:
    """Return the text by which a statement is shown."""
    if text is not None:
        return text
    assert prepared.syntax is not None
    return prepared.syntax.text


def _answer_of(outcome: Outcome) -> tuple[str, Sequence[Row]]:
    """Return the tag of a statement that has run, and its rows; raises _Waits."""
    match outcome:
        case Completed(tag):
            return tag, ()
        case Selected(source=TupleSource() as source, verb=verb):
            rows = source.at_once(ALL)
            assert rows is not None
            return f"{verb} {len(rows)}", rows
        case _:
            raise _Waits


# Calls that a statement may make again, if it is undone as if it had not begun.
_CALLS = frozenset(("nextval", "currval", "lastval", RANDOM, RANDOM_UUID))


def _runs_at_once(prepared: Prepared, *, in_block: bool) -> bool:
    """Whether a statement changes rows of VALUES, or the row under a key.

    BEGIN outside of a block, and reads by a key and the end of one within it, are such as well.
    """
    if prepared.takes_names:
        return False
    match prepared.plan:
        case Begin():
            return not in_block
        case Commit(chain=False) | Rollback(chain=False):
            return in_block
        case Insert(as_of=None, on_conflict=conflict, returning=returning):
            template = prepared.template
            return (
                template is not None
                and len(template.cells) <= MOST_IN_PASSING
                and all(call.function in _CALLS for call in template.calls)
                and (returning is None or (conflict is None and _returns_tuples(returning)))
            )
        case Update(returning=returning) | Delete(returning=returning):
            return prepared.point is not None and (returning is None or _returns_tuples(returning))
        case Select():
            return in_block and isinstance(prepared.at_hand, TableRows | IndexRows)
        case _:
            return False


def _returns_tuples(returning: Query) -> bool:
    return compiled_list(returning) is not None
