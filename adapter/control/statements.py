"""The prepared statements of a session."""

from collections.abc import Sequence
from typing import Protocol

from msgspec.structs import replace

from foreshore.adapter.plans.prepared import Origin, Prepared
from foreshore.adapter.services.times import Times
from foreshore.adapter.statement.planner import Planner
from foreshore.adapter.statement.sessions import Parser, Transactions
from foreshore.errors import (
    DuplicatePreparedStatement,
    InvalidSqlStatementName,
    SyntaxError_,
)
from foreshore.session_limits import check_room
from foreshore.session_variables import Variables
from foreshore.sql.plan import Execute, Fetch
from foreshore.types import SqlType, type_of_oid


class Preparing(Parser, Protocol):
    """A session in which statements are prepared."""

    @property
    def coordinator(self) -> Times:
        """The clock."""

    @property
    def variables(self) -> Variables:
        """Its settings."""

    @property
    def transactions(self) -> Transactions:
        """Its transactions."""

    @property
    def planner(self) -> Planner:
        """Plans its statements."""


class Statements(dict[str, Prepared]):
    """The prepared statements of a session, by name.

    `batch` numbers the batches of messages; a new one begins when columns are sent to the client.
    """

    def __init__(self, session: Preparing) -> None:
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
        plan = prepared.made.plan
        if isinstance(plan, Fetch | Execute):  # its cursor or statement may be another now
            prepared.desc = self._session.planner.named_desc(plan)
        if not types:
            return prepared
        other = prepared.retyped
        if other is None or other.declared != tuple(types):
            other = Prepared(name, prepared.syntax, tuple(types), tuple(types), batch=self.batch)
            prepared.retyped = other
        return other
