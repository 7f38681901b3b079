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
from foreshore.storage.ingest.postgres.layout import Misfit, TableLayout

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

    Tables of `emptied` have lost all rows from before these transactions.
    """

    lsn: int
    emptied: tuple[str, ...]
    stopped: tuple[Unreadable, ...]


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
            raise Misfit(f'table "{self.layout.reference}": {error}') from error
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
        self._early: dict[int, bytes] = {}  # what tables were like before they count, by numbers
        self._committed_at = 0  # where the commit of the present transaction is
        self._messages = {} if messages is None else messages
        self._layouts = {each.reference: each for each in layouts}
        self._references = {each.details.oid: each.reference for each in self._layouts.values()}
        self._tables: dict[int, _Table] = {}  # by the numbers in messages
        self._stopped: list[Unreadable] = []
        self._anew: list[str] = []  # tables whose parts do not count
        self._lsn = lsn  # the end of the last transaction
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
        kept = self._layouts.values()
        self._tables = {i: t for i, t in self._tables.items() if t.layout in kept}

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
        for id, table in list(self._tables.items()):
            try:
                if (taken := table.taken()) is not None:
                    rows[table.layout.reference] = taken
                    table.has_parts = True
            except Misfit as error:
                self._stop(id, str(error))
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
        for table in self._tables.values():
            if table.is_emptied:
                emptied.append(table.layout.reference)
            table.is_emptied = table.has_parts = False
        return Changes(part.rows, part.anew, self._lsn, tuple(emptied), stopped)

    # --- messages ------------------------------------------------------------------------------

    def _relation(self, data: bytes) -> None:
        (id,) = _RELATION.unpack_from(data, 1)
        schema, name, rest = data[5:].split(b"\0", 2)
        reference = f"{schema.decode() or 'pg_catalog'}.{name.decode()}"
        known = self._references.get(id)
        self.are_described |= known is not None
        since = max(self._since.get(reference, 0), self._since.get(known or reference, 0))
        if self._committed_at < since:
            self._early[id] = data  # it is not sent again before the table changes
            return
        if known is not None and known != reference and known in self._layouts:
            self._stop_reference(known, f'table "{known}" was renamed to "{reference}"')
        layout = self._layouts.get(reference)
        if layout is None:
            self._tables.pop(id, None)
            return
        if layout.details.oid != id:
            self._stop_reference(reference, f'table "{reference}" was created anew')
            return
        (count,) = _COUNT.unpack_from(rest, 1)
        at, types = 3, {}
        for _ in range(count):
            end = rest.index(b"\0", at + 1)
            types[rest[at + 1 : end].decode()] = _COLUMN.unpack_from(rest, end + 1)
            at = end + 9
        table = self._tables.get(id) or _Table(layout)
        try:
            layout.check(types, self._ignored)
            table.convert()  # what was sent in other places
        except Misfit as error:
            self._stop_reference(reference, str(error))
            return
        order = list(types)
        table.places = tuple(order.index(each) for each in layout.names)
        self._tables[id] = table

    def _insert(self, data: bytes) -> None:
        if (table := self._table(data)) is not None:
            row, _ = _row(data, 6)
            self._add(data, table, (row, 1))

    def _update(self, data: bytes) -> None:
        table = self._table(data)
        if table is None:
            return
        if data[5:6] != b"O":
            self._lacks_old_rows(table)
            return
        old, at = _row(data, 6)
        new, _ = _row(data, at + 1)
        for i, value in enumerate(new):
            if value is _UNCHANGED:
                new[i] = old[i]
        self._add(data, table, (old, -1), (new, 1))

    def _delete(self, data: bytes) -> None:
        table = self._table(data)
        if table is None:
            return
        if data[5:6] != b"O":
            self._lacks_old_rows(table)
            return
        row, _ = _row(data, 6)
        self._add(data, table, (row, -1))

    def _truncate(self, data: bytes) -> None:
        count, _ = struct.unpack_from(">IB", data, 1)
        for id in struct.unpack_from(f">{count}I", data, 6):
            if id in self._early:
                self._relation(self._early.pop(id))
            if (table := self._tables.get(id)) is not None:
                table.empty()
                self._void(table)

    def _table(self, data: bytes) -> _Table | None:
        (id,) = _RELATION.unpack_from(data, 1)
        if id in self._early:
            self._relation(self._early.pop(id))
        return self._tables.get(id)

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

    def _lacks_old_rows(self, table: _Table) -> None:
        reference = table.layout.reference
        self._stop_reference(reference, f'table "{reference}" has no REPLICA IDENTITY FULL')

    def _stop_reference(self, reference: str, why: str) -> None:
        layout = self._layouts.pop(reference, None)
        if layout is None:
            return
        for table in self._tables.values():
            if table.layout is layout:
                self._void(table)
        self._tables = {i: t for i, t in self._tables.items() if t.layout is not layout}
        self._stopped.append(Unreadable(layout.part, self._lsn, why, output=reference))

    def _void(self, table: _Table) -> None:
        """Let the parts of a table not count."""
        if table.has_parts:
            self._anew.append(table.layout.reference)
            table.has_parts = False

    def _stop(self, id: int, why: str) -> None:
        self._stop_reference(self._tables[id].layout.reference, why)


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
