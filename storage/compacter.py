"""The compacter: turns the log into batches and merges small batches.

    a sealed segment of the log   ──►  a batch for each shard with updates in it
    small neighbouring batches    ──►  one batch, consolidated up to since

The sizes of a trace's batches fall geometrically from the oldest to the newest, so an update is
rewritten a logarithmic number of times. Times that since has passed are consolidated, so a trace
grows with its distinct live rows, not with the number of updates.

The order of steps makes it safe to die between any two of them. A file is stored before a state
names it, and removed only after a state without it was surely committed. A log segment is removed
when states name batches with all of its contents. Files that no state names are removed at the next
start. All deletions go through `garbage.py`, which keeps files that a lease file protects.

A round looks at shards in which there may be something to do: those with updates that are not in
batches, if a segment was sealed, and those with new batches or a later since.

A shard whose compaction fails because of its own data is retried later, and the log segments that
it still needs are kept. All other shards are compacted as usual.
"""

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, takewhile
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from foreshore import blocking
from foreshore.errors import DataCorrupted, Fenced, Unavailable
from foreshore.failpoint import reached
from foreshore.ids import GlobalId, number_of
from foreshore.storage.batch import BatchMetadata, read_batch, write_batch
from foreshore.storage.blob import Blob
from foreshore.storage.compaction_errors import affects_all_shards, find_disk_full
from foreshore.storage.consensus import Consensus
from foreshore.storage.consolidate import Databases, consolidate, merge
from foreshore.storage.corruption import Corruptions
from foreshore.storage.epoch import Register
from foreshore.storage.fault import Determinate, DiskFull, Indeterminate
from foreshore.storage.garbage import Garbage
from foreshore.storage.lease import Leases
from foreshore.storage.local_files import LocalFiles
from foreshore.storage.merging import due_for_merging
from foreshore.storage.shard import Shard
from foreshore.storage.spilled_runs import remove_leftovers
from foreshore.storage.trace import (
    KEYS,
    Batch,
    TraceState,
    id_of,
    key_of,
    with_batch,
    with_merged,
)
from foreshore.storage.wal import Wal
from foreshore.update import Timestamp

logger = logging.getLogger(__name__)

_KEY = re.compile(r"[ust][0-9]+/(?P<epoch>[0-9]+)-[0-9]+\.parquet")

RETRY_SECONDS = 1.0
MAX_RETRY_SECONDS = 60.0
MAX_RETRY_SECONDS_FULL = 10.0  # an operator is expected to make room
WORTH_SEALING = 8 << 20  # bytes of sealed segments, or of their updates in memory
MANY = 8  # sealed segments
CLAIMED_AT_ONCE = 256  # states of shards at a start
MERGED_BYTES = 4 << 20  # in memory at once, over all batches of a merge


class Merger(Protocol):
    """Merges batches elsewhere, as `consolidate.merge` does."""

    def is_for(self, batches: Sequence[Batch]) -> bool:
        """Whether it merges batches of this size."""
        ...

    def merged(
        self, paths: Sequence[str], schema: pa.Schema, since: Timestamp, scratch: Path
    ) -> Iterator[pa.RecordBatch]:
        """Yield the consolidated updates of batches' files as of `since`, sorted.

        If it cannot, it raises Unavailable before the first.
        """
        ...


# A shard, the register of its state, and the state that it has if there is none.
_Claim = tuple[GlobalId, Register[TraceState], TraceState | None]
# Yields a shard's sorted updates as of a since. Arguments: schema, since, scratch directory.
Consolidated = Callable[[pa.Schema, Timestamp, Path], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True)
class _Retry:
    """When to retry a failed shard: the pause in seconds, and the loop time of the next attempt."""

    pause: float
    at: float


