"""Transactions: the reads of one, and its writes until they take effect at one time.

A transaction reads at one time, chosen by its first read, and holds its inputs there. Its writes
are staged: rows with `__diff` for each table, and changes of the catalog. Its later statements see
both. At commit everything becomes durable at one time, unless something that it has read has
changed in between: then nothing happens and the client gets a conflict.

All that is staged is one immutable value, so a savepoint is a reference to it. The rows of a table
are a persistent list of parts: adding one returns a list that shares its storage with the old one,
so a block of many small INSERTs costs constant time for each. The locks of a transaction are in
`locks.py`, and the history that it reads is held in `read_holds.py`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from foreshore.activity import Change
from foreshore.catalog.planned import Planned
from foreshore.catalog.subscription_positions import Move, Moves
from foreshore.catalog.transaction import Transaction as CatalogTransaction
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.key_sets import KeyPlace, Keys
from foreshore.compute.keys.layout import KeyedRows, KeyLayout
from foreshore.compute.keys.own_rows import OwnRows
from foreshore.compute.keys.references import ReferredKeys
from foreshore.foreign_key import ForeignKey
from foreshore.ids import GlobalId
from foreshore.notifications import NO_SIGNALS, Channels, Inbox, Signal, Signals
from foreshore.spill import MappedFile
from foreshore.table_rows import TableRows
from foreshore.update import Timestamp


class Written(Struct, frozen=True, eq=False):
    """Rows written to a table, also by each of its unique keys."""

    rows: TableRows
    keyed: dict[str, KeyedRows]


_COUNT = attrgetter("rows.count")


class WrittenRows:
    """The parts that a transaction has written to one table, in order."""

    __slots__ = ("_length", "_storage")

    def __init__(self, parts: Iterable[Written] = ()) -> None:
        self._storage = _Storage(list(parts))
        self._length = len(self._storage.parts)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Written]:
        return iter(self.parts)

    @property
    def parts(self) -> Sequence[Written]:
        """The parts, in order."""
        return self._storage.parts[: self._length]

    def adding(self, part: Written) -> "WrittenRows":
        """Return the list with one more part."""
        longer = WrittenRows.__new__(WrittenRows)
        is_newest = 0 < self._length == len(self._storage.parts)
        longer._storage = self._storage if is_newest else _Storage([*self])
        longer._storage.parts.append(part)
        longer._length = self._length + 1
        return longer

    @property
    def count(self) -> int:
        """Return how many rows they add to the table, less those that they delete."""
        return sum(map(_COUNT, self._storage.parts[: self._length]))

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the rows."""
        return self._storage.size(self._length)

    def by_key(self, layout: KeyLayout) -> OwnRows:
        """Return the rows by a key of their table."""
        if not self._length:
            return OwnRows(layout)
        if len(self._storage.parts) > self._length:  # a longer list was rolled back to this one
            self._storage = _Storage([*self])
        return self._storage.by_key(layout)


class _Storage(Struct, eq=False):
    """An append-only list of parts, their rows by key and their sizes as far as asked for."""

    parts: list[Written]
    rows_by_key: dict[str, tuple[OwnRows, int]] = {}
    sizes: list[int] = []  # of the first parts, one and more, as far as they were asked for

    def size(self, count: int) -> int:
        """Return the bytes of the first `count` parts."""
        for part in self.parts[len(self.sizes) : count]:
            self.sizes.append((self.sizes[-1] if self.sizes else 0) + part.rows.size_bytes)
        return self.sizes[count - 1] if count else 0

    def by_key(self, layout: KeyLayout) -> OwnRows:
        name = layout.constraint.name
        own, done = self.rows_by_key.get(name) or (OwnRows(layout), 0)
        if done < len(self.parts):
            for part in self.parts[done:]:
                own.add(_keyed(part, layout), part.rows)
            self.rows_by_key[name] = own, len(self.parts)
        return own


def _keyed(part: Written, layout: KeyLayout) -> KeyedRows:
    name = layout.constraint.name
    if name not in part.keyed:  # the constraint is newer than the rows
        part.keyed[name] = KeyedRows(layout, part.rows)
    return part.keyed[name]


