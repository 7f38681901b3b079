"""Statements about the session: transactions, variables, prepared statements."""

from typing import TYPE_CHECKING

import pyarrow as pa

from foreshore.adapter.client import Completed
from foreshore.adapter.read.bind import value_of
from foreshore.adapter.read.result import BatchSource, Outcome, Selected
from foreshore.adapter.read.timestamp_selection import standard_level
from foreshore.adapter.session import temporary
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.session.planning_cost import is_short
from foreshore.adapter.session.prepared import Prepared
from foreshore.adapter.session.savepoints import find_savepoint
from foreshore.errors import (
    ActiveSqlTransaction,
    DatatypeMismatch,
    DuplicatePreparedStatement,
    InFailedSqlTransaction,
    InvalidParameterValue,
    InvalidSqlStatementName,
    NoActiveSqlTransaction,
    SyntaxError_,
)
from foreshore.expr.functions.registry import resolve_cast
from foreshore.expr.ir import Call, Literal, Scalar, type_of
from foreshore.settings import BOUNDED_STALENESS
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import (
    Begin,
    Commit,
    Deallocate,
    Discard,
    Execute,
    Maintain,
    Prepare,
    ResetVariable,
    Rollback,
    Savepoint,
    SetTransaction,
    SetVariable,
    ShowVariable,
)
from foreshore.sql.rewrite.session_zone import SessionZone
from foreshore.text import parse_text
from foreshore.types import Datum, SqlType

if TYPE_CHECKING:
    from foreshore.adapter.session.session import Session


# --- transactions --------------------------------------------------------------------------


def begin(session: "Session", plan: Begin) -> Completed:
    """Run BEGIN."""
    transaction = session.begin()
    if transaction.block:
        session.notice(
            "there is already a transaction in progress", severity="WARNING", sqlstate="25001"
        )
    session.begin(block=True)
    _characteristics(session, plan.read_only, plan.isolation)
    return Completed("START TRANSACTION" if plan.started else "BEGIN")


async def commit(session: "Session", plan: Commit) -> Completed:
    """Run COMMIT; of a failed transaction it is a rollback."""
    if session.failed:
        await session.rollback()
        tag = "ROLLBACK"
    else:
        if not session.begin().block:
            _no_transaction(session)
        await session.commit()
        tag = "COMMIT"
    if plan.chain:
        session.begin(block=True)
    return Completed(tag)


async def rollback(session: "Session", plan: Rollback) -> Completed:
    """Run ROLLBACK."""
    if not session.begin().block:
        _no_transaction(session)
    await session.rollback()
    if plan.chain:
        session.begin(block=True)
    return Completed("ROLLBACK")


def _no_transaction(session: "Session") -> None:
    session.notice("there is no transaction in progress", severity="WARNING", sqlstate="25P01")


def savepoint(session: "Session", plan: Savepoint) -> Completed:
    """Run SAVEPOINT, RELEASE or ROLLBACK TO."""
    transaction = session.begin()
    what = "ROLLBACK TO SAVEPOINT" if plan.kind == "rollback to" else plan.kind.upper()
    if not transaction.block:
        what = "RELEASE SAVEPOINT" if plan.kind == "release" else what
        raise NoActiveSqlTransaction(f"{what} can only be used in transaction blocks")
    match plan.kind:
        case "savepoint":
            if session.failed:
                raise InFailedSqlTransaction
            session.set_savepoint(plan.name)
        case "release":
            if session.failed:
                raise InFailedSqlTransaction
            del session.savepoints[find_savepoint(session.savepoints, plan.name) :]
        case "rollback to":
            session.return_to(find_savepoint(session.savepoints, plan.name))
            return Completed("ROLLBACK")
    return Completed(plan.kind.upper())


def set_transaction(session: "Session", plan: SetTransaction) -> Completed:
    """Run SET TRANSACTION and SET SESSION CHARACTERISTICS."""
    if plan.session:
        if plan.isolation is not None:
            session.variables.set("default_transaction_isolation", (plan.isolation,))
        if plan.read_only is not None:
            value = "on" if plan.read_only else "off"
            session.variables.set("default_transaction_read_only", (value,))
        return Completed("SET")
    if not session.begin().block:
        session.notice(
            "SET TRANSACTION can only be used in transaction blocks",
            severity="WARNING",
            sqlstate="25P01",
        )
        return Completed("SET")
    _characteristics(session, plan.read_only, plan.isolation)
    return Completed("SET")


