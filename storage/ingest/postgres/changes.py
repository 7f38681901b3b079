"""Messages of pgoutput (protocol 1) to updates by tables.

Transactions come whole, in the order of their commits. A `Gatherer` adds up those that come
together. Rows are gathered as texts, and become typed columns many at a time. What was gathered may
be taken before its transaction ends, so that memory holds a part only.
"""

import struct
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from foreshore.errors import ProtocolViolation
from foreshore.storage.ingest.errors import Unreadable
from foreshore.storage.ingest.postgres.layout import Misfit, TableLayout, Types

MOST_ROWS = 1 << 14  # that are gathered as texts
MOST_TEXT_BYTES = 8 << 20
_RELATION, _COLUMN = struct.Struct(">I"), struct.Struct(">Ii")
_PLACE = struct.Struct(">Q")
_COMMIT, _SIZE, _COUNT = struct.Struct(">xQQQ"), struct.Struct(">i"), struct.Struct(">H")

Row: TypeAlias = "list[bytes | None]"
_UNCHANGED = b"unchanged"  # told by identity: a value that was not sent, as it is the old one


@dataclass(frozen=True, slots=True)
class Gathered:
    """A part of what some transactions change; rows of `anew` in earlier parts do not count."""

    rows: Mapping[str, pa.Table]
    anew: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Changes(Gathered):
    """The last part of what some whole transactions change, the last of which ends at `lsn`.

    Tables of `emptied` have lost all rows from before these transactions. `commit` is where the
    last of them ends; 0: there is none.
    """

    lsn: int
    emptied: tuple[str, ...]
    stopped: tuple[Unreadable, ...]
    commit: int


@dataclass(slots=True)
class _Table:
    """A table, and its rows since they were taken last."""

    layout: TableLayout
    places: tuple[int, ...] = ()  # of its columns among those that are sent
    rows: list[Row] = field(default_factory=list)
    diffs: list[int] = field(default_factory=list)
    text_bytes: int = 0
    messages: int = 0  # since they were counted
    typed: list[pa.Table] = field(default_factory=list)
    is_emptied: bool = False  # since the last `Changes`
    has_parts: bool = False  # that were taken since the last `Changes`, and count

    def add(self, row: Row, diff: int) -> None:
        self.rows.append(row)
        self.diffs.append(diff)

    def convert(self) -> None:
        """Make typed columns of the texts; raises Misfit."""
        if not self.rows:
            return
        columns = list(zip(*self.rows, strict=True))
        try:
            texts = [pa.array(columns[i], pa.binary()).cast(pa.string()) for i in self.places]
        except pa.ArrowInvalid as error:
            raise Misfit(f'table "{self.layout.table}": {error}') from error
        diffs = pa.array(self.diffs, pa.int64())
        self.rows, self.diffs, self.text_bytes = [], [], 0
        self.typed.append(self.layout.typed(texts, diffs))

    def empty(self) -> None:
        self.rows, self.diffs, self.text_bytes, self.typed = [], [], 0, []
        self.is_emptied = True

    def taken(self) -> pa.Table | None:
        """Return the rows, and begin anew; raises Misfit."""
        self.convert()
        typed, self.typed = self.typed, []
        return pa.concat_tables(typed) if typed else None


