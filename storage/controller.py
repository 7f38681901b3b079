"""The storage controller: durable collections that change over time.

    create -> append ... append -> drop          acknowledged writes are durable, in one order
    snapshot, listen, subscribe_at, changes      exact at each time between since and upper
    acquire_, clone_, downgrade_,                capabilities hold since and upper back
      drop_capability, heartbeat, confirm

The controller is the only owner of the shards of its database. An environment that opens the same
data takes them over, and this one fails at its next write. All methods belong on the event loop and
none blocks it.

Appends of one call are one entry of the log, so either all of them become durable or none. Whether
they fit is decided when they are called, in call order, against uppers that include writes in
flight. The `upper` that readers see advances once the entry is durable.
"""

import asyncio
import logging
import os
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

import pyarrow as pa

from foreshore import blocking
from foreshore.clock import Clock
from foreshore.errors import (
    AdminShutdown,
    DuplicateObject,
    Fenced,
    InternalError,
    UndefinedObject,
)
from foreshore.few_updates import FewUpdates
from foreshore.ids import GlobalId
from foreshore.storage.blob import Blob, FileBlob, open_blob
from foreshore.storage.blob_owner import BlobOwner
from foreshore.storage.capability import (
    ReadCapability,
    WriteCapability,
    downgraded,
    grant_of,
)
from foreshore.storage.compacter import Compacter, Merger
from foreshore.storage.consensus import Consensus
from foreshore.storage.consensus_services import open_consensus
from foreshore.storage.directory import finish_restore
from foreshore.storage.epoch import FENCE, check_epoch, last_epoch, take_epoch
from foreshore.storage.fault import DiskFull, Unwritable
from foreshore.storage.garbage import Garbage
from foreshore.storage.grants import ShardGrants
from foreshore.storage.identity import NAME, identify
from foreshore.storage.listen import Listen, ListenEvent
from foreshore.storage.local_files import LocalFiles
from foreshore.storage.piggyback import PiggybackedEvents
from foreshore.storage.record import (
    Created,
    Dropped,
    Opening,
    ShardEntry,
    ShardWrite,
)
from foreshore.storage.replay import replay
from foreshore.storage.selection import Reading, Selection
from foreshore.storage.shard import Shard, SharedUpper
from foreshore.storage.snapshot import BatchFile, Snapshot
from foreshore.storage.wal import SEGMENT_BYTES, SEGMENT_RECORDS, Ended, Entry, Wal
from foreshore.update import EMPTY, T0, Timestamp, at_time, update_schema

__all__ = [
    "Appended",
    "BatchFile",
    "Listen",
    "ListenEvent",
    "ReadCapability",
    "Reading",
    "Selection",
    "ShardWrite",
    "SharedUpper",
    "Snapshot",
    "StorageController",
    "UpperMismatch",
    "WriteCapability",
]

logger = logging.getLogger(__name__)

SEGMENTS_BEHIND = 16
PIECE_BYTES = 16 << 20  # of a shard's first rows, in one record of the log


@dataclass(frozen=True, slots=True)
class Appended:
    """All writes of the call are durable."""


@dataclass(frozen=True, slots=True)
class UpperMismatch:
    """Nothing was appended: shard `id` has the upper `upper`."""

    id: GlobalId
    upper: Timestamp


@dataclass(frozen=True, slots=True)
class StorageConfig:
    """Settings for tests and operators."""

    segment_bytes: int = SEGMENT_BYTES
    segment_records: int = SEGMENT_RECORDS
    compacting: bool = True
    merger: Merger | None = None  # of large batches


@dataclass(frozen=True, slots=True)
class Amounts:
    """How much is stored: shards, their files, the updates in memory, the log, what is to do."""

    shards: int
    files: int
    bytes: int
    tail_bytes: int
    segments: int
    segments_behind: int
    rounds: int  # of the compacter
    failing_shards: int


