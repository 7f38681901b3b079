"""Transactions: what one has read, written and changed, until all of it takes effect at one time.

A transaction reads at one time, chosen by its first read, and holds its inputs there. What it
writes is kept here, rows with `__diff` for each table, and so are its changes of the catalog; its
own later statements see both. At commit everything becomes durable at one time, provided that
nothing it has read has changed in between; otherwise nothing happens and the client hears of a
conflict.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from foreshore.adapter.read.timestamp_selection import Isolation
from foreshore.adapter.subscribe.durable_positions import Move
from foreshore.adapter.transaction.locks import KeyLock, Mark
from foreshore.adapter.transaction.read_holds import Hold
from foreshore.catalog.catalog import Planned
from foreshore.catalog.durable import Position
from foreshore.catalog.transaction import Transaction as CatalogTransaction
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.layout import KeyedRows, KeyLayout
from foreshore.compute.keys.own_rows import OwnRows
from foreshore.errors import InvalidSavepoint, ReadOnlySqlTransaction
from foreshore.ids import GlobalId
from foreshore.sql.rewrite.full_names import FullName
from foreshore.table_rows import TableRows
from foreshore.update import Timestamp

if TYPE_CHECKING:
    from foreshore.adapter.session.prepared import BoundPortal


@dataclass(frozen=True, slots=True)
class Written:
    """Rows on their way into a table, and the same by each of its unique keys."""

    rows: TableRows
    keyed: dict[str, KeyedRows]


@dataclass(frozen=True, slots=True)
class Savepoint:
    """What a transaction had done when the savepoint was set."""

    name: str
    writes: dict[GlobalId, list[Written]]
    catalog: CatalogTransaction | None
    planned: dict[GlobalId, Planned]
    variables: tuple[dict[str, str], dict[str, str]]
    portals: "Collection[BoundPortal]"  # those that were open
    moves: dict[GlobalId, Move]  # of subscriptions
    locks: Mark
    advisory: int  # how many advisory locks it had
    # What it knew of tables while it had them; others may have changed them since.
    described: dict[GlobalId, Planned]
    built: dict[tuple[GlobalId, str], KeyIndex]
    contents: dict[GlobalId, pa.Table]
    constrained_since: dict[GlobalId, Timestamp]


@dataclass(eq=False, slots=True)
class Transaction:
    """One transaction of one session; `block` is whether BEGIN made it."""

    isolation: Isolation
    read_only: bool
    started: int  # microseconds since 1970: now()
    began: Timestamp  # all that was committed at it or before, was so when the transaction began
    block: bool = False
    time: Timestamp | None = None
    holds: list[Hold] = field(default_factory=list)
    read: set[GlobalId] = field(default_factory=set)  # shards that what was read comes from
    key_reads: set[KeyLock] = field(default_factory=set)  # what was read by key
    writes: dict[GlobalId, list[Written]] = field(default_factory=dict)
    checked: Timestamp | None = None  # the first time at which its writes were checked
    described: dict[GlobalId, Planned] = field(default_factory=dict)  # the tables it writes, then
    # What it has written, by key; and indexes of constraints that it adds, without what it writes.
    own: dict[tuple[GlobalId, str], OwnRows] = field(default_factory=dict)
    built: dict[tuple[GlobalId, str], KeyIndex] = field(default_factory=dict)
    # What a table that gets another shard holds, in new columns, without what is written here.
    contents: dict[GlobalId, pa.Table] = field(default_factory=dict)
    # Since when tables fulfil, with what is written here, what they promise since it altered them.
    constrained_since: dict[GlobalId, Timestamp] = field(default_factory=dict)
    followed: dict[GlobalId, Position] = field(default_factory=dict)  # from where, subscriptions
    followed_as: dict[FullName, GlobalId] = field(default_factory=dict)  # and by which names
    moves: dict[GlobalId, Move] = field(default_factory=dict)  # of subscriptions
    catalog: CatalogTransaction | None = None
    planned: dict[GlobalId, Planned] = field(default_factory=dict)
    savepoints: list[Savepoint] = field(default_factory=list)

    queried: bool = False  # its isolation is settled, and that it only reads
    lock_timeout_ms: int = 0  # of the statement at hand; 0: without end
    met_alter: bool = False  # an earlier attempt at it met ALTER TABLE

    @property
    def is_untouched(self) -> bool:
        """Whether it has read and changed nothing yet."""
        return self.time is None and not self.writes and not self.moves and self.catalog is None

    def anew(self, now: Timestamp) -> "Transaction":
        """Return what it was before its first statement, which is to be tried again `now`."""
        return Transaction(
            self.isolation,
            self.read_only,
            self.started,
            self.began if self.block else now,
            self.block,
            followed=self.followed,
            followed_as=self.followed_as,
            savepoints=self.savepoints,
            queried=self.queried,
            lock_timeout_ms=self.lock_timeout_ms,
            met_alter=self.met_alter,
        )

    @property
    def has_effects(self) -> bool:
        """Whether there is anything to commit."""
        return self.changes_data or bool(self.moves)

    @property
    def changes_data(self) -> bool:
        """Whether it has written rows, or changed the catalog."""
        return bool(self.writes) or (self.catalog is not None and self.catalog.changed)

    def require_writable(self, what: str) -> None:
        """Raise if the transaction is read-only."""
        if self.read_only:
            raise ReadOnlySqlTransaction(f"cannot execute {what} in a read-only transaction")

    def write(self, id: GlobalId, written: Written) -> None:
        """Add to what is written to `id` at commit."""
        if written.rows.num_rows:
            self.writes.setdefault(id, []).append(written)

    def own_rows(self, id: GlobalId, layout: KeyLayout) -> OwnRows:
        """Return the rows that it has written to table `id`, by a key."""
        key = (id, layout.constraint.name)
        found = self.own.get(key)
        if found is None:
            found = self.own[key] = OwnRows(layout)
            for written in self.writes.get(id, ()):
                keyed = written.keyed.get(layout.constraint.name)
                if keyed is None:  # the constraint is newer than the rows
                    keyed = written.keyed[layout.constraint.name] = KeyedRows(layout, written.rows)
                found.add([keyed])
        return found

    def _forget_own(self, id: GlobalId) -> None:
        """Let the rows written to `id` be arranged by key anew."""
        for key in [key for key in self.own if key[0] == id]:
            del self.own[key]

    def forget_keys(self, id: GlobalId) -> None:
        """Let what is written to `id` be arranged anew, as its keys are others now.

        A savepoint may know the same rows by the keys of before. What was read by these counts
        as a read of the table.
        """
        gone = {each for each in self.key_reads if each.table == id}
        if gone:
            self.key_reads -= gone
            self.read.add(id)
        if id in self.writes:
            self.writes[id] = [Written(each.rows, {}) for each in self.writes[id]]
        self._forget_own(id)

    def unwrite(self, id: GlobalId) -> None:
        """Forget what is written to `id`."""
        self.writes.pop(id, None)
        self._forget_own(id)

    def reads_own_writes(self, shards: Iterable[GlobalId]) -> bool:
        """Whether what comes from `shards` looks different to this transaction."""
        return not self.writes.keys().isdisjoint(shards) or any(
            self.made(id) for id in shards if id.startswith("u")
        )

    def made(self, id: GlobalId) -> bool:
        """Whether a user's item is new in this transaction, so that nobody else knows it."""
        return self.catalog is not None and self.catalog.base.get(id) is None

    def save(
        self,
        name: str,
        variables: tuple[dict[str, str], dict[str, str]],
        portals: "Collection[BoundPortal]",
        locks: Mark,
        advisory: int,
    ) -> None:
        """Set a savepoint."""
        self.savepoints.append(
            Savepoint(
                name,
                {id: list(parts) for id, parts in self.writes.items()},
                None if self.catalog is None else self.catalog.fork(),
                dict(self.planned),
                variables,
                portals,
                dict(self.moves),
                locks,
                advisory,
                dict(self.described),
                dict(self.built),
                dict(self.contents),
                dict(self.constrained_since),
            )
        )

    def find_savepoint(self, name: str) -> int:
        """Return the place of the latest savepoint `name`."""
        for place in reversed(range(len(self.savepoints))):
            if self.savepoints[place].name == name:
                return place
        raise InvalidSavepoint(f'savepoint "{name}" does not exist')

    def return_to(self, place: int) -> Savepoint:
        """Forget what was done since a savepoint, which stays."""
        savepoint = self.savepoints[place]
        del self.savepoints[place + 1 :]
        self.writes = {id: list(parts) for id, parts in savepoint.writes.items()}
        self.planned = dict(savepoint.planned)
        self.moves = dict(savepoint.moves)
        self.described = dict(savepoint.described)
        self.built = dict(savepoint.built)
        self.contents = dict(savepoint.contents)
        self.constrained_since = dict(savepoint.constrained_since)
        self.own.clear()  # made anew of what is left
        self.catalog = None if savepoint.catalog is None else savepoint.catalog.fork()
        return savepoint

    def forget(self) -> None:
        """Forget all that was done; there is no way back, only the end."""
        self.release()
        self.writes.clear()
        self.moves.clear()
        self.own.clear()
        self.built.clear()
        self.contents.clear()
        self.constrained_since.clear()
        self.planned.clear()
        self.savepoints.clear()
        self.catalog = None

    def release(self) -> None:
        """Let go of what it holds."""
        for hold in self.holds:
            hold.release()
        self.holds.clear()