def _characteristics(session: "Session", read_only: bool | None, isolation: str | None) -> None:
    transaction = session.begin()
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


# --- variables -----------------------------------------------------------------------------


def set_variable(session: "Session", plan: SetVariable) -> Completed:
    """Run SET."""
    name = plan.name.lower()
    if plan.local and not session.begin().block:
        session.notice(
            "SET LOCAL can only be used in transaction blocks",
            severity="WARNING",
            sqlstate="25P01",
        )
    if plan.values is not None and len(plan.values) == 1:
        value = plan.values[0]
        if name == "transaction_isolation":
            _characteristics(session, None, value)
            if not session.begin().block:  # for all that follow, as there is none that is running
                session.variables.set("default_transaction_isolation", (value,))
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
    if name.lower() == "transaction_isolation" and not local and not session.begin().block:
        session.variables.set("default_transaction_isolation", values)  # as SET has set both
    session.variables.set(name, values, local=local)


def reset_variable(session: "Session", plan: ResetVariable) -> Completed:
    """Run RESET."""
    if plan.name is None:
        session.variables.reset_all()
    else:
        _set(session, plan.name, None)
    return Completed("RESET")


def show_variable(session: "Session", plan: ShowVariable) -> Selected:
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
            if session.is_one_of_several or session.begin().block:
                raise ActiveSqlTransaction("DISCARD ALL cannot run inside a transaction block")
            session.statements.clear()
            session.close_portals()
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


async def maintain(session: "Session", plan: Maintain) -> Completed:
    """Run VACUUM, ANALYZE or CHECKPOINT."""
    verb = plan.verb.upper()
    if plan.verb == "vacuum" and (session.is_one_of_several or session.begin().block):
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


# --- prepared statements -------------------------------------------------------------------


async def prepare(session: "Session", plan: Prepare) -> Completed:
    """Run PREPARE."""
    if plan.name in session.statements:
        raise DuplicatePreparedStatement(f'prepared statement "{plan.name}" already exists')
    syntaxes = await session.run_aside(is_short(plan.sql), parse, plan.sql)
    if len(syntaxes) != 1:
        raise SyntaxError_("PREPARE takes one statement")
    prepared = Prepared(plan.name, syntaxes[0], plan.parameters)
    await session.planner.ready(prepared)
    prepared.batch = -1  # its columns are known from here on
    session.statements[plan.name] = prepared
    return Completed("PREPARE")


def named(session: "Session", name: str) -> Prepared:
    """Return the prepared statement of EXECUTE or DEALLOCATE."""
    prepared = session.statements.get(name)
    if prepared is None or not name:
        raise InvalidSqlStatementName(f'prepared statement "{name}" does not exist')
    return prepared


def execute_args(context: StatementContext, plan: Execute, prepared: Prepared) -> list[Datum]:
    """Return the arguments of EXECUTE, as data of the parameters' types."""
    wanted = prepared.parameters
    if len(plan.args) != len(wanted):
        raise SyntaxError_(
            f'wrong number of parameters for prepared statement "{plan.name}"',
            detail=f"Expected {len(wanted)} parameters but got {len(plan.args)}.",
        )
    return [
        _argument(context, number, arg, type)
        for number, (arg, type) in enumerate(zip(plan.args, wanted, strict=True), 1)
    ]


def _argument(context: StatementContext, number: int, arg: Scalar, type: SqlType) -> Datum:
    source = type_of(arg)
    if isinstance(arg, Literal) and source.name == "unknown":
        value = arg.value
        return None if value is None else parse_text(str(value), type, zone=context.time_zone)
    if source == type:
        return value_of(context, arg, 0)
    cast = resolve_cast(source, type, "assignment")
    if cast is None:
        raise DatatypeMismatch(
            f"parameter ${number} of type {source} cannot be coerced to the expected type {type}"
        )
    call = SessionZone(context.time_zone).applied(Call(cast.key, (arg,), cast.result))
    return value_of(context, call, 0)


def deallocate(session: "Session", plan: Deallocate) -> Outcome:
    """Run DEALLOCATE."""
    if plan.name is None:
        session.statements.clear()
        return Completed("DEALLOCATE ALL")
    named(session, plan.name)
    del session.statements[plan.name]
    return Completed("DEALLOCATE")
