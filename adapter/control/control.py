"""Statements about the session itself: transactions and variables, DISCARD, VACUUM and its kin."""

import pyarrow as pa

from foreshore.adapter.client import Completed
from foreshore.adapter.control.conversation import Conversation
from foreshore.adapter.ddl import temporary
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.result import BatchSource, Selected
from foreshore.adapter.statement.roles import visible_settings
from foreshore.catalog.item import Item
from foreshore.catalog.rights import may_maintain
from foreshore.errors import (
    ActiveSqlTransaction,
    InFailedSqlTransaction,
    InvalidParameterValue,
    NoActiveSqlTransaction,
)
from foreshore.extras import require_spark
from foreshore.in_turns import in_turns
from foreshore.isolation import standard_level
from foreshore.session_variables import OF_ROLES
from foreshore.setting_kinds import BOUNDED_STALENESS
from foreshore.sql import plan as plans


def begin(session: Conversation, context: StatementContext, plan: plans.Begin) -> Completed:
    """Run BEGIN."""
    transaction = session.transactions.begin()
    if transaction.block:
        _warn(session, "there is already a transaction in progress", "25001")
    session.transactions.begin(block=True)
    _set_characteristics(session, plan.read_only, plan.isolation)
    return Completed("START TRANSACTION" if plan.started else "BEGIN")


async def commit(session: Conversation, context: StatementContext, plan: plans.Commit) -> Completed:
    """Run COMMIT; of a failed transaction it is a rollback."""
    if session.transactions.failed:
        await session.transactions.rollback()
        tag = "ROLLBACK"
    else:
        _require_block(session, "COMMIT", chain=plan.chain)
        await session.transactions.commit()
        tag = "COMMIT"
    if plan.chain:
        session.transactions.begin(block=True)
    return Completed(tag)


async def rollback(
    session: Conversation, context: StatementContext, plan: plans.Rollback
) -> Completed:
    """Run ROLLBACK."""
    _require_block(session, "ROLLBACK", chain=plan.chain)
    await session.transactions.rollback()
    if plan.chain:
        session.transactions.begin(block=True)
    return Completed("ROLLBACK")


def _require_block(session: Conversation, verb: str, *, chain: bool) -> None:
    """Warn outside of a block; raises NoActiveSqlTransaction if another is to follow it."""
    if session.transactions.in_block:
        return
    if chain:
        raise NoActiveSqlTransaction(f"{verb} AND CHAIN can only be used in transaction blocks")
    _warn(session, "there is no transaction in progress")


def _warn(session: Conversation, message: str, sqlstate: str = "25P01") -> None:
    session.news.notice(message, severity="WARNING", sqlstate=sqlstate)


def savepoint(session: Conversation, context: StatementContext, plan: plans.Savepoint) -> Completed:
    """Run SAVEPOINT, RELEASE or ROLLBACK TO."""
    transaction = session.transactions.begin()
    what = "ROLLBACK TO SAVEPOINT" if plan.kind == "rollback to" else plan.kind.upper()
    if not transaction.block:
        what = "RELEASE SAVEPOINT" if plan.kind == "release" else what
        raise NoActiveSqlTransaction(f"{what} can only be used in transaction blocks")
    if session.transactions.failed and plan.kind != "rollback to":
        raise InFailedSqlTransaction
    match plan.kind:
        case "savepoint":
            session.transactions.set_savepoint(plan.name)
        case "release":
            session.transactions.release_savepoint(plan.name)
        case "rollback to":
            session.transactions.return_to(plan.name)
            return Completed("ROLLBACK")
    return Completed(plan.kind.upper())


def set_transaction(
    session: Conversation, context: StatementContext, plan: plans.SetTransaction
) -> Completed:
    """Run SET TRANSACTION and SET SESSION CHARACTERISTICS."""
    if plan.session:
        if plan.isolation is not None:
            session.variables.set("default_transaction_isolation", (plan.isolation,))
        if plan.read_only is not None:
            value = "on" if plan.read_only else "off"
            session.variables.set("default_transaction_read_only", (value,))
        return Completed("SET")
    if not session.transactions.in_block:
        _warn(session, "SET TRANSACTION can only be used in transaction blocks")
        return Completed("SET")
    _set_characteristics(session, plan.read_only, plan.isolation)
    return Completed("SET")


def _set_characteristics(
    session: Conversation, read_only: bool | None, isolation: str | None
) -> None:
    """Set how the running transaction reads and whether it writes; None leaves it as it is."""
    transaction = session.transactions.begin()
    variables = session.variables
    if isolation is not None and isolation.lower() != variables["transaction_isolation"]:
        if transaction.settled:
            raise ActiveSqlTransaction(
                "SET TRANSACTION ISOLATION LEVEL must be called before any query"
            )
        variables.set("transaction_isolation", (isolation,), local=True)
    if read_only is not None:
        if not read_only and variables["transaction_isolation"].startswith(BOUNDED_STALENESS):
            raise InvalidParameterValue("a transaction of bounded staleness only reads")
        was_read_only = variables["transaction_read_only"] == "on"
        if not read_only and was_read_only and transaction.settled:
            raise ActiveSqlTransaction("transaction read-write mode must be set before any query")
        variables.set("transaction_read_only", ("on" if read_only else "off",), local=True)