class StorageController(ShardGrants):
    """The shards of one database, opened by one environment."""

    def __init__(
        self,
        data_dir: Path,
        blob: Blob,
        consensus: Consensus,
        epoch: int,
        clock: Clock,
        config: StorageConfig,
        owner: BlobOwner | None = None,
    ) -> None:
        """Use `open`."""
        self._consensus = consensus
        self._owner = owner  # of a blob store outside of the data directory
        self._owning: asyncio.Task[None] | None = None
        self.scratch = data_dir / "scratch"  # for files that no restart keeps
        shards: dict[GlobalId, Shard] = {}
        self._creating: set[GlobalId] = set()
        self._shared: set[SharedUpper] = set()
        self._files = LocalFiles(blob, data_dir / "cache", check_owned=self.check_owned)
        check_owner = owner.check if owner is not None else lambda: None
        self._garbage = Garbage(data_dir, blob, self._files, clock, check_owner)
        wal = Wal(
            data_dir / "log",
            self.scratch,
            consensus,
            self._garbage,
            epoch,
            segment_bytes=config.segment_bytes,
            segment_records=config.segment_records,
        )
        self._compacter = Compacter(
            blob,
            self._files,
            self._garbage,
            consensus,
            epoch,
            self.scratch,
            shards,
            wal,
            config.merger,
        )
        super().__init__(
            shards,
            self._files,
            self._compacter.leases,
            self._compacter.corruptions,
            wal,
            PiggybackedEvents(shards, wal.wake, self._compacter.look_at),
            epoch,
            clock,
        )
        self._config = config
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = False

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
        """Open the database in `data_dir`, creating it if there is none, and take ownership.

        `blob` and `consensus` are URIs; None stands for a directory and an SQLite database in
        `data_dir`. Leases expire by `clock`. Raises DataCorrupted if something that concerns all
        shards is corrupt (corruption of single shards is recorded in `corruptions`), DiskFull if
        there is no room to start, and ObjectNotInPrerequisiteState if a restore into `data_dir` was
        not completed.
        """
        # Engines compare paths with the directories that they may read.
        data_dir = Path(os.path.abspath(data_dir))  # noqa: ASYNC240 - looks at no file
        await blocking.run(None, partial(data_dir.mkdir, parents=True, exist_ok=True))
        await blocking.run(None, finish_restore, data_dir)
        return await cls.open_services(
            data_dir,
            await blocking.run(None, open_blob, blob, data_dir),
            await blocking.run(None, open_consensus, consensus, data_dir),
            clock,
            config or StorageConfig(),
        )

    @classmethod
    async def open_services(
        cls,
        data_dir: Path,
        blob: Blob,
        consensus: Consensus,
        clock: Clock,
        config: StorageConfig,
    ) -> Self:
        """Open the database in these services.

        Raises ObjectNotInPrerequisiteState if they belong to different databases or another copy of
        the database owns the blob store, and DataCorrupted if they do not fit together. In these
        cases nothing was changed.
        """
        place = blob.local(NAME)
        is_within = place is not None and place.is_relative_to(data_dir)
        owner = None if is_within else BlobOwner(blob, data_dir)
        if owner is not None and await last_epoch(consensus) is None:
            await owner.check_new()
        await identify(consensus, blob, FileBlob(data_dir / "log"))
        await check_epoch(consensus, data_dir / "log" / FENCE)
        if owner is not None:
            await owner.check_start(await last_epoch(consensus))
        taken = await take_epoch(consensus)
        if owner is not None:
            await blocking.run(None, owner.claim, taken)
        controller = cls(data_dir, blob, consensus, taken.epoch, clock, config, owner)
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
        while True:
            recovered = await blocking.run(None, replay, numbered, traces, self.epoch)
            new = [shard for id, shard in recovered.shards.items() if id not in traces]
            begun = await self._compacter.claim(new)
            traces |= begun
            if not any(state.batches for state in begun.values()):
                break
        await self._compacter.clean(traces.values())
        self._shards.update(recovered.shards)
        self._compacter.look_at(recovered.shards)
        self._compacter.unsealed.update(
            (id, shard) for id, shard in recovered.shards.items() if shard.tail
        )
        self._dropped = recovered.dropped
        self.corruptions.keep(self._shards)
        for id in recovered.dropped:
            if id not in traces or not traces[id].dropped:
                self._compacter.drop(id)
        for shard in recovered.shards.values():
            for grant in shard.capabilities.grants:
                self._start_lease(shard.id, grant)
        await self._wal.start(self._opening())
        await blocking.run(None, self._garbage.prepare)
        logger.info("storage opened", extra={"epoch": self.epoch, "shards": len(self._shards)})
        loop = asyncio.get_running_loop()
        if self._owner is not None:
            self._owning = loop.create_task(self._own(self._owner))
        self._tasks.append(
            loop.create_task(
                self._wal.run(self._piggybacked_entries, self._opening, self._compacter.wake)
            )
        )
        self._tasks.append(loop.create_task(self._garbage.run()))
        if self._config.compacting:
            self._tasks.append(loop.create_task(self._compacter.run()))

    async def _own(self, owner: BlobOwner) -> None:
        try:
            await owner.run()
        except Fenced:
            logger.error("another copy of this data directory owns the blob store")
            self._wal.lose()

    @property
    def consensus(self) -> Consensus:
        """Return the consensus store, which also keeps small values of the environment."""
        return self._consensus

    def check_owned(self) -> None:
        """Raise Fenced if another environment has taken the database over; call it on a thread."""
        self._wal.check_fence()

    async def close(self) -> None:
        """Write pending entries and close the files, even if the log or compaction has failed.

        Raises the error with which either has failed.
        """
        self._piggybacked.close()
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
        self._compacter.close()
        self._garbage.close()
        self._wal.close()
        async with AsyncExitStack() as closing:
            closing.push_async_callback(self._consensus.close)
            closing.push_async_callback(self._compacter.shut)
            closing.callback(self._wal.shut)
            outcomes = await asyncio.gather(*self._tasks, return_exceptions=True)
            if self._owner is not None and self._owning is not None:
                self._owner.close()
                await asyncio.gather(self._owning, return_exceptions=True)
            for shard in self._shards.values():
                for listen in shard.listens:
                    listen.cancel()
            for outcome in outcomes:
                if outcome is not None:
                    raise outcome

    # --- shards --------------------------------------------------------------------------------

    async def create(
        self, id: GlobalId, schema: pa.Schema
    ) -> tuple[ReadCapability, WriteCapability]:
        """Create a shard for rows of `schema`, durably, and return its first capabilities.

        Raises DuplicateObject if the id names a shard or ever named one.
        """
        if id in self._shards or id in self._creating or id in self._dropped:
            raise DuplicateObject(f'shard "{id}" already exists or did exist')
        shard = Shard(id, update_schema(schema))
        read = ReadCapability(self._tokens.issue(), id, T0)
        write = WriteCapability(self._tokens.issue(), id, T0)
        grants = (grant_of(read), grant_of(write))
        for grant in grants:
            shard.capabilities.add(grant)
        self._creating.add(id)  # until the log answers, even if the caller is cancelled
        await self._wal.log(
            Created(id, shard.encoded_schema, grants),
            partial(self._created, shard),
            refuse=partial(self._creating.discard, id),
        )
        return read, write

    def _created(self, shard: Shard) -> None:
        self._creating.discard(shard.id)
        self._shards[shard.id] = shard

    async def drop(self, id: GlobalId) -> None:
        """Drop the shard and its capabilities, durably. Its id is never used again."""
        shard = self._shard(id)
        shard.dropping = True
        await self._wal.log(Dropped(id), partial(self._drop, shard))

    def _drop(self, shard: Shard) -> None:
        del self._shards[shard.id]
        self._dropped.add(shard.id)
        self.corruptions.keep(self._shards)
        self._compacter.drop(shard.id)
        self._expiry.forget(grant.token for grant in shard.capabilities.grants)
        for listen in tuple(shard.listens):
            listen.drop()

    def retired_ids(self) -> list[GlobalId]:
        """Return the ids of dropped shards, which are never used again."""
        return list(self._dropped)

    # --- writing -------------------------------------------------------------------------------

    async def append(self, writes: Sequence[ShardWrite]) -> Appended | UpperMismatch:
        """Append to shards, durably and atomically, if each write's lower is its shard's upper.

        Waits while compaction is far behind, so that neither the log nor memory grows without
        bound. Raises InvalidCapability if a write's token does not give the right to it, DiskFull
        if there is no room for the write or for compaction, and AdminShutdown if it would wait for
        compaction after `stop_waiting`, and Unwritable if it does not fit its shard or cannot be
        encoded. In all these cases nothing was appended.
        """
        entry = await self._entry(writes)
        if isinstance(entry, UpperMismatch):
            return entry
        await self._wal.log(entry.content, entry.apply, entry.refuse)
        return Appended()

    async def begin_append(
        self, writes: Sequence[ShardWrite], ended: Ended
    ) -> UpperMismatch | None:
        """Append to shards as `append` does, but return when the log has the writes.

        `ended` is called later: as soon as readers see the writes, or with the error because of
        which they were not appended. The log does not wait for other writes to join these.
        """
        entry = await self._entry(writes)
        if isinstance(entry, UpperMismatch):
            return entry
        entry.ended = ended
        self._wal.append(entry, at_once=True)
        return None

    async def _entry(self, writes: Sequence[ShardWrite]) -> Entry | UpperMismatch:
        """Return the log's entry for writes that fit their shards, which are reserved for them."""
        await self._wait_for_compaction()
        uppers: dict[GlobalId, Timestamp] = {}
        conforming: list[tuple[Shard, ShardWrite]] = []
        for write in writes:
            shard = self._shard(write.id)
            if write.token is not None:
                shard.capabilities.check_write(write.token, write.lower)
            upper = uppers.get(write.id, shard.reserved)
            if write.lower != upper:
                await self._wait_in_flight()
                return UpperMismatch(write.id, upper)
            try:
                conforming.append((shard, shard.checked(write)))
            except InternalError as error:
                raise Unwritable(error.message) from error
            uppers[write.id] = write.upper
        for shard, write in conforming:
            shard.reserve(write.upper)
        return Entry(
            [write for _, write in conforming],
            partial(self._appended, conforming),
            refuse=partial(self._refused, [shard for shard, _ in conforming]),
        )

    async def fill(self, id: GlobalId, rows: pa.Table, time: Timestamp) -> None:
        """Append the first rows of a shard that nobody reads before `time`, in pieces.

        Each piece has a time of its own, so that no record of the log is too long; the last one's
        is `time`.
        """
        pieces = max(-(-rows.nbytes // PIECE_BYTES), 1)
        size = max(-(-rows.num_rows // pieces), 1)
        parts = [rows.slice(start, size) for start in range(0, rows.num_rows, size)]
        lower = 0
        for at, part in enumerate(parts, time - len(parts) + 1):
            outcome = await self.append([ShardWrite(id, lower, at + 1, at_time(part, at))])
            assert isinstance(outcome, Appended), outcome
            lower = at + 1

    async def append_at(
        self, write: WriteCapability, updates: pa.Table, frontier: Timestamp
    ) -> WriteCapability | UpperMismatch:
        """Append all updates from the capability's frontier to `frontier`, durably.

        Returns the capability downgraded to `frontier`; after EMPTY nothing is ever written again.
        Raises InvalidCapability, and InternalError unless there are updates and all are in that
        interval.
        """
        shard = self._shard(write.id)
        outcome = await self.append(
            [ShardWrite(write.id, write.frontier, frontier, updates, write.token)]
        )
        if isinstance(outcome, UpperMismatch):
            return outcome
        shard.capabilities.advance(write.token, frontier)
        return downgraded(write, frontier)

    async def _wait_for_compaction(self) -> None:
        while (
            len(self._wal.segments) > SEGMENTS_BEHIND
            and self._compacter.segments_behind > SEGMENTS_BEHIND
            and self._compacter.running
        ):
            if self._compacter.full is not None:
                raise DiskFull("more before what is there has been compacted")
            if self._ending:
                raise AdminShutdown
            await self._compacter.progress()

    def _piggybacked_entries(self) -> list[Entry]:
        is_due = self._piggybacked.due <= asyncio.get_running_loop().time()
        return self._piggybacked.entries() if is_due else []

    def _appended(self, writes: list[tuple[Shard, ShardWrite]]) -> None:
        listened: list[tuple[Shard, Timestamp, pa.Table | FewUpdates]] = []
        for shard, write in writes:
            shard.in_flight -= 1
            updates = write.updates
            if shard.listens:
                listened.append((shard, write.upper, updates))
                if shard.shared is not None:
                    shard.shared.has_news = True
            shard.add(self._wal.number, write.upper, updates)
            self._compacter.unsealed[shard.id] = shard
        for each in listened:  # only now, so that a listener finds all writes in place
            each[0].publish(*each[1:])
        for shard, _ in writes:
            shard.catch_up()  # it may have been advanced meanwhile
            self._end_writers(shard)

    def _refused(self, shards: Iterable[Shard]) -> None:
        for shard in shards:
            shard.cancel_write()

    def advance(self, ids: Iterable[GlobalId], upper: Timestamp, token: str | None = None) -> None:
        """Advance the uppers of shards to at least `upper`, without appending anything.

        This is in memory only: after a restart, uppers may be back at their last logged values.
        Raises InvalidCapability if a token is given and does not give the right to write.
        """
        shards = self._shards
        for id in ids:
            shard = shards.get(id)
            if shard is None:
                if id in self._dropped:
                    continue  # the caller does not know of the drop yet
                raise UndefinedObject(f'shard "{id}" does not exist')
            if token is not None:
                shard.capabilities.check_write(token, shard.upper)
            shard.advance(upper)
            self._piggybacked.advanced(shard)
            self._end_writers(shard)

    def _end_writers(self, shard: Shard) -> None:
        """End the write capabilities of a complete shard, which are of no use.

        This is not logged: after a restart, no capability is issued for such a shard.
        """
        if shard.upper == EMPTY:
            self._expiry.forget(shard.capabilities.end_writers())

    def log_uppers_soon(self) -> None:
        """Log all current uppers with the next record."""
        self._piggybacked.log_uppers_soon()

    def share_upper(self, id: GlobalId, shared: SharedUpper) -> None:
        """Attach the shard to `shared`. Only the caller may append beyond it.

        In memory only, as `advance`.
        """
        self._shared.add(shared)
        self._shard(id).share_upper(shared)

    def hurry(self, upper: Timestamp) -> None:
        """Let listens hear at once that shards have advanced up to `upper`: somebody waits."""
        for shared in self._shared:
            shared.hurry(upper)

    def unshare_upper(self, id: GlobalId) -> None:
        """Detach the shard, if it still exists, from its shared upper."""
        if (shard := self._shards.get(id)) is not None:
            shard.unshare_upper()
            self._piggybacked.advanced(shard)

    def set_wait_for_room(self, wait: bool) -> None:
        """Set whether entries that cannot be refused wait while the disk is full.

        They wait while the environment runs. During start and shutdown no one would make room, so
        callers get DiskFull: the environment cannot continue without these entries.
        """
        self._wal.waits_for_room = wait

    def stop_waiting(self) -> None:
        """Stop all waiting for disk space and for compaction, because shutdown has begun."""
        self.set_wait_for_room(False)
        self._ending = True
        self._compacter.wake_waiting()

    async def _wait_in_flight(self) -> None:
        """Wait for writes in flight, so that no answer depends on a write that is not durable."""
        if any(shard.in_flight for shard in self._shards.values()):
            await self._wal.log([], lambda: None, refuse=lambda: None)

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

    def amounts(self) -> Amounts:
        """Return how much there is, as far as known without opening files."""
        shards = [shard for shard in self._shards.values() if not shard.dropping]
        return Amounts(
            shards=len(shards),
            files=sum(len(shard.batches) for shard in shards),
            bytes=sum(batch.bytes for shard in shards for batch in shard.batches),
            tail_bytes=sum(shard.tail_bytes() for shard in shards),
            segments=len(self._wal.segments),
            segments_behind=self._compacter.segments_behind,
            rounds=self._compacter.rounds,
            failing_shards=len(self._compacter.retries),
        )

    async def settle(self) -> None:
        """Seal the log and wait until all of it is in batches; for tests and tools."""
        await self._wal.seal()
        await self._compacter.settle()
