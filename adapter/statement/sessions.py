"""Sessions: what statements see of others, and of their own."""

from collections.abc import Mapping
from typing import Protocol

from foreshore.adapter.client import Backend
from foreshore.adapter.plans.prepared import Prepared
from foreshore.adapter.statement.activity import Activity
from foreshore.adapter.statement.interrupts import Interrupts
from foreshore.adapter.statement.last_values import LastValues
from foreshore.adapter.statement.news import News
from foreshore.adapter.statement.portals import Portals
from foreshore.adapter.statement.roles import SessionRoles
from foreshore.adapter.transaction.transaction import Transaction
from foreshore.session_variables import Variables
from foreshore.sql.parse.script import Script


class Transactions(Protocol):
    """The transactions of a session."""

    @property
    def running(self) -> Transaction | None:
        """The one that runs, if any."""

    @property
    def failed(self) -> bool:
        """Whether it has failed."""

    @property
    def met_alter(self) -> bool:
        """Whether the running one was tried again because of ALTER TABLE."""

    @property
    def in_block(self) -> bool:
        """Whether a transaction block is open."""

    @property
    def is_one_of_several(self) -> bool:
        """Whether the running statement is one of several in its Query message."""

    def check_may_parse(self, text: str) -> None:
        """Raise InFailedSqlTransaction if it has failed and a statement does not end it."""

    def begin(self, *, block: bool = False) -> Transaction:
        """Return the running transaction, a new one if there is none."""

    async def commit(self) -> None:
        """Make what the transaction did durable and visible, or roll back and raise why not."""

    async def commit_implicit(self) -> None:
        """Commit what the statement has done, unless its transaction is a block."""

    async def rollback(self) -> None:
        """Undo what the transaction did."""

    def set_savepoint(self, name: str) -> None:
        """Set a savepoint in the running transaction."""

    def release_savepoint(self, name: str) -> None:
        """Forget a savepoint and those after it."""

    def return_to(self, name: str) -> None:
        """Undo what the transaction did since a savepoint, and go on from there."""


class Peer(Protocol):
    """A session, as statements of any see it."""

    @property
    def pid(self) -> int:
        """Its number."""

    @property
    def plan_lookups(self) -> Mapping[str, Mapping[str, int]]:
        """Of all sessions, hits and misses of plans for texts, by reason."""

    @property
    def backend(self) -> Backend:
        """Its client."""

    @property
    def news(self) -> News:
        """Notices, notifications and changed parameters for its client."""

    @property
    def interrupts(self) -> Interrupts:
        """Ends the running statement, or the session."""

    @property
    def database(self) -> str:
        """Its database."""

    @property
    def roles(self) -> SessionRoles:
        """Who it is."""

    @property
    def variables(self) -> Variables:
        """Its settings."""

    @property
    def activity(self) -> Activity:
        """What it is doing."""

    @property
    def transactions(self) -> Transactions:
        """Its transactions."""

    @property
    def transaction_status(self) -> str:
        """I outside of a transaction block, T inside, E inside a failed one."""

    @property
    def portals(self) -> Portals:
        """Its portals and cursors."""

    @property
    def statements(self) -> Mapping[str, Prepared]:
        """Its prepared statements."""

    @property
    def last_values(self) -> LastValues:
        """The last values that sequences gave to it."""


class Parser(Protocol):
    """Parses texts."""

    async def script(self, sql: str) -> Script:
        """Return the statements of a text, to be run one after the other."""