# --- variables -----------------------------------------------------------------------------


def set_variable(
    session: Conversation, context: StatementContext, plan: plans.SetVariable
) -> Completed:
    """Run SET."""
    name = plan.name.lower()
    if plan.local and not session.transactions.in_block:
        _warn(session, "SET LOCAL can only be used in transaction blocks")
    if plan.values is not None and len(plan.values) == 1:
        value = plan.values[0]
        if name == "transaction_isolation":
            _set_characteristics(session, None, value)
            if not session.transactions.in_block:  # it is for the next transactions
                session.variables.set("default_transaction_isolation", (value,))
            return Completed("SET")
        state = session.planner.reader().state
        if name == "cluster" and state.cluster(value) is None:
            session.news.notice(
                f'cluster "{value}" does not exist',
                hint="Create the cluster with CREATE CLUSTER or pick an existing one.",
            )
        if name == "database" and state.database(value) is None:
            session.news.notice(f'database "{value}" does not exist')
    context.check_stays_read_only(name, plan.values)
    _set(session, plan.name, plan.values, local=plan.local)
    return Completed("SET")


def _set(
    session: Conversation, name: str, values: tuple[str, ...] | None, *, local: bool = False
) -> None:
    """Set a variable; None is its default."""
    if name.lower() in OF_ROLES:
        session.roles.set(name, values, local=local)
        return
    if name.lower() == "transaction_isolation" and not local and not session.transactions.in_block:
        session.variables.set("default_transaction_isolation", values)  # as SET has set both
    if name.lower() == "bulk_engine" and values is not None and values[0].lower() == "spark":
        require_spark("bulk_engine = 'spark'")
    session.variables.set(name, values, local=local)


def reset_variable(
    session: Conversation, context: StatementContext, plan: plans.ResetVariable
) -> Completed:
    """Run RESET."""
    if plan.name is None:
        session.variables.reset_all()
    else:
        context.check_stays_read_only(plan.name, None)
        _set(session, plan.name, None)
    return Completed("RESET")


def show_variable(
    session: Conversation, context: StatementContext, plan: plans.ShowVariable
) -> Selected:
    """Run SHOW."""
    if plan.name == "all":
        rows = list(visible_settings(context.planner.state, context.role, session.variables))
        columns = [pa.array([row[i] for row in rows], pa.string()) for i in range(3)]
    else:
        value = session.variables.show(plan.name)
        if plan.name == "transaction isolation level":  # as the standard and drivers ask for it
            value = standard_level(value)
        columns = [pa.array([value], pa.string())]
    batch = pa.RecordBatch.from_arrays(columns, names=[f"c{i}" for i in range(len(columns))])
    return Selected(plan.desc, BatchSource(batch), "SHOW")


async def discard(
    session: Conversation, context: StatementContext, plan: plans.Discard
) -> Completed:
    """Run DISCARD."""
    if plan.what in ("all", "plans"):
        if plan.what == "all":
            if session.transactions.is_one_of_several or session.transactions.in_block:
                raise ActiveSqlTransaction("DISCARD ALL cannot run inside a transaction block")
            session.statements.clear()
            session.portals.close_but()
            session.roles.set_session(None)
            session.variables.reset_all()
            context.tables.advisory.release_session(session.pid)
            context.process.channels.forget(session.news.inbox)
        else:
            for prepared in session.statements.values():
                prepared.basis = None
    if plan.what in ("all", "temp"):
        temporary.discard(context)
    if plan.what in ("all", "sequences"):
        session.last_values.clear()
    return Completed(f"DISCARD {plan.what.upper()}")


async def maintain(
    session: Conversation, context: StatementContext, plan: plans.Maintain
) -> Completed:
    """Run VACUUM, ANALYZE, CHECKPOINT or REINDEX; indexes need no rebuilding."""
    verb = plan.verb.upper()
    if plan.verb == "vacuum" and (
        session.transactions.is_one_of_several or session.transactions.in_block
    ):
        raise ActiveSqlTransaction("VACUUM cannot run inside a transaction block")
    why = f"cannot {plan.verb} non-tables or special system tables"
    for name in plan.skipped:
        _warn(session, f'skipping "{name}" --- {why}', "01000")
    is_any = not plan.tables and not plan.skipped
    async for id in in_turns(plan.tables):
        item = context.planner.state.get(id)
        if not isinstance(item, Item) or may_maintain(context.planner.state, context.role, item):
            is_any = True
        else:
            who = f"only table or database owner can {plan.verb} it"
            _warn(session, f'skipping "{item.name}" --- {who}', "01000")
    if plan.verb not in ("analyze", "reindex") and is_any:
        await context.tables.storage.settle()
    return Completed(verb)
