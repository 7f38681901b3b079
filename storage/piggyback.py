"""Piggybacked events: events without waiters, logged with the next record.

Advances of since wait at most a second for a record. The uppers of idle shards are logged with a
record now and then: those that were advanced on their own, those whose since advances, and of all
others, which share an upper, some in turn. So a record does not grow with the number of shards. If
a record had no room for an event, the next record takes it, unless a later event has replaced it.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from foreshore.ids import GlobalId
from foreshore.storage.record import Advanced, Downgraded, Event, Expired
from foreshore.storage.shard import Shard
from foreshore.storage.wal import Entry
from foreshore.update import T0, Timestamp

PIGGYBACK_SECONDS = 1.0  # the interval for idle uppers, and the longest wait of a downgrade
IN_TURN = 64  # idle shards whose uppers are logged with one record


class PiggybackedEvents:
    """The piggybacked events of one environment, owned by the event loop.

    `write` requests a record now. `durable` is called with shards after their since has advanced
    durably.
    """

    def __init__(
        self,
        shards: Mapping[GlobalId, Shard],
        write: Callable[[], None],
        durable: Callable[[Iterable[GlobalId]], None],
    ) -> None:
        self._shards = shards
        self._write = write
        self._durable = durable
        self._downgrades: dict[tuple[GlobalId, str], Timestamp | None] = {}
        self._expired: list[tuple[GlobalId, str]] = []
        self._moved: dict[GlobalId, Shard] = {}  # advanced since their uppers were logged
        self._turn: Iterator[Shard] = iter(())  # the shards whose turn is to come
        self._all = False  # whether the next record has the uppers of all shards
        self._timer: asyncio.TimerHandle | None = None
        self.due = 0.0  # when there is something to log, at the earliest, by the loop's clock
        self._closing = False

    def downgrade(self, shard: Shard, token: str, frontier: Timestamp | None) -> None:
        """Downgrade a read capability to `frontier`; None: it was dropped."""
        self._downgrades[shard.id, token] = frontier
        self.due = 0.0
        shard.update_since()
        self._write_soon()

    def expire(self, shard: Shard, token: str) -> None:
        """Record that a read lease has ended."""
        self._expired.append((shard.id, token))
        self.due = 0.0
        shard.update_since()
        self._write_soon()

    def advanced(self, shard: Shard) -> None:
        """Note that a shard was advanced on its own, so that its upper is logged."""
        self._moved[shard.id] = shard

    def log_uppers_soon(self) -> None:
        """Log the uppers of all idle shards with the next record."""
        self._all = True
        self.due = 0.0

    def close(self) -> None:
        """Stop requesting records, and log everything with the last one."""
        self._closing = self._all = True
        self.due = 0.0
        if self._timer is not None:
            self._timer.cancel()

    def entries(self) -> list[Entry]:
        """Return the entries for the next record.

        The uppers come first: they keep the history of a shard for as long as a collection derived
        from it would have to restart there.
        """
        self.due = 0.0 if self._closing else asyncio.get_running_loop().time() + PIGGYBACK_SECONDS
        entries = [*self._uppers()]
        if self._downgrades:
            downgrades, self._downgrades = self._downgrades, {}
            frontiers = tuple((id, token, at) for (id, token), at in downgrades.items())
            back = partial(self._not_downgraded, downgrades)
            entries.append(
                self._since_entry({f[0] for f in frontiers}, Downgraded(frontiers), back)
            )
        if self._expired:
            expired, self._expired = self._expired, []
            back = partial(self._not_expired, expired)
            entries.append(
                self._since_entry({id for id, _ in expired}, Expired(tuple(expired)), back)
            )
        if entries and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return entries

    def _uppers(self) -> Iterator[Entry]:
        """Yield the uppers of idle shards that are to be logged and are not yet."""
        moved = [
            shard
            for shard in self._to_be_logged().values()
            if shard.upper > shard.logged_upper
            and not shard.dropping
            and self._shards.get(shard.id) is shard
        ]
        if moved:
            uppers = tuple((shard.id, shard.upper) for shard in moved)
            for shard in moved:
                shard.logged_upper = shard.upper
            yield Entry(Advanced(uppers), lambda: None, refuse=partial(self._not_advanced, moved))

    def _to_be_logged(self) -> dict[GlobalId, Shard]:
        if self._all:
            self._all, self._moved = self._closing, {}
            return dict(self._shards)
        found, self._moved = self._moved, {}
        for id, _ in self._downgrades:
            if (shard := self._shards.get(id)) is not None:
                found[id] = shard
        turn = list(islice(self._turn, IN_TURN))
        if len(turn) < IN_TURN:
            self._turn = iter(tuple(self._shards.values()))
            turn += islice(self._turn, IN_TURN - len(turn))
        found.update((shard.id, shard) for shard in turn)
        return found

    def _since_entry(self, ids: set[GlobalId], event: Event, back: Callable[[], None]) -> Entry:
        """Return the entry of an event after which the since of shards may advance."""
        sinces = [(shard, shard.since) for shard in map(self._shards.get, ids) if shard]
        return Entry(event, partial(self._since_durable, sinces), refuse=back)

    def _since_durable(self, sinces: Sequence[tuple[Shard, Timestamp]]) -> None:
        for shard, since in sinces:
            shard.durable_since = max(shard.durable_since, since)
        self._durable([shard.id for shard, _ in sinces])

    # --- no room for it

    def _not_downgraded(self, downgrades: Mapping[tuple[GlobalId, str], Timestamp | None]) -> None:
        self._downgrades = {**downgrades, **self._downgrades}
        self.due = 0.0
        self._write_soon()

    def _not_expired(self, expired: Iterable[tuple[GlobalId, str]]) -> None:
        self._expired = [*expired, *self._expired]
        self.due = 0.0
        self._write_soon()

    def _not_advanced(self, shards: Iterable[Shard]) -> None:
        for shard in shards:
            shard.logged_upper = T0
            self._moved[shard.id] = shard
        self.due = 0.0

    def _write_soon(self) -> None:
        if self._timer is None and not self._closing:
            self._timer = asyncio.get_running_loop().call_later(PIGGYBACK_SECONDS, self._write)
