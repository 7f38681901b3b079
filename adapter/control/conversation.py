"""Conversations: what statements about the session get of it."""

from typing import Protocol

from foreshore.adapter.control.statements import Statements
from foreshore.adapter.statement.attempts import Attempts
from foreshore.adapter.statement.planner import Planner
from foreshore.adapter.statement.sessions import Parser, Peer


class Conversation(Peer, Parser, Attempts, Protocol):
    """A session, as its own statements see it."""

    @property
    def planner(self) -> Planner:
        """Plans its statements."""

    @property
    def statements(self) -> Statements:
        """Its prepared statements."""
