"""Conversations: what statements about the session get of it."""

from typing import Protocol

from foreshore.adapter.control.statements import Statements
from foreshore.adapter.services.process import Process
from foreshore.adapter.services.tables import Tables
from foreshore.adapter.statement.attempts import Attempts
from foreshore.adapter.statement.context import Notices
from foreshore.adapter.statement.last_values import LastValues
from foreshore.adapter.statement.planner import Planner
from foreshore.adapter.statement.sessions import Parser, Peer
from foreshore.notifications import Inbox


class Server(Tables, Process, Protocol):
    """The parts that keep something for a session."""


class Conversation(Peer, Parser, Attempts, Protocol):
    """A session, as its own statements see it."""

    @property
    def coordinator(self) -> Server:
        """What keeps something for it."""

    @property
    def is_one_of_several(self) -> bool:
        """Whether the running statement is one of several in its Query message."""

    @property
    def planner(self) -> Planner:
        """Plans its statements."""

    @property
    def statements(self) -> Statements:
        """Its prepared statements."""

    @property
    def last_values(self) -> LastValues:
        """The last values that sequences gave to it."""

    @property
    def inbox(self) -> Inbox:
        """Its notifications."""

    @property
    def notice(self) -> Notices:
        """Its notices."""
