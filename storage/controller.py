"""The storage controller: durable collections that change over time.

    create -> append ... append -> drop          what is acknowledged is durable, in one order
    snapshot, listen, subscribe_at, changes      exact at each time between since and upper
    clone, downgrade, drop, acquire capability   who holds since back

It owns every shard of its database, alone: an environment that opens the same data takes it over,
and this one fails at its next write. All methods belong on the event loop and none blocks it.

Appends of one call are one entry of the log, so all of them are durable or none. Whether they fit
is decided when they are called, in the order of the calls, against uppers that count what is in
flight. What readers see, `upper`, follows when it is durable.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import pyarrow as pa

from foreshore import blocking
from foreshore.clock import Clock
from foreshore.errors import (
    DuplicateObject,
    UndefinedObject,
)
from foreshore.ids import GlobalId
from foreshore.storage.blob import Blob, FileBlob, open_blob
from foreshore.storage.capability import (
    Capability,
    ReadCapability,
    Tokens,
    WriteCapability,
    downgraded,
    grant_of,
)
from foreshore.storage.compacter import Compacter
from foreshore.storage.consensus import Consensus, open_consensus
from foreshore.storage.epoch import take_epoch
from foreshore.storage.identity import identify
from foreshore.storage.listen import Listen, ListenEvent
from foreshore.storage.local_files import LocalFiles
from foreshore.storage.reader import ShardReader
from foreshore.storage.record import (
    Advanced,
    Created,
    Downgraded,
    Dropped,
    Event,
    Grant,
    Granted,
    Opening,
    ShardEntry,
    ShardWrite,
)
from foreshore.storage.replay import replay
from foreshore.storage.selection import Reading, Selection
from foreshore.storage.shard import Shard
from foreshore.storage.snapshot import BatchFile, Snapshot
from foreshore.storage.wal import SEGMENT_BYTES, SEGMENT_RECORDS, Entry, Wal
from foreshore.update import T0, Timestamp, update_schema

__all__ = [
    "Appended",
    "BatchFile",
    "Listen",
    "ListenEvent",
    "ReadCapability",
    "Reading",
    "Selection",
    "ShardWrite",
    "Snapshot",
    "StorageController",
    "UpperMismatch",
    "WriteCapability",
]

logger = logging.getLogger(__name__)

SEGMENTS_BEHIND = 16
RIDE_SECONDS = 1.0  # how often idle uppers are logged, and how long a downgrade waits for a record


@dataclass(frozen=True, slots=True)
class Appended:
    """All of it is durable."""


@dataclass(frozen=True, slots=True)
class UpperMismatch:
    """None of it was appended: the upper of shard `id` is another one."""

    id: GlobalId
    upper: Timestamp


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """What tests and operators set."""

    segment_bytes: int = SEGMENT_BYTES
    segment_records: int = SEGMENT_RECORDS
    compacting: bool = True


class StorageController(ShardReader):
    """The shards of one database, opened by one environment."""

    def __init__(
        self, data_dir: Path, blob: Blob, consensus: Consensus, epoch: int, config: StorageConfig
    ) -> None:
        """Use `open`."""
        self.epoch = epoch
        self._consensus = consensus
        self._tokens = Tokens(epoch)
        shards: dict[GlobalId, Shard] = {}
        self._creating: set[GlobalId] = set()
        self._dropped: set[GlobalId] = set()
        self._wal = Wal(
            data_dir / "log",
            consensus,
            epoch,
            segment_bytes=config.segment_bytes,
            segment_records=config.segment_records,
        )
        self._files = LocalFiles(blob, data_dir / "cache")
        self._compacter = Compacter(
            blob, self._files, consensus, epoch, data_dir / "scratch", shards, self._wal
        )
        super().__init__(shards, self._files, self._compacter.leases)
        self._config = config
        self._tasks: list[asyncio.Task[None]] = []
        self._downgrades: dict[tuple[GlobalId, str], Timestamp | None] = {}
        self._ride_timer: asyncio.TimerHandle | None = None
        self._last_ride = 0.0
        self._closing = False

    @classmethod
    async def open(
        cls,
        *,
        data_dir: Path,
        blob: str | None,
        consensus: str | None,
        clock: Clock,
        config: StorageConfig | None = None,
    ) -> Self:
        """Open the database in `data_dir`, a new one if there is none, and take it over.

        `blob` and `consensus` are URIs; None is a directory and an SQLite database in `data_dir`.
        Raises DataCorrupted if something is not as it was written.
        """
        # Engines compare paths with the directories that they may read.
        data_dir = data_dir.absolute()  # noqa: ASYNC240 - looks at no file
        await blocking.run(None, partial(data_dir.mkdir, parents=True, exist_ok=True))
        return await cls.over(
            data_dir,
            await blocking.run(None, open_blob, blob, data_dir),
            await blocking.run(None, open_consensus, consensus, data_dir),
            config or StorageConfig(),
        )

    @classmethod
    async def over(
        cls, data_dir: Path, blob: Blob, consensus: Consensus, config: StorageConfig
    ) -> Self:
        """Open the database that these services hold.

        Raises ObjectNotInPrerequisiteState if they are not of one database.
        """
        await identify(consensus, blob, FileBlob(data_dir / "log"))
        controller = cls(data_dir, blob, consensus, await take_epoch(consensus), config)
        try:
            await controller._recover()
        except BaseException:
            await controller.close()
            raise
        return controller

    async def _recover(self) -> None:
        segments = await self._wal.recover()
        traces = await self._compacter.recover()
        numbered = [(info.number, contents) for info, contents in segments]
        recovered = await blocking.run(None, replay, numbered, traces, self.epoch)
        self._shards.update(recovered.shards)
        self._dropped = recovered.dropped
        for id in recovered.dropped:
            if id not in traces or not traces[id].dropped:
                self._compacter.drop(id)
        await self._wal.start(self._opening())
        logger.info("storage opened", extra={"epoch": self.epoch, "shards": len(self._shards)})
        loop = asyncio.get_running_loop()
        self._tasks.append(
            loop.create_task(self._wal.run(self._riders, self._opening, self._compacter.wake))
        )
        if self._config.compacting:
            self._tasks.append(loop.create_task(self._compacter.run()))

    @property
    def consensus(self) -> Consensus:
        """The register in which the environment keeps small durable values of its own."""
        return self._consensus

    async def close(self) -> None:
        """Write what is pending and let go of the files."""
        self._closing = True
        if self._ride_timer is not None:
            self._ride_timer.cancel()
        self._compacter.close()
        self._wal.close()
        for task in self._tasks:
            await task
        for shard in self._shards.values():
            for listen in shard.listens:
                listen.cancel()
        self._wal.shut()
        await self._compacter.shut()
        await self._consensus.close()

    # --- shards --------------------------------------------------------------------------------

    async def create(
        self, id: GlobalId, schema: pa.Schema
    ) -> tuple[ReadCapability, WriteCapability]:
        """Create a shard for rows of `schema`, durably, with its first capabilities.

        Raises DuplicateObject if the id names a shard or ever named one.
        """
        if id in self._shards or id in self._creating or id in self._dropped:
            raise DuplicateObject(f'shard "{id}" already exists or did exist')
        shard = Shard(id, update_schema(schema))
        read = ReadCapability(self._tokens.take(), id, T0)
        write = WriteCapability(self._tokens.take(), id, T0)
        grants = (grant_of(read), grant_of(write))
        for grant in grants:
            shard.capabilities.add(grant)
        self._creating.add(id)
        try:
            await self._log(
                Created(id, shard.encoded_schema, grants), partial(self._created, shard)
            )
        finally:
            self._creating.discard(id)
        return read, write

    def _created(self, shard: Shard) -> None:
        self._shards[shard.id] = shard

    async def drop(self, id: GlobalId) -> None:
        """Drop the shard, durably, and with it its capabilities; its id is spent for ever."""
        shard = self._shard(id)
        shard.dropping = True
        await self._log(Dropped(id), partial(self._drop, shard))

    def _drop(self, shard: Shard) -> None:
        del self._shards[shard.id]
        self._dropped.add(shard.id)
        self._compacter.drop(shard.id)
        for listen in shard.listens:
            listen.cancel()

    def spent(self) -> list[GlobalId]:
        """Return the ids that named a shard once and will never name one again."""
        return list(self._dropped)

    # --- writing -------------------------------------------------------------------------------

    async def append(self, writes: Sequence[ShardWrite]) -> Appended | UpperMismatch:
        """Append to shards, durably and at once, if each write's lower is its shard's upper.

        Waits while compaction is far behind, so that neither log nor memory grows without bound.
        """
        while len(self._wal.segments) > SEGMENTS_BEHIND and self._compacter.running:
            await self._compacter.progress()
        uppers: dict[GlobalId, Timestamp] = {}
        conforming: list[tuple[Shard, ShardWrite]] = []
        for write in writes:
            shard = self._shard(write.id)
            upper = uppers.get(write.id, shard.reserved)
            if write.lower != upper:
                await self._settled()
                return UpperMismatch(write.id, upper)
            conforming.append((shard, shard.conform(write)))
            uppers[write.id] = write.upper
        for shard, write in conforming:
            shard.reserved = write.upper
            shard.in_flight += 1
        await self._log([write for _, write in conforming], partial(self._appended, conforming))
        return Appended()

    def _appended(self, writes: list[tuple[Shard, ShardWrite]]) -> None:
        for shard, write in writes:
            shard.in_flight -= 1
            shard.add(self._wal.number, write.upper, write.updates)
        for shard, write in writes:  # whoever hears of one of them finds all of them there
            shard.publish(write.upper, write.updates)
        for shard, _ in writes:
            if not shard.in_flight and shard.reserved > shard.upper:
                shard.upper = shard.reserved  # was advanced meanwhile
                shard.publish(shard.upper, None)

    def advance(self, ids: Iterable[GlobalId], upper: Timestamp) -> None:
        """Let the uppers of shards be at least `upper`, where nothing has been appended.

        In memory only: after a restart they may be where the log last had them.
        """
        shards = self._shards
        for id in ids:
            shard = shards.get(id)
            if shard is None:
                if id in self._dropped:
                    continue  # its owner has not heard yet
                raise UndefinedObject(f'shard "{id}" does not exist')
            if upper > shard.reserved:
                shard.reserved = upper
                if not shard.in_flight:
                    shard.upper = upper
                    if shard.listens:
                        shard.publish(upper, None)

    async def _log(self, content: Event | Sequence[ShardWrite], apply: Callable[[], None]) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._wal.append(Entry(content, apply, done))
        await done

    async def _settled(self) -> None:
        """Wait for what is in flight, so that no answer tells of what is not yet durable."""
        if any(shard.in_flight for shard in self._shards.values()):
            await self._log([], lambda: None)

    def _riders(self) -> list[Entry]:
        """Return entries that nobody waits for: downgrades, and now and then the idle uppers."""
        entries = []
        if self._downgrades:
            frontiers = tuple((id, token, at) for (id, token), at in self._downgrades.items())
            sinces = [(s, s.since) for s in map(self._shards.get, {f[0] for f in frontiers}) if s]
            self._downgrades = {}
            if self._ride_timer is not None:
                self._ride_timer.cancel()
                self._ride_timer = None
            entries.append(Entry(Downgraded(frontiers), partial(self._since_durable, sinces)))
        now = asyncio.get_running_loop().time()
        if now - self._last_ride >= RIDE_SECONDS or self._closing:
            self._last_ride = now
            uppers = []
            for shard in self._shards.values():
                if shard.upper > shard.logged_upper:
                    shard.logged_upper = shard.upper
                    uppers.append((shard.id, shard.upper))
            if uppers:
                entries.append(Entry(Advanced(tuple(uppers)), lambda: None))
        return entries

    def _since_durable(self, sinces: list[tuple[Shard, Timestamp]]) -> None:
        for shard, since in sinces:
            shard.durable_since = max(shard.durable_since, since)
        self._compacter.wake()

    def _opening(self) -> Opening:
        return Opening(
            self.epoch,
            tuple(
                ShardEntry(
                    shard.id,
                    shard.encoded_schema,
                    shard.since,
                    shard.upper,
                    shard.sealed,
                    shard.capabilities.grants,
                )
                for shard in self._shards.values()
            ),
            self._compacter.dropping,
        )

    async def settle(self) -> None:
        """Seal the log as it is and wait until all of it is in batches; for tests and tools."""
        await self._wal.seal()
        await self._compacter.settle()

    # --- capabilities --------------------------------------------------------------------------

    async def acquire_capabilities(
        self, ids: Iterable[GlobalId]
    ) -> dict[GlobalId, tuple[ReadCapability, WriteCapability]]:
        """Take shards over from the environments before: new capabilities, and theirs end.

        The new ones are at since and upper.
        """
        acquired = {}
        grants: list[tuple[GlobalId, Grant]] = []
        for shard in [self._shard(id) for id in ids]:
            read = ReadCapability(self._tokens.take(), shard.id, shard.since)
            write = WriteCapability(self._tokens.take(), shard.id, shard.upper)
            acquired[shard.id] = read, write
            shard.capabilities.remove_before(self.epoch)
            for grant in (grant_of(read), grant_of(write)):
                shard.capabilities.add(grant)
                grants.append((shard.id, grant))
        await self._log(Granted(tuple(grants), True), lambda: None)
        return acquired

    async def clone_capability(self, capability: Capability) -> Capability:
        """Return another capability on the same shard at the same frontier."""
        shard = self._shard(capability.id)
        shard.capabilities.check(capability)
        clone = type(capability)(self._tokens.take(), capability.id, capability.frontier)
        shard.capabilities.add(grant_of(clone))
        await self._log(Granted(((clone.id, grant_of(clone)),), False), lambda: None)
        return clone

    async def downgrade_capability(self, capability: Capability, frontier: Timestamp) -> Capability:
        """Return the capability holding only what is at or beyond `frontier`.

        It counts at once and becomes durable with the next record.
        """
        shard = self._shard(capability.id)
        shard.capabilities.check(capability)
        lower = downgraded(capability, frontier)
        shard.capabilities.advance(capability.token, frontier)
        self._ride(shard, capability.token, frontier)
        return lower

    async def drop_capability(self, capability: Capability) -> None:
        """End the capability. It counts at once and becomes durable with the next record."""
        shard = self._shard(capability.id)
        shard.capabilities.check(capability)
        shard.capabilities.remove(capability.token)
        self._ride(shard, capability.token, None)

    def _ride(self, shard: Shard, token: str, frontier: Timestamp | None) -> None:
        shard.update_since()
        self._downgrades[shard.id, token] = frontier
        if self._ride_timer is None:
            loop = asyncio.get_running_loop()
            self._ride_timer = loop.call_later(RIDE_SECONDS, self._wal.wake)
