"""Transactions: what one has read, written and changed, until all of it takes effect at one time.

A transaction reads at one time, chosen by its first read, and holds its inputs there. What it
writes is kept here, rows with `__diff` for each table, and so are its changes of the catalog; its
own later statements see both. At commit everything becomes durable at one time, provided that
nothing it has read has changed in between; otherwise nothing happens and the client hears of a
conflict.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from foreshore.adapter.read_holds import Hold
from foreshore.adapter.timestamp_selection import Isolation
from foreshore.catalog.catalog import Planned
from foreshore.catalog.transaction import Transaction as CatalogTransaction
from foreshore.errors import ReadOnlySqlTransaction
from foreshore.ids import GlobalId
from foreshore.update import Timestamp


@dataclass(eq=False, slots=True)
class Transaction:
    """One transaction of one session; `block` is whether BEGIN made it."""

    isolation: Isolation
    read_only: bool
    started: int  # microseconds since 1970: now()
    block: bool = False
    time: Timestamp | None = None
    holds: list[Hold] = field(default_factory=list)
    read: set[GlobalId] = field(default_factory=set)  # shards that what was read comes from
    writes: dict[GlobalId, list[pa.Table]] = field(default_factory=dict)
    catalog: CatalogTransaction | None = None
    planned: dict[GlobalId, Planned] = field(default_factory=dict)
    locked: bool = False  # whether it holds write locks

    @property
    def has_effects(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self.writes) or (self.catalog is not None and self.catalog.changed)

    def require_writable(self, what: str) -> None:
        """Raise if the transaction is read-only."""
        if self.read_only:
            raise ReadOnlySqlTransaction(f"cannot execute {what} in a read-only transaction")

    def write(self, id: GlobalId, rows: pa.Table) -> None:
        """Add rows with `__diff` to what is written to `id` at commit."""
        if rows.num_rows:
            self.writes.setdefault(id, []).append(rows)

    def reads_own_writes(self, shards: Iterable[GlobalId]) -> bool:
        """Whether what comes from `shards` looks different to this transaction."""
        return not self.writes.keys().isdisjoint(shards) or (
            self.catalog is not None
            and any(self.catalog.base.get(id) is None for id in shards if id.startswith("u"))
        )

    def release(self) -> None:
        """Let go of what it holds."""
        for hold in self.holds:
            hold.release()
        self.holds.clear()
