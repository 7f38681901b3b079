"""The portals and cursors of a session."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import pyarrow as pa

from foreshore.adapter.plans.prepared import Prepared
from foreshore.adapter.statement.result import RowSource, Selected
from foreshore.datum import from_array
from foreshore.errors import (
    DuplicateCursor,
    InvalidCursorName,
    InvalidCursorState,
)
from foreshore.ids import GlobalId
from foreshore.session_limits import check_room
from foreshore.session_variables import Variables
from foreshore.sql.plan import (
    Declare,
    Select,
)
from foreshore.types import Datum, RelationDesc


@dataclass(eq=False, slots=True)
class Cursor:
    """The declaration of a cursor, and the row on which it is."""

    plan: Declare
    scroll: bool  # whether it may go back
    created: int  # microseconds since 1970
    held: bool = False  # it has outlived its transaction
    row: pa.RecordBatch | None = None  # with hidden columns


@dataclass(eq=False, slots=True)
class BoundPortal:
    """A statement with its arguments, and what is left of its result; or a cursor."""

    name: str
    statement: Prepared
    args: Sequence[Datum] = ()
    formats: Sequence[int] = ()
    result: Selected | None = None
    done: bool = False
    cursor: Cursor | None = None
    failed: bool = False  # a FETCH failed, so nobody knows which rows come next
    desc: RelationDesc | None = None
    size: int = 0  # bytes of its arguments, and of the text that only it keeps

    @property
    def streams(self) -> bool:
        """Whether it is a cursor over SUBSCRIBE."""
        return self.result is not None and self.result.source.streaming

    @property
    def changes(self) -> bool:
        """Whether running it may leave something to commit."""
        return self.statement.changes

    def close(self) -> None:
        """Give up what is left of the result."""
        if self.result is not None:
            self.result.source.close()
            self.result = None
        self.done = True


class Portals(dict[str, BoundPortal]):
    """The portals and cursors of a session, by name."""

    def __init__(self, variables: Variables) -> None:
        super().__init__()
        self._variables = variables
        variables.kept.count(self._size)
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
                raise DuplicateCursor(f'cursor "{portal.name}" already exists')
            old.close()
        elif portal.name:
            self.check_room(portal.size)
        self[portal.name] = portal

    def check_room(self, size: int) -> None:
        """Raise SessionLimitExceeded if the session may not have another one, of this size."""
        has = len(self) - ("" in self)
        check_room(self._variables, "max_portals", has, "portals and cursors")
        self._variables.kept.check_room(size)

    def _size(self) -> int:
        return sum(each.size for name, each in self.items() if name)

    def current(self, name: str, table: GlobalId, called: str, column: int) -> Datum:
        """Return a key column of the row of a table on which a cursor is.

        `called` is the name of the table. Raises InvalidCursorName or InvalidCursorState.
        """
        portal = self.get(name)
        if portal is None:
            raise InvalidCursorName(f'cursor "{name}" does not exist')
        if not isinstance(portal.statement.made.plan, Declare | Select) or portal.streams:
            raise InvalidCursorState(f'cursor "{name}" is not a SELECT query')
        cursor = portal.cursor
        if cursor is not None and cursor.held:
            raise InvalidCursorState(f'cursor "{name}" is held from a previous transaction')
        tables = () if cursor is None else cursor.plan.tables
        found = next((each for each in tables if each.table == table), None)
        if found is None and cursor is not None and cursor.plan.locks:
            raise InvalidCursorState(
                f'cursor "{name}" does not have a FOR UPDATE/SHARE reference to table "{called}"'
            )
        if found is not None and not found.key:
            raise InvalidCursorState(
                f'cursor "{name}" has multiple FOR UPDATE/SHARE references to table "{called}"'
            )
        if found is None or column not in found.key:
            raise InvalidCursorState(
                f'cursor "{name}" is not a simply updatable scan of table "{called}"'
            )
        if cursor is None or cursor.row is None:
            raise InvalidCursorState(f'cursor "{name}" is not positioned on a row')
        assert portal.result is not None
        place = found.places[found.key.index(column)]
        type = portal.result.desc.columns[place].type
        return from_array(cursor.row.column(place), type)[0]

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
        for name, portal in list(self.items()):
            cursor = portal.cursor
            if cursor is not None and committed and cursor.plan.hold:
                cursor.held = True
            if cursor is None or not cursor.held:
                self.close(name)