class AlteredTable(Struct, frozen=True):
    """The committed rows of a table as an ALTER TABLE needs them."""

    indexes: Mapping[str, KeyIndex] = {}  # by the keys that it adds
    contents: pa.Table | None = None  # in new columns, if the table is rewritten


class Staged(Struct, frozen=True, eq=False):
    """All that a transaction would commit."""

    rows: Mapping[GlobalId, WrittenRows] = {}
    known: Mapping[GlobalId, Planned] = {}  # at the first write of each
    altered: Mapping[GlobalId, AlteredTable] = {}
    catalog: CatalogTransaction | None = None
    moves: Moves = {}  # and positions that were only read
    # By SET CONSTRAINTS: whether foreign keys, by their oids, are deferred; 0 is for the others.
    deferred: Mapping[int, bool] = {}
    signals: Signals = NO_SIGNALS  # LISTEN and NOTIFY
    kept: int = 0  # about how many bytes of memory its rows take
    # Of some tables the keys to which all rows that were written to it refer.
    refers: Mapping[GlobalId, tuple[ReferredKeys, ...]] = {}

    def fork(self) -> "Staged":
        """Return a copy whose change of the catalog is independent."""
        return self if self.catalog is None else replace(self, catalog=self.catalog.fork())


NOTHING_STAGED = Staged()
NO_ROWS = WrittenRows()
_UNALTERED = AlteredTable()