class Gatherer:
    """Decodes messages, and gathers what they change; for one thread."""

    def __init__(
        self,
        layouts: Iterable[TableLayout],
        lsn: int,
        messages: dict[str, int] | None = None,
        since: Mapping[str, int] | None = None,
        ignored: Collection[str] | None = None,
    ) -> None:
        """Begin at `lsn`; the numbers of messages about tables are added to `messages`.

        What was committed before `since` of a table, by reference, is none of its changes. If
        `ignored` is given, a table stops when it gets a column that is not among these.
        """
        self._since, self._ignored = {} if since is None else since, ignored
        # What tables were like before they count, by numbers, and from where on they do.
        self._early: dict[int, tuple[int, bytes]] = {}
        self._committed_at = 0  # where the commit of the present transaction is
        self._messages = {} if messages is None else messages
        self._layouts = {each.reference: each for each in layouts}
        self._oids = {each.details.oid for each in self._layouts.values()}
        self._tables: dict[int, tuple[_Table, ...]] = {}  # by the numbers in messages
        self._stopped: list[Unreadable] = []
        self._anew: list[str] = []  # tables whose parts do not count
        self._lsn = lsn  # the end of the last transaction
        self._commit = 0  # likewise, since something was taken last
        self.is_within = False  # a transaction
        self.are_described = False  # tables, since they were looked at
        self.text_bytes = 0  # of messages since something was taken last
        self.transactions = 0

    def message(self, data: bytes) -> None:
        """Take the next message; raises ProtocolViolation."""
        match data[:1]:
            case b"I":
                self._insert(data)
            case b"U":
                self._update(data)
            case b"D":
                self._delete(data)
            case b"B":
                self._committed_at = commit_of(data)
                self.is_within = True
            case b"C":
                _, self._lsn, _ = _COMMIT.unpack_from(data, 1)
                self._commit = self._lsn
                self.is_within = False
                self.transactions += 1
            case b"R":
                self._relation(data)
            case b"T":
                self._truncate(data)
            case b"O" | b"Y" | b"M":
                return  # origins, types and messages of users say nothing about rows
            case kind:
                raise ProtocolViolation(f"a message of pgoutput of the unknown kind {kind!r}")
        self.text_bytes += len(data)

    @property
    def lsn(self) -> int:
        """Return where the last transaction ends, or up to where there is none."""
        return self._lsn

    def skip_to(self, lsn: int) -> None:
        """Note that there is no transaction before `lsn` that was not taken."""
        self._lsn = max(self._lsn, lsn)

    def leave(self, references: Iterable[str]) -> None:
        """Follow some tables no longer; their relations stay as they are."""
        for reference in references:
            self._layouts.pop(reference, None)
        self._forget_others()

    @property
    def layouts(self) -> tuple[TableLayout, ...]:
        """Return the tables that are followed."""
        return tuple(self._layouts.values())

    def stop(self, unfit: Mapping[str, str]) -> None:
        """Follow some tables no longer, and say why."""
        for reference, why in unfit.items():
            self._stop_reference(reference, why)

    def take_part(self) -> Gathered:
        """Return what was gathered, at any time; the rest follows."""
        rows: dict[str, pa.Table] = {}
        for table in self._followed():
            try:
                if (taken := table.taken()) is not None:
                    rows[table.layout.reference] = taken
                    table.has_parts = True
            except Misfit as error:
                self._stop_reference(table.layout.reference, str(error))
            self._messages[table.layout.reference] = (
                self._messages.get(table.layout.reference, 0) + table.messages
            )
            table.messages = 0
        anew, self._anew, self.text_bytes = tuple(self._anew), [], 0
        return Gathered(rows, anew)

    def take(self) -> Changes:
        """Return the rest of what was gathered; only between transactions."""
        assert not self.is_within
        part = self.take_part()
        stopped, self._stopped, self.transactions = tuple(self._stopped), [], 0
        emptied = []
        for table in self._followed():
            if table.is_emptied:
                emptied.append(table.layout.reference)
            table.is_emptied = table.has_parts = False
        commit, self._commit = self._commit, 0
        return Changes(part.rows, part.anew, self._lsn, tuple(emptied), stopped, commit)

    # --- messages ------------------------------------------------------------------------------

    def _relation(self, data: bytes) -> None:
        """Take what a table is like: each relation that follows it goes on or stops."""
        (id,) = _RELATION.unpack_from(data, 1)
        self._early.pop(id, None)
        schema, name, rest = data[5:].split(b"\0", 2)
        table = f"{schema.decode() or 'pg_catalog'}.{name.decode()}"
        self.are_described |= id in self._oids
        types = _types(rest)
        known = {each.layout.reference: each for each in self._tables.get(id, ())}
        found, early = [], []
        for layout in list(self._layouts.values()):
            if layout.details.oid != id and layout.table != table:
                continue
            since = self._since.get(layout.reference, 0)
            if self._committed_at < since:
                early.append(since)
                continue
            each = known.get(layout.reference) or _Table(layout)
            try:
                self._fit(each, id, table, types)
            except Misfit as error:
                self._stop_reference(layout.reference, str(error))
            else:
                found.append(each)
        self._tables[id] = tuple(found)
        if not found:
            del self._tables[id]
        if early:
            self._early[id] = min(early), data  # it is not sent again before the table changes

    def _fit(self, table: _Table, id: int, name: str, types: Types) -> None:
        """Let a relation follow a table with this number, name and columns; raises Misfit."""
        layout = table.layout
        if layout.table != name:
            raise Misfit(f'table "{layout.table}" was renamed to "{name}"')
        if layout.details.oid != id:
            raise Misfit(f'table "{name}" was created anew')
        layout.check(types, self._ignored)
        table.convert()  # what was sent in other places
        order = list(types)
        table.places = tuple(order.index(each) for each in layout.names)

    def _insert(self, data: bytes) -> None:
        if tables := self._of(data):
            row, _ = _row(data, 6)
            for table in tables:
                self._add(data, table, (row, 1))

    def _update(self, data: bytes) -> None:
        tables = self._of(data)
        if not tables:
            return
        if data[5:6] != b"O":
            self._lacks_old_rows(tables)
            return
        old, at = _row(data, 6)
        new, _ = _row(data, at + 1)
        for i, value in enumerate(new):
            if value is _UNCHANGED:
                new[i] = old[i]
        for table in tables:
            self._add(data, table, (old, -1), (new, 1))

    def _delete(self, data: bytes) -> None:
        tables = self._of(data)
        if not tables:
            return
        if data[5:6] != b"O":
            self._lacks_old_rows(tables)
            return
        row, _ = _row(data, 6)
        for table in tables:
            self._add(data, table, (row, -1))

    def _truncate(self, data: bytes) -> None:
        count, _ = struct.unpack_from(">IB", data, 1)
        for id in struct.unpack_from(f">{count}I", data, 6):
            for table in self._numbered(id):
                table.empty()
                self._void(table)

    def _of(self, data: bytes) -> tuple[_Table, ...]:
        (id,) = _RELATION.unpack_from(data, 1)
        return self._numbered(id)

    def _numbered(self, id: int) -> tuple[_Table, ...]:
        """Return the relations that follow the table of a number in messages."""
        if id in self._early and self._committed_at >= self._early[id][0]:
            self._relation(self._early[id][1])
        return self._tables.get(id, ())

    def _followed(self) -> list[_Table]:
        return [table for tables in self._tables.values() for table in tables]

    def _add(self, data: bytes, table: _Table, *rows: tuple[Row, int]) -> None:
        for row, diff in rows:
            table.add(row, diff)
        table.text_bytes += len(data)
        table.messages += 1
        if len(table.rows) >= MOST_ROWS or table.text_bytes >= MOST_TEXT_BYTES:
            try:
                table.convert()
            except Misfit as error:
                self._stop_reference(table.layout.reference, str(error))

    # --- tables that stop ----------------------------------------------------------------------

    def _lacks_old_rows(self, tables: Iterable[_Table]) -> None:
        for each in tables:
            why = f'table "{each.layout.table}" has no REPLICA IDENTITY FULL'
            self._stop_reference(each.layout.reference, why)

    def _stop_reference(self, reference: str, why: str) -> None:
        layout = self._layouts.pop(reference, None)
        if layout is None:
            return
        for table in self._followed():
            if table.layout is layout:
                self._void(table)
        self._forget_others()
        self._stopped.append(Unreadable(layout.part, self._lsn, why, output=reference))

    def _forget_others(self) -> None:
        """Forget the tables that are followed no longer."""
        kept = set(self._layouts)
        self._tables = {
            id: tuple(each for each in tables if each.layout.reference in kept)
            for id, tables in self._tables.items()
        }

    def _void(self, table: _Table) -> None:
        """Let the parts of a table not count."""
        if table.has_parts:
            self._anew.append(table.layout.reference)
            table.has_parts = False


def _types(data: bytes) -> Types:
    """Return the columns in the rest of a message that describes a table."""
    (count,) = _COUNT.unpack_from(data, 1)
    at = 3
    types: dict[str, tuple[int, int]] = {}
    for _ in range(count):
        end = data.index(b"\0", at + 1)
        types[data[at + 1 : end].decode()] = _COLUMN.unpack_from(data, end + 1)
        at = end + 9
    return types


def commit_of(data: bytes) -> int:
    """Return where the commit of a transaction is, by its first message."""
    (place,) = _PLACE.unpack_from(data, 1)
    return int(place)


def _row(data: bytes, at: int) -> tuple[Row, int]:
    """Return the values of the row at `at`, and where it ends."""
    (count,) = _COUNT.unpack_from(data, at)
    at += 2
    row: Row = []
    unpack = _SIZE.unpack_from
    for _ in range(count):
        kind = data[at]
        if kind == 116:  # t: a text
            (size,) = unpack(data, at + 1)
            at += 5
            row.append(data[at : at + size])
            at += size
        else:  # u: a large value that was not changed; n: NULL
            row.append(_UNCHANGED if kind == 117 else None)
            at += 1
    return row, at
