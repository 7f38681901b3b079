"""The prepared statements of a session: Parse, PREPARE, EXECUTE, DEALLOCATE, and arguments."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from foreshore import blocking
from foreshore.adapter.client import Completed
from foreshore.adapter.read.bind import value_of
from foreshore.adapter.session.prepared import Origin, Prepared
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
from foreshore.session_limits import check_room
from foreshore.sql.plan import Deallocate, Execute, Fetch, Prepare
from foreshore.sql.rewrite.session_zone import SessionZone
from foreshore.types import Datum, SqlType, category_of, type_of_oid

if TYPE_CHECKING:
    from foreshore.adapter.session.session import Session

MANY_ARGS = 200  # of EXECUTE, which take milliseconds to evaluate


class Statements(dict[str, Prepared]):
    """The prepared statements of a session, by name.

    `batch` numbers the batches of messages; a new one begins when columns are sent to the client.
    """

    def __init__(self, session: "Session") -> None:
        super().__init__()
        self._session = session
        self.batch = 0
        session.variables.kept.count(self._size)

    def known(self, name: str, sql: str, parameter_oids: Sequence[int]) -> Prepared | None:
        """Prepare a statement that is in the plan cache, and return it; None: it is not there."""
        if name and name in self:
            raise DuplicatePreparedStatement(f'prepared statement "{name}" already exists')
        if not name:
            self.pop("", None)
        session = self._session
        if session.transactions.failed:
            return None
        known = session.planner.known(sql, parameter_oids)
        if known is not None:
            known = replace(known, name=name, batch=self.batch)
            self.keep(known, sql)
        return known

    async def parse(self, name: str, sql: str, parameter_oids: Sequence[int]) -> Prepared:
        """Prepare a statement that is not in the plan cache."""
        session = self._session
        syntaxes = (await session.script(sql)).parsed
        if len(syntaxes) > 1:
            raise SyntaxError_("cannot insert multiple commands into a prepared statement")
        if not syntaxes:
            prepared = Prepared(name, None)
        else:
            declared = tuple(type_of_oid(oid) if oid else None for oid in parameter_oids)
            prepared = Prepared(name, syntaxes[0], declared, batch=self.batch)
            session.transactions.check_may_parse(syntaxes[0].text)
            await session.planner.ready(prepared)
            session.planner.remember(prepared, sql, parameter_oids)
        self.keep(prepared, sql)
        return prepared

    def keep(self, prepared: Prepared, sql: str, *, from_sql: bool = False) -> None:
        """Keep a statement by its name, with the text that prepared it."""
        if prepared.name:
            self._check_room(sql)
            now = self._session.coordinator.clock.now() * 1000
            prepared.origin = Origin(sql, now, from_sql)
        self[prepared.name] = prepared

    def _check_room(self, sql: str) -> None:
        """Raise SessionLimitExceeded if the session may not keep another statement, or so long."""
        variables = self._session.variables
        has = len(self) - ("" in self)
        check_room(variables, "max_prepared_statements", has, "prepared statements")
        variables.kept.check_room(len(sql))

    def _size(self) -> int:
        return sum(len(each.origin.text) for each in self.values() if each.origin is not None)

    def named(self, name: str, types: Sequence[SqlType] = ()) -> Prepared:
        """Return a statement, perhaps for parameters of other types.

        Raises InvalidSqlStatementName.
        """
        prepared = self.get(name)
        if prepared is None:
            raise InvalidSqlStatementName(
                f'prepared statement "{name}" does not exist'
                if name
                else "unnamed prepared statement does not exist"
            )
        if isinstance(prepared.plan, Fetch | Execute):  # its cursor or statement may be another now
            prepared.desc = self._session.planner.named_desc(prepared.plan)
        if not types:
            return prepared
        other = prepared.retyped
        if other is None or other.declared != tuple(types):
            other = Prepared(name, prepared.syntax, tuple(types), tuple(types), batch=self.batch)
            prepared.retyped = other
        return other


async def prepare(session: "Session", context: StatementContext, plan: Prepare) -> Completed:
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


def named(session: "Session", name: str) -> Prepared:
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
        return await blocking.run(context.coordinator.executor, _arguments, context, plan, wanted)
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


def deallocate(session: "Session", context: StatementContext, plan: Deallocate) -> Outcome:
    """Run DEALLOCATE."""
    if plan.name is None:
        session.statements.clear()
        return Completed("DEALLOCATE ALL")
    named(session, plan.name)
    del session.statements[plan.name]
    return Completed("DEALLOCATE")