class Transaction(Struct, eq=False):
    """One transaction of one session; `block` is whether BEGIN made it."""

    started: int  # microseconds since 1970: now()
    began: Timestamp  # sees all that was committed up to it
    block: bool = False
    settled: bool = False  # a query has run: its isolation stays as it is
    time: Timestamp | None = None
    tables_read: set[GlobalId] = field(default_factory=set)  # shards that were read as a whole
    keys_read: dict[KeyPlace, set[int]] = field(default_factory=dict)  # and keys of others
    counted: list[Change] = field(default_factory=list)  # its changes of tables, in order
    file: MappedFile | None = None  # with the rows of large changes
    staged: Staged = NOTHING_STAGED

    def anew(self, staged: Staged, now: Timestamp) -> "Transaction":
        """Return the transaction as it was before its first statement, to run that again `now`."""
        began = self.began if self.block else now
        return Transaction(self.started, began, self.block, self.settled, staged=staged)

    # --- what it has read ----------------------------------------------------------------------

    def read_keys(self, keys: Keys) -> None:
        """Note that keys were read without the rest of their tables."""
        for place, hashes in keys.items():
            self.keys_read.setdefault(place, set()).update(hashes)

    @property
    def reads(self) -> tuple[set[GlobalId], dict[KeyPlace, set[int]]]:
        """A copy of what it has read, for `read_only`."""
        return {*self.tables_read}, {place: {*each} for place, each in self.keys_read.items()}

    def read_only(self, reads: tuple[set[GlobalId], dict[KeyPlace, set[int]]]) -> None:
        """Forget all reads but these."""
        self.tables_read, self.keys_read = reads

    def forget_rows(self) -> list[object]:
        """Forget all that it has staged, as it has ended; return it, to be freed by the caller."""
        rows: list[object] = [self.staged, self.file]
        self.staged, self.file = NOTHING_STAGED, None
        return rows

    # --- what it has staged --------------------------------------------------------------------

    @property
    def catalog(self) -> CatalogTransaction | None:
        """Its change of the catalog."""
        return self.staged.catalog

    @property
    def moves(self) -> dict[GlobalId, Move]:
        """Its moves of durable subscriptions."""
        if not self.staged.moves:
            return {}
        return {id: each for id, each in self.staged.moves.items() if each.after != each.before}

    @property
    def is_untouched(self) -> bool:
        """Whether it has read and changed nothing yet."""
        if self.time is not None:
            return False
        staged = self.staged
        return staged is NOTHING_STAGED or (staged.catalog is None and not self.has_effects)

    @property
    def has_effects(self) -> bool:
        """Whether there is anything to commit."""
        staged = self.staged
        if staged is NOTHING_STAGED:
            return False
        return bool(staged.rows) or self.changes_data or bool(staged.moves and self.moves)

    @property
    def changes_data(self) -> bool:
        """Whether it has written rows, or changed the catalog."""
        staged = self.staged
        return bool(staged.rows) or (staged.catalog is not None and staged.catalog.changed)

    def is_deferred(self, key: ForeignKey) -> bool:
        """Whether a foreign key is checked at the commit only."""
        deferred = self.staged.deferred
        return key.deferrable and deferred.get(key.oid, deferred.get(0, key.deferred))

    def rows(self, id: GlobalId) -> WrittenRows:
        """Return the rows written to table `id`."""
        return self.staged.rows.get(id, NO_ROWS)

    def altered(self, id: GlobalId) -> AlteredTable:
        """Return what ALTER TABLE has made of the committed rows of table `id`."""
        return self.staged.altered.get(id, _UNALTERED)

    def reads_own_writes(self, shards: Iterable[GlobalId]) -> bool:
        """Whether this transaction sees different rows in `shards` than others do."""
        shards = tuple(shards)
        return not self.staged.rows.keys().isdisjoint(shards) or any(
            self.made(id) for id in shards if id.startswith("u")
        )

    def made(self, id: GlobalId) -> bool:
        """Whether a user's item was created in this transaction."""
        return self.catalog is not None and self.catalog.base.get(id) is None

    @property
    def written_bytes(self) -> int:
        """Return the bytes of all rows that it has written."""
        return sum(rows.size_bytes for rows in self.staged.rows.values())

    # --- staging -------------------------------------------------------------------------------

    def write(
        self, id: GlobalId, part: Written, committed: Planned | None = None, kept: int = 0
    ) -> None:
        """Add to the rows written to table `id`, whose definition is `committed` if it has one.

        They take about `kept` bytes of memory.
        """
        staged = self.staged
        known, refers, rows = staged.known, staged.refers, staged.rows
        if committed is not None and id not in known:
            known = {**known, id: committed}
        if part.rows.num_rows:
            before = rows.get(id)
            rows = {**rows, id: WrittenRows((part,)) if before is None else before.adding(part)}
            if id in refers:  # until that is known of this part, too
                refers = {each: k for each, k in refers.items() if each != id}
        else:
            kept = 0
        self.staged = Staged(
            rows,
            known,
            staged.altered,
            staged.catalog,
            staged.moves,
            staged.deferred,
            staged.signals,
            staged.kept + kept,
            refers,
        )

    def know(self, id: GlobalId, committed: Planned) -> None:
        """Note the committed definition of table `id`, unless one is known already."""
        known = self.staged.known
        if id not in known:
            self.staged = replace(self.staged, known={**known, id: committed})

    def forget_keys(self, id: GlobalId) -> None:
        """Forget the rows of `id` by key after a change of its unique keys.

        Reads by the old keys count as reads of the table.
        """
        for place in [place for place in self.keys_read if place[0] == id]:
            del self.keys_read[place]
            self.tables_read.add(id)
        if rows := self.rows(id):
            rekeyed = WrittenRows(Written(each.rows, {}) for each in rows)
            self.staged = replace(self.staged, rows={**self.staged.rows, id: rekeyed})

    def unwrite(self, id: GlobalId) -> None:
        """Remove the rows written to `id`."""
        rows = {each: rows for each, rows in self.staged.rows.items() if each != id}
        self.staged = replace(self.staged, rows=rows)

    def stage_altered(self, id: GlobalId, table: AlteredTable) -> None:
        """Stage the committed rows of the altered table `id`."""
        self.staged = replace(self.staged, altered={**self.staged.altered, id: table})

    def stage_catalog(self, change: CatalogTransaction) -> None:
        """Stage a change of the catalog."""
        self.staged = replace(self.staged, catalog=change)

    def stage_move(self, id: GlobalId, move: Move) -> None:
        """Stage the position of a durable subscription."""
        self.staged = replace(self.staged, moves={**self.staged.moves, id: move})

    def add_signal(self, signal: Signal) -> None:
        """Stage a LISTEN, UNLISTEN or NOTIFY."""
        self.staged = replace(self.staged, signals=self.staged.signals.adding(signal))

    def send_signals(self, channels: Channels, inbox: Inbox) -> None:
        """Let what `add_signal` has staged take effect: the transaction has committed."""
        if signals := self.staged.signals:
            self.staged = replace(self.staged, signals=NO_SIGNALS)
            channels.commit(inbox, signals)
