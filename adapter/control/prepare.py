"""The prepared statements of a session: Parse, PREPARE, EXECUTE, DEALLOCATE, and arguments."""

from collections.abc import Sequence

from foreshore import blocking
from foreshore.adapter.client import Completed
from foreshore.adapter.control.conversation import Conversation
from foreshore.adapter.plans.prepared import Prepared
from foreshore.adapter.read.bound.bind import value_of
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.result import Outcome
from foreshore.errors import (
    DatabaseError,
    DatatypeMismatch,
    DuplicatePreparedStatement,
    InvalidSqlStatementName,
    SyntaxError_,
)
from foreshore.expr.columns import type_of
from foreshore.expr.functions.registry import resolve_cast
from foreshore.expr.ir import Call, Literal, Scalar
from foreshore.object_names import parse_argument, takes_names
from foreshore.sql.plan import Deallocate, Execute, Prepare
from foreshore.sql.rewrite.session_zone import SessionZone
from foreshore.types import Datum, SqlType, category_of

MANY_ARGS = 200  # of EXECUTE, which take milliseconds to evaluate


async def prepare(session: Conversation, context: StatementContext, plan: Prepare) -> Completed:
    """Run PREPARE."""
    if plan.name in session.statements:
        raise DuplicatePreparedStatement(f'prepared statement "{plan.name}" already exists')
    syntaxes = (await session.script(plan.sql)).parsed
    if len(syntaxes) != 1:
        raise SyntaxError_("PREPARE takes one statement")
    prepared = Prepared(plan.name, syntaxes[0], plan.parameters)
    await session.planner.ready(prepared)
    prepared.batch = -1  # its columns are known from here on
    whole = context.prepared.syntax
    session.statements.keep(prepared, plan.sql if whole is None else whole.whole, from_sql=True)
    return Completed("PREPARE")


def named(session: Conversation, name: str) -> Prepared:
    """Return the prepared statement of EXECUTE or DEALLOCATE."""
    prepared = session.statements.get(name)
    if prepared is None or not name:
        raise InvalidSqlStatementName(f'prepared statement "{name}" does not exist')
    return prepared


async def execute_args(context: StatementContext, plan: Execute, prepared: Prepared) -> list[Datum]:
    """Return the arguments of EXECUTE, as data of the parameters' types."""
    wanted = prepared.parameters
    if len(plan.args) != len(wanted):
        raise SyntaxError_(
            f'wrong number of parameters for prepared statement "{plan.name}"',
            detail=f"Expected {len(wanted)} parameters but got {len(plan.args)}.",
        )
    if len(wanted) > MANY_ARGS:
        return await blocking.run(context.engines.executor, _arguments, context, plan, wanted)
    return _arguments(context, plan, wanted)


def _arguments(context: StatementContext, plan: Execute, wanted: Sequence[SqlType]) -> list[Datum]:
    found = []
    for place, (arg, type) in enumerate(zip(plan.args, wanted, strict=True)):
        try:
            found.append(_argument(context, place + 1, arg, type))
        except DatabaseError as error:
            # An error of the evaluation of an expression has no position.
            is_literal = isinstance(arg, Literal) and type_of(arg).name == "unknown"
            is_of_text = is_literal or isinstance(error, DatatypeMismatch)
            if error.position is None and is_of_text and plan.offsets:
                error.position = plan.offsets[place] + 1
            raise
    return found


def _argument(context: StatementContext, number: int, arg: Scalar, type: SqlType) -> Datum:
    source = type_of(arg)
    if isinstance(arg, Literal) and source.name == "unknown":
        value = arg.value
        return None if value is None else parse_argument(str(value), type, zone=context.time_zone)
    if takes_names(type) and category_of(source) == "S":
        value = value_of(context, arg, 0)
        return None if value is None else parse_argument(str(value), type, zone=context.time_zone)
    if source == type:
        return value_of(context, arg, 0)
    cast = resolve_cast(source, type, "assignment")
    if cast is None:
        raise DatatypeMismatch(
            f"parameter ${number} of type {source} cannot be coerced to the expected type {type}",
            hint="You will need to rewrite or cast the expression.",
        )
    call = SessionZone(context.time_zone).applied(Call(cast.key, (arg,), cast.result))
    return value_of(context, call, 0)


def deallocate(session: Conversation, context: StatementContext, plan: Deallocate) -> Outcome:
    """Run DEALLOCATE."""
    if plan.name is None:
        session.statements.clear()
        return Completed("DEALLOCATE ALL")
    named(session, plan.name)
    del session.statements[plan.name]
    return Completed("DEALLOCATE")
