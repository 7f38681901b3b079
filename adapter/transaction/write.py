"""The writes of a transaction on their way through group commit."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
from msgspec import Struct

from foreshore.adapter.transaction.violations import Viewer
from foreshore.catalog.planned import Planned
from foreshore.catalog.subscription_positions import Moves
from foreshore.compute.keys.group_keys import Keyed
from foreshore.compute.keys.key_sets import NO_KEYS, Keys
from foreshore.compute.keys.references import ReferredKeys
from foreshore.ids import GlobalId
from foreshore.table_rows import TableRows
from foreshore.update import Timestamp


class Reads(Struct, frozen=True):
    """A write holds only if nothing has changed in `ids`, nor any of `keys`, since `time`.

    Keys are by a unique constraint or by other columns of their table.
    """

    ids: frozenset[GlobalId]
    time: Timestamp
    keys: Keys = NO_KEYS


class Write(Struct, eq=False):
    """The rows that one transaction writes to each shard, without a time.

    `at` returns further updates, made with the time of the write. `applied` is called with the time
    when the write becomes visible, before anything else can run. Its end settles `done`.
    """

    rows: dict[GlobalId, Sequence[pa.Table | TableRows]]
    reads: Reads | None = None
    at: Callable[[Timestamp], Mapping[GlobalId, pa.Table]] | None = None
    applied: Callable[[Timestamp], None] | None = None
    owner: object = None  # of blocked tables
    lock_timeout_ms: int = 0  # the longest wait for others who block its tables; 0: no limit
    keyed: dict[GlobalId, list[Keyed]] = {}  # `rows`, by key
    refers: Sequence[ReferredKeys] = ()  # keys of other tables that have to be there
    checked: Timestamp = 0  # the last time at which the constraints were known to hold
    described: Mapping[GlobalId, Planned] = {}  # the tables as it knew them
    moves: Moves = {}  # of subscriptions
    retires: frozenset[GlobalId] = frozenset()  # shards that are known up to before it, and end
    viewer: Callable[[], Viewer] = Viewer  # who gets its errors
    waits: bool = True  # for others who block its tables
    done: asyncio.Future[Timestamp] | None = None
    # What it writes to relations that may have a watermark, as found when it was checked.
    marked: Mapping[GlobalId, Sequence[pa.Table | TableRows]] = {}
    asked_at: float = 0.0  # by the process's counter

    @property
    def is_given_up(self) -> bool:
        """Whether who waited for it was cancelled."""
        return self.done is not None and self.done.cancelled()

    def succeed(self, time: Timestamp) -> None:
        """Note that it has become durable and visible."""
        if self.done is not None and not self.done.done():
            self.done.set_result(time)

    def fail(self, error: BaseException) -> None:
        """Note that it has not happened, or that this is not known."""
        if self.done is not None and not self.done.done():
            self.done.set_exception(error)
