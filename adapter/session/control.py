"""Statements about transactions."""

from typing import TYPE_CHECKING

from foreshore.adapter.client import Completed
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.session.variables import BOUNDED_STALENESS
from foreshore.errors import (
    ActiveSqlTransaction,
    InFailedSqlTransaction,
    InvalidParameterValue,
    NoActiveSqlTransaction,
)
from foreshore.sql.plan import (
    Begin,
    Commit,
    Rollback,
    Savepoint,
    SetTransaction,
)

if TYPE_CHECKING:
    from foreshore.adapter.session.session import Session


# --- transactions --------------------------------------------------------------------------


def begin(session: "Session", context: StatementContext, plan: Begin) -> Completed:
    """Run BEGIN."""
    transaction = session.transactions.begin()
    if transaction.block:
        session.notice(
            "there is already a transaction in progress", severity="WARNING", sqlstate="25001"
        )
    session.transactions.begin(block=True)
    set_characteristics(session, plan.read_only, plan.isolation)
    return Completed("START TRANSACTION" if plan.started else "BEGIN")


async def commit(session: "Session", context: StatementContext, plan: Commit) -> Completed:
    """Run COMMIT; of a failed transaction it is a rollback."""
    if session.transactions.failed:
        await session.transactions.rollback()
        tag = "ROLLBACK"
    else:
        if not session.transactions.in_block:
            _no_transaction(session)
        await session.transactions.commit()
        tag = "COMMIT"
    if plan.chain:
        session.transactions.begin(block=True)
    return Completed(tag)


async def rollback(session: "Session", context: StatementContext, plan: Rollback) -> Completed:
    """Run ROLLBACK."""
    if not session.transactions.in_block:
        _no_transaction(session)
    await session.transactions.rollback()
    if plan.chain:
        session.transactions.begin(block=True)
    return Completed("ROLLBACK")


def _no_transaction(session: "Session") -> None:
    session.notice("there is no transaction in progress", severity="WARNING", sqlstate="25P01")


def savepoint(session: "Session", context: StatementContext, plan: Savepoint) -> Completed:
    """Run SAVEPOINT, RELEASE or ROLLBACK TO."""
    transaction = session.transactions.begin()
    what = "ROLLBACK TO SAVEPOINT" if plan.kind == "rollback to" else plan.kind.upper()
    if not transaction.block:
        what = "RELEASE SAVEPOINT" if plan.kind == "release" else what
        raise NoActiveSqlTransaction(f"{what} can only be used in transaction blocks")
    match plan.kind:
        case "savepoint":
            if session.transactions.failed:
                raise InFailedSqlTransaction
            session.transactions.set_savepoint(plan.name)
        case "release":
            if session.transactions.failed:
                raise InFailedSqlTransaction
            session.transactions.release_savepoint(plan.name)
        case "rollback to":
            session.transactions.return_to(plan.name)
            return Completed("ROLLBACK")
    return Completed(plan.kind.upper())


def set_transaction(
    session: "Session", context: StatementContext, plan: SetTransaction
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
        session.notice(
            "SET TRANSACTION can only be used in transaction blocks",
            severity="WARNING",
            sqlstate="25P01",
        )
        return Completed("SET")
    set_characteristics(session, plan.read_only, plan.isolation)
    return Completed("SET")


def set_characteristics(session: "Session", read_only: bool | None, isolation: str | None) -> None:
    """Set how the running transaction reads and whether it writes; None leaves it as it is."""
    transaction = session.transactions.begin()
    variables = session.variables
    if isolation is not None:
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
