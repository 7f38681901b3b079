"""Portals and cursors: statements with their arguments, and the rows that are left of them."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from foreshore.adapter.read.result import RowSource, Selected
from foreshore.adapter.session.prepared import Prepared
from foreshore.errors import InvalidCursorName
from foreshore.sql.plan import WritePlan
from foreshore.types import Datum, RelationDesc


@dataclass(eq=False, slots=True)
class BoundPortal:
    """A statement with its arguments, and what is left of its result; or a cursor."""

    name: str
    statement: Prepared
    args: Sequence[Datum] = ()
    formats: Sequence[int] = ()
    result: Selected | None = None
    done: bool = False
    hold: bool = False  # WITH HOLD: it outlives the transaction if that commits
    held: bool = False  # it has
    cursor: bool = False
    desc: RelationDesc | None = None

    @property
    def changes(self) -> bool:
        """Whether running it may leave something to commit."""
        return isinstance(self.statement.plan, WritePlan)

    def close(self) -> None:
        """Give up what is left of the result."""
        if self.result is not None:
            self.result.source.close()
            self.result = None
        self.done = True


class Portals(dict[str, BoundPortal]):
    """The portals and cursors of a session, by name."""

    def __init__(self) -> None:
        super().__init__()
        self.streams: list[RowSource] = []  # of COPY; they end with the transaction

    def named(self, name: str) -> BoundPortal:
        """Return a portal; raises InvalidCursorName."""
        portal = self.get(name)
        if portal is None:
            raise InvalidCursorName(f'portal "{name}" does not exist')
        return portal

    def add(self, portal: BoundPortal) -> None:
        """Add a portal; the unnamed one replaces another."""
        old = self.get(portal.name)
        if old is not None:
            if portal.name:
                raise InvalidCursorName(f'portal "{portal.name}" already exists', sqlstate="42P03")
            old.close()
        self[portal.name] = portal

    def close(self, name: str) -> None:
        """Close a portal, if there is one."""
        portal = self.pop(name, None)
        if portal is not None:
            portal.close()

    def close_but(self, kept: Collection[BoundPortal] = ()) -> None:
        """Close all portals but those `kept`."""
        for name, portal in list(self.items()):
            if portal not in kept:
                self.close(name)

    def end(self, *, committed: bool) -> None:
        """Close the portals that end with a transaction."""
        while self.streams:
            self.streams.pop().close()
        for each in self.values():
            each.held = each.held or (committed and each.hold)
        self.close_but([each for each in self.values() if each.held])
