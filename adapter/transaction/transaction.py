"""Transactions: what one has read, written and changed, until all of it takes effect at one time.

A transaction reads at one time, chosen by its first read, and holds its inputs there. What it
writes is staged here, rows with `__diff` for each table, and so are its changes of the catalog; its
own later statements see both. At commit everything becomes durable at one time, provided that
nothing it has read has changed in between; otherwise nothing happens and the client gets a
conflict.

All that is staged is one immutable value, so a savepoint is a reference to it. What the transaction
holds elsewhere is recorded there under the transaction: its locks (`locks.py`) and the history that
it reads (`read_holds.py`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from foreshore.adapter.subscribe.durable_positions import Move, Moves
from foreshore.adapter.transaction.locks import KeyLock
from foreshore.adapter.transaction.written_rows import Written, WrittenRows
from foreshore.catalog.catalog import Planned
from foreshore.catalog.transaction import Transaction as CatalogTransaction
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.ids import GlobalId
from foreshore.update import Timestamp


@dataclass(frozen=True, slots=True)
class AlteredTable:
    """The committed rows of a table as an ALTER TABLE needs them."""

    indexes: Mapping[str, KeyIndex] = field(default_factory=dict)  # by the keys that it adds
    contents: pa.Table | None = None  # in new columns, if the table is rewritten


@dataclass(frozen=True, slots=True)
class Staged:
    """All that a transaction would commit."""

    rows: Mapping[GlobalId, WrittenRows] = field(default_factory=dict)
    known: Mapping[GlobalId, Planned] = field(default_factory=dict)  # at the first write of each
    altered: Mapping[GlobalId, AlteredTable] = field(default_factory=dict)
    catalog: CatalogTransaction | None = None
    moves: Moves = field(default_factory=dict)  # and positions that were only read

    def fork(self) -> "Staged":
        """Return the same, with a change of the catalog that goes on by itself."""
        return self if self.catalog is None else replace(self, catalog=self.catalog.fork())


NOTHING_STAGED = Staged()
NO_ROWS = WrittenRows()
_UNALTERED = AlteredTable()


@dataclass(eq=False, slots=True)
class Transaction:
    """One transaction of one session; `block` is whether BEGIN made it."""

    started: int  # microseconds since 1970: now()
    began: Timestamp  # sees all that was committed up to it
    block: bool = False
    settled: bool = False  # a query has run: its isolation stays as it is
    time: Timestamp | None = None
    read: set[GlobalId | KeyLock] = field(default_factory=set)  # whole shards, and single keys
    staged: Staged = NOTHING_STAGED

    def anew(self, staged: Staged, now: Timestamp) -> "Transaction":
        """Return what it was before its first statement, to try that again `now`."""
        began = self.began if self.block else now
        return Transaction(self.started, began, self.block, self.settled, staged=staged)

    # --- what it has read ----------------------------------------------------------------------

    @property
    def keys_read(self) -> frozenset[KeyLock]:
        """The keys that it has read without the rest of their tables."""
        return frozenset(each for each in self.read if isinstance(each, KeyLock))

    @property
    def tables_read(self) -> frozenset[GlobalId]:
        """The shards that it has read as a whole."""
        return frozenset(each for each in self.read if not isinstance(each, KeyLock))

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
        return self.time is None and self.staged.catalog is None and not self.has_effects

    @property
    def has_effects(self) -> bool:
        """Whether there is anything to commit."""
        return self.changes_data or bool(self.moves)

    @property
    def changes_data(self) -> bool:
        """Whether it has written rows, or changed the catalog."""
        staged = self.staged
        return bool(staged.rows) or (staged.catalog is not None and staged.catalog.changed)

    def rows(self, id: GlobalId) -> WrittenRows:
        """Return the rows written to table `id`."""
        return self.staged.rows.get(id, NO_ROWS)

    def altered(self, id: GlobalId) -> AlteredTable:
        """Return what ALTER TABLE has made of the committed rows of table `id`."""
        return self.staged.altered.get(id, _UNALTERED)

    def reads_own_writes(self, shards: Iterable[GlobalId]) -> bool:
        """Whether what comes from `shards` looks different to this transaction."""
        shards = tuple(shards)
        return not self.staged.rows.keys().isdisjoint(shards) or any(
            self.made(id) for id in shards if id.startswith("u")
        )

    def made(self, id: GlobalId) -> bool:
        """Whether a user's item is new in this transaction, so that nobody else knows it."""
        return self.catalog is not None and self.catalog.base.get(id) is None

    # --- staging -------------------------------------------------------------------------------

    def write(self, id: GlobalId, part: Written, committed: Planned | None = None) -> None:
        """Add to the rows written to table `id`, whose definition is `committed` if it has one."""
        if committed is not None:
            self.know(id, committed)
        if part.rows.num_rows:
            self._stage_rows({**self.staged.rows, id: self.rows(id).adding(part)})

    def know(self, id: GlobalId, committed: Planned) -> None:
        """Note the committed definition of table `id`, unless one is known already."""
        known = self.staged.known
        if id not in known:
            self.staged = replace(self.staged, known={**known, id: committed})

    def forget_keys(self, id: GlobalId) -> None:
        """Let what is written to `id` be arranged anew, as its keys are others now.

        What was read by these counts as a read of the table.
        """
        if gone := {each for each in self.keys_read if each.table == id}:
            self.read = {*(self.read - gone), id}
        if rows := self.rows(id):
            rekeyed = WrittenRows(Written(each.rows, {}) for each in rows)
            self._stage_rows({**self.staged.rows, id: rekeyed})

    def unwrite(self, id: GlobalId) -> None:
        """Forget what is written to `id`."""
        self._stage_rows({each: rows for each, rows in self.staged.rows.items() if each != id})

    def _stage_rows(self, rows: Mapping[GlobalId, WrittenRows]) -> None:
        staged = self.staged
        self.staged = Staged(rows, staged.known, staged.altered, staged.catalog, staged.moves)

    def stage_altered(self, id: GlobalId, table: AlteredTable) -> None:
        """Stage the committed rows of the altered table `id`."""
        self.staged = replace(self.staged, altered={**self.staged.altered, id: table})

    def stage_catalog(self, change: CatalogTransaction) -> None:
        """Stage a change of the catalog."""
        self.staged = replace(self.staged, catalog=change)

    def stage_move(self, id: GlobalId, move: Move) -> None:
        """Stage the position of a durable subscription."""
        self.staged = replace(self.staged, moves={**self.staged.moves, id: move})
