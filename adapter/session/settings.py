"""SET, SHOW, RESET, DISCARD, and VACUUM with its kin."""

from typing import TYPE_CHECKING

import pyarrow as pa

from foreshore.adapter.client import Completed
from foreshore.adapter.read.result import BatchSource, Selected
from foreshore.adapter.read.timestamp_selection import standard_level
from foreshore.adapter.session import temporary
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.session.control import set_characteristics
from foreshore.adapter.session.variables import boolean
from foreshore.errors import (
    ActiveSqlTransaction,
)
from foreshore.sql.plan import (
    Discard,
    Maintain,
    ResetVariable,
    SetVariable,
    ShowVariable,
    Unlisten,
)

if TYPE_CHECKING:
    from foreshore.adapter.session.session import Session


def set_variable(session: "Session", context: StatementContext, plan: SetVariable) -> Completed:
    """Run SET."""
    name = plan.name.lower()
    if plan.local and not session.transactions.in_block:
        session.notice(
            "SET LOCAL can only be used in transaction blocks",
            severity="WARNING",
            sqlstate="25P01",
        )
    if plan.values is not None and len(plan.values) == 1:
        value = plan.values[0]
        if name == "transaction_isolation":
            set_characteristics(session, None, value)
            if not session.transactions.in_block:  # it is for the next transactions
                session.variables.set("default_transaction_isolation", (value,))
            return Completed("SET")
        if name == "transaction_read_only" and session.transactions.in_block:
            set_characteristics(session, boolean(name, value) == "on", None)
            return Completed("SET")
        state = session.planner.reader().state
        if name == "cluster" and state.cluster(value) is None:
            session.notice(
                f'cluster "{value}" does not exist',
                hint="Create the cluster with CREATE CLUSTER or pick an existing one.",
            )
        if name == "database" and state.database(value) is None:
            session.notice(f'database "{value}" does not exist')
    _set(session, plan.name, plan.values, local=plan.local)
    return Completed("SET")


def _set(
    session: "Session", name: str, values: tuple[str, ...] | None, *, local: bool = False
) -> None:
    """Set a variable; None is its default."""
    if name.lower() == "transaction_isolation" and not local and not session.transactions.in_block:
        session.variables.set("default_transaction_isolation", values)  # as SET has set both
    session.variables.set(name, values, local=local)


def reset_variable(session: "Session", context: StatementContext, plan: ResetVariable) -> Completed:
    """Run RESET."""
    if plan.name is None:
        session.variables.reset_all()
    else:
        _set(session, plan.name, None)
    return Completed("RESET")


def show_variable(session: "Session", context: StatementContext, plan: ShowVariable) -> Selected:
    """Run SHOW."""
    if plan.name == "all":
        rows = list(session.variables.show_all())
        columns = [pa.array([row[i] for row in rows], pa.string()) for i in range(3)]
    else:
        value = session.variables.show(plan.name)
        if plan.name == "transaction isolation level":  # as the standard and drivers ask for it
            value = standard_level(value)
        columns = [pa.array([value], pa.string())]
    batch = pa.RecordBatch.from_arrays(columns, names=[f"c{i}" for i in range(len(columns))])
    return Selected(plan.desc, BatchSource(batch), "SHOW")


async def discard(session: "Session", context: StatementContext, plan: Discard) -> Completed:
    """Run DISCARD."""
    if plan.what in ("all", "plans"):
        if plan.what == "all":
            if session.is_one_of_several or session.transactions.in_block:
                raise ActiveSqlTransaction("DISCARD ALL cannot run inside a transaction block")
            session.statements.clear()
            session.portals.close_but()
            session.variables.reset_all()
            session.coordinator.advisory.release_session(session.pid)
        else:
            for prepared in session.statements.values():
                prepared.basis = None
    if plan.what in ("all", "temp"):
        temporary.discard(context)
    if plan.what in ("all", "sequences"):
        session.last_values.clear()
    return Completed(f"DISCARD {plan.what.upper()}")


async def maintain(session: "Session", context: StatementContext, plan: Maintain) -> Completed:
    """Run VACUUM, ANALYZE or CHECKPOINT."""
    verb = plan.verb.upper()
    if plan.verb == "vacuum" and (session.is_one_of_several or session.transactions.in_block):
        raise ActiveSqlTransaction("VACUUM cannot run inside a transaction block")
    for name in plan.skipped:
        session.notice(
            f'skipping "{name}" --- cannot {plan.verb} non-tables or special system tables',
            severity="WARNING",
            sqlstate="01000",
        )
    if plan.verb != "analyze":
        await session.coordinator.storage.settle()
    return Completed(verb)


def unlisten(session: "Session", context: StatementContext, plan: Unlisten) -> Completed:
    """Run UNLISTEN; there is nothing to listen to."""
    return Completed("UNLISTEN")