class Compacter:
    """Compacts the shards of one environment, in its own task and on its own thread."""

    def __init__(
        self,
        blob: Blob,
        files: LocalFiles,
        garbage: Garbage,
        consensus: Consensus,
        epoch: int,
        scratch: Path,
        shards: Mapping[GlobalId, Shard],
        wal: Wal,
        merger: Merger | None = None,
    ) -> None:
        self.leases = Leases(self._delete)
        self.corruptions = Corruptions()
        self.full: DiskFull | None = None  # set while compaction waits for disk space
        self._blob = blob
        self._files = files
        self._garbage = garbage
        self._consensus = consensus
        self._epoch = epoch
        self._scratch = scratch
        self._databases = Databases(scratch)
        self._shards = shards
        self._wal = wal
        self._merger = merger
        self._registers: dict[GlobalId, Register[TraceState]] = {}
        self._to_drop: set[GlobalId] = set()
        self._numbers = count(1)
        self._executor = blocking.background("compacter")
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._round = asyncio.Event()
        self._stop = asyncio.Event()
        self._asked = False
        self._through = 0  # the last segment processed
        self.unsealed: dict[GlobalId, Shard] = {}  # those that may have a tail
        self._looked_for: set[GlobalId] = set()  # shards in which there may be something to do
        self.retries: dict[GlobalId, _Retry] = {}  # of shards whose compaction failed
        self._closing = False
        self._running, self.rounds = False, 0  # rounds that have ended well
        self._deleting: set[asyncio.Task[None]] = set()

    async def recover(self) -> dict[GlobalId, TraceState]:
        """Take the traces over from earlier epochs and return them.

        Raises DataCorrupted for a corrupt state.
        """
        found: dict[GlobalId, TraceState] = {}
        claims: list[_Claim] = []
        for key, head in (await self._consensus.heads(KEYS)).items():
            register = Register(self._consensus, key, TraceState)
            state = register.found(head)
            assert state is not None
            if state.dropped:  # a dropped state is final
                state.check()
                found[id_of(key)] = state
            else:
                claims.append((id_of(key), register, None))
        return found | await self._claim(claims)

    async def claim(self, shards: Iterable[Shard]) -> dict[GlobalId, TraceState]:
        """Claim the shards of earlier epochs that have no state; return the states found.

        Otherwise an older environment could still name the first batch of such a shard. It may have
        done so before the claim.
        """
        return await self._claim(
            [
                (
                    shard.id,
                    Register(self._consensus, key_of(shard.id), TraceState),
                    self._empty(shard),
                )
                for shard in shards
            ]
        )

    async def _claim(self, claims: Sequence[_Claim]) -> dict[GlobalId, TraceState]:
        """Claim registers, whose heads have been read, many at once; return their states."""
        traces: dict[GlobalId, TraceState] = {}
        for start in range(0, len(claims), CLAIMED_AT_ONCE):
            part = claims[start : start + CLAIMED_AT_ONCE]
            claimed = await asyncio.gather(
                *(
                    register.claim(self._epoch, initial, is_read=True)
                    for _, register, initial in part
                ),
                return_exceptions=True,
            )
            for (id, register, _), state in zip(part, claimed, strict=True):
                if isinstance(state, BaseException):
                    raise state
                assert state is not None
                state.check()
                reached("trace.claimed")
                self._registers[id] = register
                traces[id] = state
        return traces

    async def clean(self, traces: Iterable[TraceState]) -> None:
        """Check that the files named by states exist, and remove files left by earlier epochs."""
        states = list(traces)
        await self._garbage.collect(await blocking.run(self._executor, self._check, states))

    def _check(self, states: Sequence[TraceState]) -> list[str]:
        """Check the files named by states; return files of earlier epochs that no state names.

        A missing or wrong file is corruption of its shard. Contents are checked when they are read.
        """
        self._scratch.mkdir(parents=True, exist_ok=True)
        remove_leftovers(self._scratch)
        sizes = dict(self._blob.list(""))
        for state in states:
            with (
                contextlib.suppress(DataCorrupted),
                self.corruptions.recording(state.id),
                self._files.detecting_takeover(),
            ):
                check_sizes(state.batches, sizes)
        named = {batch.key for state in states for batch in state.batches}
        forms = {key: form for key in sizes if (form := _KEY.fullmatch(key)) and key not in named}
        return [f"blob/{key}" for key, form in forms.items() if int(form["epoch"]) < self._epoch]

    def drop(self, id: GlobalId) -> None:
        """Record in consensus that the shard was dropped, and release its files."""
        self._to_drop.add(id)
        self.retries.pop(id, None)  # which is of its batches
        self._wake.set()

    @property
    def dropping(self) -> tuple[GlobalId, ...]:
        """Return the dropped shards that are not yet recorded in consensus."""
        return tuple(self._to_drop)

    def wake(self) -> None:
        """Look for work after a segment was sealed."""
        self._idle.clear()
        self._wake.set()

    def look_at(self, ids: Iterable[GlobalId]) -> None:
        """Look for work in these shards, whose since has advanced."""
        self._looked_for.update(ids)
        self.wake()

    async def settle(self) -> None:
        """Compact all that is sealed, and wait until there is nothing to do."""
        self._asked = True
        self.wake()
        await self._idle.wait()

    @property
    def running(self) -> bool:
        """Whether `run` is active."""
        return self._running

    @property
    def segments_behind(self) -> int:
        """Return how many segments have not been processed by a round of compaction."""
        return sum(segment.number > self._through for segment in self._wal.segments)

    async def progress(self) -> None:
        """Wait until a round ends, or there is no room for it, or `wake_waiting` is called."""
        await self._round.wait()

    def wake_waiting(self) -> None:
        """Wake the callers of `progress`."""
        self._round.set()
        self._round.clear()

    def close(self) -> None:
        """Let `run` end soon: what it writes is given up, and is written after the next start."""
        self._closing = True
        self._databases.interrupt()
        self._stop.set()
        self._wake.set()

    async def shut(self) -> None:
        """Wait for work on threads."""
        if self._deleting:
            await asyncio.gather(*self._deleting, return_exceptions=True)
        self._executor.shutdown(wait=True)
        self._databases.close()

    async def run(self) -> None:
        """Compact until `close`."""
        self._running = True
        try:
            await self._run()
        finally:
            self._running = False
            self._idle.set()
            self._round.set()

    async def _run(self) -> None:
        pause = RETRY_SECONDS
        while not self._closing:
            try:
                await self._work()
                self.rounds += 1
                self.full = None
                self.wake_waiting()
            except Fenced:
                logger.warning("compaction has ended, another environment owns the data")
                return
            except Exception as error:
                if self._closing:
                    return
                longest = MAX_RETRY_SECONDS
                if (full := find_disk_full(error)) is not None:
                    self._report_full(full)
                    longest = MAX_RETRY_SECONDS_FULL
                else:
                    logger.error("compaction failed, will be retried", exc_info=error)
                self._asked = True
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._stop.wait()
                pause = min(2 * pause, longest)
                continue
            pause = RETRY_SECONDS
            if not self._wake.is_set() and not self.retries:
                self._idle.set()
            with contextlib.suppress(TimeoutError):
                next_retry = min((retry.at for retry in self.retries.values()), default=None)
                async with asyncio.timeout_at(next_retry):
                    await self._wake.wait()
            self._wake.clear()

    def _report_full(self, full: DiskFull) -> None:
        """Record that there is no room for compaction, and wake the callers of `progress`."""
        if self.full is None:
            logger.error("no room for compaction, will be retried: %s", full)
        self.full = full
        self.wake_waiting()

    async def _work(self) -> None:
        """Do all work that is due; shards that fail are put off."""
        for id in tuple(self._to_drop):
            if not self._is_put_off(id):
                await self._put_off_if_it_fails(id, self._write_tombstone(id))
        for id in self.retries.keys() - self._shards.keys() - self._to_drop:
            del self.retries[id]
        through = self._due()
        looked_for = self._take_looked_for(through)
        while looked_for:
            if self._closing:
                return
            shard = self._shards.get(looked_for[-1])
            if shard is not None and not self._is_put_off(shard.id):
                try:
                    await self._put_off_if_it_fails(shard.id, self._compact(shard, through))
                except Exception:
                    self._looked_for.update(looked_for)
                    raise
            looked_for.pop()
        self._through = through
        if self._wal.segments[0].number <= through:
            await blocking.run(self._executor, self._garbage.check_owner)
            await self._wal.remove(self._first_unsealed(through) - 1)

    def _take_looked_for(self, through: int) -> list[GlobalId]:
        """Return the shards in which to look for work, the first one last."""
        found, self._looked_for = self._looked_for, set()
        if through > self._through:
            found.update(self.unsealed)
        found.update(self.retries)
        return sorted(found, key=number_of, reverse=True)

    def _is_put_off(self, id: GlobalId) -> bool:
        retry = self.retries.get(id)
        return retry is not None and asyncio.get_running_loop().time() < retry.at

    async def _put_off_if_it_fails(self, id: GlobalId, work: Awaitable[None]) -> None:
        """Do the work of a shard; raise what concerns all shards or comes with the end."""
        was_dropped = id in self._to_drop
        try:
            await work
        except Exception as error:
            if self._closing or affects_all_shards(error):
                raise
            if id in self._to_drop and not was_dropped:
                logger.info("a dropped shard could not be compacted", extra={"shard": id})
            else:
                self._put_off(id, error)
        else:
            self.retries.pop(id, None)

    def _put_off(self, id: GlobalId, error: Exception) -> None:
        """Retry a shard later, after twice the previous pause."""
        before = self.retries.get(id)
        pause = min(2 * before.pause, MAX_RETRY_SECONDS) if before else RETRY_SECONDS
        self.retries[id] = _Retry(pause, asyncio.get_running_loop().time() + pause)
        logger.error(
            "a shard could not be compacted, will be retried", extra={"shard": id}, exc_info=error
        )

    def _first_unsealed(self, through: int) -> int:
        """Return the first segment with updates not in a batch, or `through + 1`."""
        for id, shard in list(self.unsealed.items()):
            if self._shards.get(id) is not shard or not shard.tail:
                del self.unsealed[id]
        tails = (shard.tail for shard in self.unsealed.values())
        segments = (part.segment for part in chain.from_iterable(tails))
        return min((through + 1, *segments))

    async def _compact(self, shard: Shard, through: int) -> None:
        """Write batches from the segments up to number `through`, then merge small batches."""
        await self._seal(shard, through)
        while not self._closing and (due := self._due_for_merging(shard)):
            with contextlib.suppress(DataCorrupted):  # it has been recorded
                await self._merge(shard, due)

    def _due(self) -> int:
        """Return the number up to which segments should become batches now.

        Small amounts wait: a start reads them quickly, and they would make many small files.
        """
        sealed = [segment for segment in self._wal.segments[:-1] if segment.number > self._through]
        asked, self._asked = self._asked, False
        if not sealed:
            return self._through
        through = sealed[-1].number
        logged = sum(segment.length or 0 for segment in sealed)
        held = sum(
            shard.tail_bytes(through)
            for id, shard in self.unsealed.items()
            if not self._is_put_off(id)
        )
        much = max(logged, held) >= WORTH_SEALING
        return through if asked or much or len(sealed) >= MANY else self._through

    def _due_for_merging(self, shard: Shard) -> tuple[Batch, ...]:
        """Return the batches to merge into one, none for a corrupt shard."""
        return () if self.corruptions.of(shard.id) is not None else due_for_merging(shard)

    async def _write_tombstone(self, id: GlobalId) -> None:
        tombstone = TraceState(epoch=self._epoch, id=id, schema=b"", dropped=True)
        register = self._registers.get(id)
        if register is None:  # an earlier epoch may have changed it since the drop
            register = Register(self._consensus, key_of(id), TraceState)
            await register.claim(self._epoch, tombstone)
        old = register.value
        assert old is not None
        if not old.dropped:
            await self._change(register, tombstone)
        reached("trace.buried")
        self._registers.pop(id, None)
        self._to_drop.discard(id)
        self.leases.condemn(batch.key for batch in old.batches)

    async def _seal(self, shard: Shard, through: int) -> None:
        """Make a batch of the shard's updates in the segments up to number `through`."""
        parts = list(takewhile(lambda part: part.segment <= through, shard.tail))
        if not parts:
            return
        upper = parts[-1].upper
        updates = self._until_closing(
            chain.from_iterable(part.updates.to_batches() for part in parts)
        )
        batch = await self._write(
            shard, shard.sealed, upper, partial(consolidate, updates, databases=self._databases)
        )
        register = self._registers.get(shard.id)
        if register is None:
            register = Register(self._consensus, key_of(shard.id), TraceState)
        new = with_batch(register.value or self._empty(shard), batch)
        reached("batch.stored")
        await self._change(register, new)
        reached("batch.named")
        self._registers[shard.id] = register
        # No await from here to the end: readers see the batch or the tail, never both.
        shard.batches = new.batches
        shard.sealed = upper
        shard.tail = [part for part in shard.tail if part.segment > through]
        self._after(shard)

    async def _merge(self, shard: Shard, batches: tuple[Batch, ...]) -> None:
        """Merge neighbouring batches into one."""
        with self.corruptions.recording(shard.id):
            merged = await self._write(
                shard,
                batches[0].lower,
                batches[-1].upper,
                partial(self._merged, batches),
            )
        register = self._registers[shard.id]
        assert register.value is not None
        new = with_merged(register.value, batches, merged)
        reached("batch.stored")
        await self._change(register, new)
        reached("batch.merged")
        shard.batches = new.batches
        self.leases.condemn(batch.key for batch in batches)
        self._after(shard)

    def _merged(
        self, batches: tuple[Batch, ...], schema: pa.Schema, since: Timestamp, scratch: Path
    ) -> Iterator[pa.RecordBatch]:
        """Yield the consolidated updates of batches: of many bytes elsewhere, if that works."""
        merger = self._merger
        if merger is not None and merger.is_for(batches):
            with self._files.of(batches) as paths:
                parts = merger.merged([str(path) for path in paths], schema, since, scratch)
                try:
                    first = next(parts, None)
                except Unavailable as error:
                    logger.warning("a large merge is done here", exc_info=error)
                else:
                    yield from () if first is None else chain([first], parts)
                    return
        runs = [self._read(batch, schema, MERGED_BYTES // len(batches)) for batch in batches]
        yield from merge(runs, schema, since, scratch, self._databases)

    def _empty(self, shard: Shard) -> TraceState:
        """Return the state of a shard without batches."""
        return TraceState(epoch=self._epoch, id=shard.id, schema=shard.encoded_schema)

    def _after(self, shard: Shard) -> None:
        """Release the files if the shard was dropped meanwhile."""
        if shard.id not in self._shards:
            self.drop(shard.id)

    def _read(self, batch: Batch, schema: pa.Schema, piece_bytes: int) -> Iterator[pa.RecordBatch]:
        pieces = read_batch(self._files, batch, schema, piece_bytes=piece_bytes)
        yield from self._until_closing(pieces)

    async def _write(
        self, shard: Shard, lower: Timestamp, upper: Timestamp, consolidated: Consolidated
    ) -> Batch:
        since = min(shard.durable_since, upper - 1)
        key = f"{shard.id}/{self._epoch:06}-{next(self._numbers):06}.parquet"
        metadata = BatchMetadata(shard.id, lower, upper, since)
        return await blocking.run(
            self._executor,
            partial(
                write_batch,
                self._files,
                key,
                self._scratch / key.replace("/", "-"),
                shard.schema,
                metadata,
                self._until_closing(consolidated(shard.schema, since, self._scratch)),
            ),
        )

    def _until_closing(self, updates: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in updates:
            if self._closing:
                raise Unavailable("compaction was interrupted")
            yield batch

    async def _change(self, register: Register[TraceState], new: TraceState) -> None:
        """Set the state, retrying until the change surely succeeded."""
        while True:
            try:
                await register.change(new)
            except (Determinate, Indeterminate) as error:
                if self._closing:
                    raise
                if isinstance(error, DiskFull):
                    self._report_full(error)
                else:
                    logger.warning(
                        "trace not changed yet", extra={"key": register.key}, exc_info=error
                    )
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def _delete(self, keys: list[str]) -> None:
        collecting = self._garbage.collect([f"blob/{key}" for key in keys])
        task = asyncio.get_running_loop().create_task(collecting)
        self._deleting.add(task)
        task.add_done_callback(self._deleting.discard)


def check_sizes(batches: Iterable[Batch], sizes: Mapping[str, int]) -> None:
    """Raise DataCorrupted for a batch that is missing or has the wrong length."""
    for batch in batches:
        size = sizes.get(batch.key)
        if size is None:
            raise DataCorrupted(f'batch "{batch.key}" is missing')
        if size != batch.bytes:
            raise DataCorrupted(f'batch "{batch.key}" has {size} bytes instead of {batch.bytes}')
