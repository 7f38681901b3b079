"""The write-ahead log: all acknowledged changes, in one order for all shards.

    append(entry)  ──►  pending  ──►  one record, one fsync  ──►  entry.apply(), in order
                        (the next group gathers while the last one is being synced)

Entries that are pending when the log becomes free go into one record and become durable together:
this is the group commit. Synced entries are applied on the event loop in log order, and only then
acknowledged. A callback hands a record to the thread, and another one applies its entries; the task
(`run`) does what has to wait for consensus or for a new segment. Consensus lists all files of the
log, sealed ones with length and checksum, so that a missing or exchanged file is detected.

If the disk has no room for a record, the partial record is cut off and the log is unchanged.
Appends of data are then refused, together with everything pending, which was requested on top of
them. Entries that cannot be undone, such as the end of a capability or the drop of a shard, stay
pending until there is room.

After any other failed write, and after a failed fsync, the contents of the file are unknown. The
log then ends: every pending and later entry fails with the error. A restart, which reads the file
again, is needed to continue.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

import msgspec

from foreshore import blocking
from foreshore.errors import DatabaseError, DataCorrupted, OutOfDisk, Unavailable, is_disk_full
from foreshore.failpoint import reached
from foreshore.ids import GlobalId
from foreshore.storage.blob import sync_file
from foreshore.storage.consensus import Consensus
from foreshore.storage.epoch import FENCE, Fence, Register, State
from foreshore.storage.fault import DiskFull, Indeterminate, Unwritable, writing
from foreshore.storage.garbage import Garbage
from foreshore.storage.record import (
    Closing,
    Event,
    NotEncoded,
    Opening,
    ShardWrite,
    encode_statement,
    encoded,
    shards_of,
)
from foreshore.storage.segment import (
    Contents,
    Kind,
    SegmentWriter,
    has_records,
    read_segment,
    segment_name,
)

logger = logging.getLogger(__name__)

LOG_KEY = "log"
SEGMENT_BYTES = 32 << 20
SEGMENT_RECORDS = 20_000  # bounds the time to read a segment back, however small the records
RETRY_SECONDS = 1.0  # between checks for free space
COMPLAINT_SECONDS = 60.0  # between messages about a full disk
_SEGMENT = re.compile(r"\d{12}-\d{6,}\.log", re.ASCII)


class SegmentInfo(msgspec.Struct, frozen=True):
    """A segment as the log's state lists it."""

    number: int
    epoch: int
    length: int | None = None  # None: open
    checksum: int | None = None

    @property
    def sealed(self) -> tuple[int, int] | None:
        """Return length and checksum, None while it is open."""
        if self.length is None or self.checksum is None:
            return None
        return self.length, self.checksum


class LogState(State, frozen=True, kw_only=True):
    """The segments of the log, oldest first; only the last may be open."""

    segments: tuple[SegmentInfo, ...] = ()


Ended: TypeAlias = Callable[[DatabaseError | None], None]


class Entry(msgspec.Struct, eq=False):
    """An entry that becomes durable in one piece, and the callbacks that follow.

    `ended` is called after `apply`, or with the error of an entry that has failed. `refuse` is
    called when there is no room for the entry; None: it stays pending until there is.
    """

    content: Event | Sequence[ShardWrite]
    apply: Callable[[], None]
    ended: Ended | None = None  # None: the entry is piggybacked and has no waiter
    refuse: Callable[[], None] | None = None


class Wal:
    """The log of one environment. Its methods belong on the event loop; one thread does the I/O.

    `piggybacked` returns piggybacked entries, which have no waiters, whenever a record is written.
    Unless `waits_for_room`, entries that stay pending while the disk is full fail with the error.
    """

    def __init__(
        self,
        directory: Path,
        scratch: Path,
        consensus: Consensus,
        garbage: Garbage,
        epoch: int,
        *,
        segment_bytes: int = SEGMENT_BYTES,
        segment_records: int = SEGMENT_RECORDS,
    ) -> None:
        self.epoch = epoch
        self.failure: DatabaseError | None = None
        self.waits_for_room = False
        self._complain_at = 0.0
        self._directory = directory
        self._scratch = scratch
        self._garbage = garbage
        self._register = Register(consensus, LOG_KEY, LogState)
        self._segment_bytes = segment_bytes
        self._segment_records = segment_records
        self._executor = blocking.OneThread("log")
        self._fence: Fence | None = None
        self._segment: SegmentWriter | None = None
        self._saved = 0  # bytes saved by compression
        self._before: tuple[SegmentInfo, ...] | None = None  # while no state lists it
        self._pending: list[Entry] = []
        self._piggybacked: Callable[[], list[Entry]] = list
        self._in_flight: list[Entry] | None = None  # of a record that no task waits for
        self._is_parked = False  # the task waits until it is woken
        self._is_asked = False  # for another record, while one is in flight
        self._trouble: BaseException | None = None  # with such a record: the task raises it
        self._wake = asyncio.Event()
        self._closing = False
        self._sealing: list[asyncio.Future[None]] = []
        self._changing = asyncio.Lock()  # serializes changes of the log's state

    @property
    def segments(self) -> tuple[SegmentInfo, ...]:
        """Return the segments of the log, oldest first."""
        assert self._register.value is not None
        return self._register.value.segments

    @property
    def number(self) -> int:
        """Return the number of the segment being written."""
        assert self._segment is not None
        return self._segment.number

    async def recover(self) -> list[tuple[SegmentInfo, Contents]]:
        """Take the log over from earlier epochs and read it."""
        state = await self._register.claim(self.epoch, LogState(epoch=self.epoch))
        assert state is not None
        reached("log.claimed")
        try:
            found = await blocking.run(self._executor, self._raise_fence_and_read, state)
        except OSError as error:
            raise Indeterminate(f"the log cannot be read or made durable: {error}") from error
        for segment, contents in found:
            if contents.torn:
                logger.warning(
                    "torn tail of the log cut off",
                    extra={
                        "file": segment_name(segment.number, segment.epoch),
                        "offset": contents.length,
                        "bytes": contents.torn,
                    },
                )
        sealed = tuple(
            msgspec.structs.replace(segment, length=contents.length, checksum=contents.checksum)
            for segment, contents in found
        )
        # Not yet written to consensus: `start` seals the last segment and adds the new one at once.
        self._register.value = msgspec.structs.replace(state, segments=sealed)
        return found

    def _raise_fence_and_read(self, state: LogState) -> list[tuple[SegmentInfo, Contents]]:
        self._fence = Fence(self._directory / FENCE, self.epoch)
        for path in unlisted_segments(self._directory, state.segments, self.epoch):
            with suppress(FileNotFoundError):  # a later owner of the log has removed it
                check_unlisted(path, state.segments)
        found = []
        for info in state.segments:
            path = self._directory / segment_name(info.number, info.epoch)
            if info.sealed is None:  # it counts from now on and may not have been synced
                with suppress(FileNotFoundError):
                    sync_file(path)
            found.append((info, read_segment(path, info.number, info.epoch, info.sealed)))
        return found

    async def start(self, opening: Opening) -> None:
        """Begin the first segment of this epoch and remove files that are not part of the log.

        Every earlier segment is sealed with the length that `recover` read.
        """
        number = self.segments[-1].number + 1 if self.segments else 1
        self._segment = await blocking.run(self._executor, self._create, number, opening)
        self._before = self.segments
        await self._list()
        reached("segment.listed")
        await self._garbage.collect(await blocking.run(self._executor, self._unlisted_segments))

    async def log(
        self,
        content: Event | Sequence[ShardWrite],
        apply: Callable[[], None],
        refuse: Callable[[], None] | None = None,
    ) -> None:
        """Make an entry durable with the next record, as `append` does, and apply it."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.append(Entry(content, apply, partial(_complete, done), refuse))
        await done

    def append(self, entry: Entry, *, at_once: bool = False) -> None:
        """Make the entry durable with the next record.

        That begins `at_once` if the log is free, else once others have had time to join it.
        """
        if self.failure is not None:
            raise self.failure.with_traceback(None)
        if self._closing:
            raise Unavailable("the storage is shutting down", sqlstate="57P01")
        self._pending.append(entry)
        if at_once and self._in_flight is None and not self._wake.is_set() and self._may_begin():
            self._begin()
        else:
            self._ask()

    def wake(self) -> None:
        """Write a record now, even if there are only piggybacked entries."""
        self._ask()

    def _ask(self) -> None:
        """Ask for another record; while one is in flight, for one after it."""
        if self._in_flight is None:
            self._wake.set()
        else:
            self._is_asked = True

    async def seal(self) -> None:
        """Write pending entries and begin a new segment."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sealing.append(done)
        self._ask()
        await done

    def close(self) -> None:
        """Let `run` end after the pending entries have been written."""
        self._closing = True
        self._ask()

    async def run(
        self,
        piggybacked: Callable[[], list[Entry]],
        opening: Callable[[], Opening],
        sealed: Callable[[], None],
    ) -> None:
        """Write appended entries until `close`; call `sealed` after each new segment."""
        self._piggybacked = piggybacked
        try:
            while not (self._closing and not self._pending and not self._wake.is_set()):
                self._is_parked = True
                await self._wake.wait()
                self._is_parked = False
                self._wake.clear()
                if self._trouble is not None:
                    raise self._trouble
                group = self._gathered()
                if group:
                    await self._write_group(group)
                asked, self._sealing = self._sealing, []
                try:
                    if await self._start_segment_if_due(opening, asked=bool(asked)):
                        sealed()
                except DiskFull as error:
                    for done in asked:
                        _complete(done, error)
                else:
                    for done in asked:
                        _complete(done)
            try:
                if self._before is None:  # otherwise the segment may hold only its Opening
                    await self._end(opening())
            except DiskFull:  # the Closing repeats what the segment holds anyway
                logger.warning("no room for the end of the log's segment")
        except DatabaseError as error:
            self._fail(error)
        except OSError as error:
            # This must not be `OutOfDisk`: the write may have happened.
            sqlstate = "53100" if is_disk_full(error) else "58030"
            message = f"could not write to the log: {error.strerror}"
            self._fail(Unavailable(message, sqlstate=sqlstate))
        except BaseException:
            self._fail(Unavailable("the log has ended", sqlstate="57P01"))
            raise

    def _gathered(self) -> list[Entry]:
        """Remove and return the entries of the next record."""
        group = [*self._pending, *self._piggybacked()]  # downgrades follow earlier grants
        self._pending = []
        return group

    async def _write_group(self, group: list[Entry]) -> None:
        try:
            await self._list()
            await blocking.run(self._executor, self._write, [entry.content for entry in group])
        except DiskFull as error:
            self._refuse(group, error)
            return
        except NotEncoded as error:
            self._refuse_unwritable(group, error)
            return
        except BaseException:
            self._pending = group + self._pending
            raise
        _apply(group)

    # --- records that no task waits for

    def _may_begin(self) -> bool:
        """Whether nothing but to write is to be done, so that the task need not wake."""
        return (
            self._is_parked
            and self._before is None
            and not (self._closing or self._sealing)
            and not self._full()
        )

    def _begin(self) -> None:
        """Hand what is pending to the thread as one record."""
        group = self._gathered()
        if group:
            self._in_flight = group
            work = partial(self._write, [entry.content for entry in group])
            blocking.call(self._executor, work, self._written)

    def _written(self, _: None, error: BaseException | None) -> None:
        """Apply the entries of the record in flight, and go on."""
        group = self._in_flight
        if group is None:  # the task was cancelled meanwhile
            return
        try:
            if isinstance(error, DiskFull):
                self._refuse(group, error)
            elif isinstance(error, NotEncoded):
                self._refuse_unwritable(group, error)
            elif error is not None:
                self._pending = group + self._pending
                self._trouble = error
            else:
                _apply(group)
        except Exception as trouble:
            self._trouble = trouble
        self._in_flight = None
        is_asked, self._is_asked = self._is_asked, False
        if self._trouble is None and is_asked and self._may_begin():
            self._begin()
        elif self._trouble is not None or is_asked or self._full():
            self._wake.set()

    def _refuse(self, group: list[Entry], error: DiskFull) -> None:
        """Refuse the entries of a group and all entries after it."""
        now = asyncio.get_running_loop().time()
        if now >= self._complain_at:
            self._complain_at = now + COMPLAINT_SECONDS
            logger.error("no room in the log, writes are refused: %s", error)
        waiting = []
        for entry in reversed([*group, *self._pending]):  # each builds on the previous one
            if entry.refuse is not None:
                entry.refuse()
            elif not self._closing:
                waiting.append(entry)
                if self.waits_for_room:
                    continue
            if entry.ended is not None:
                entry.ended(error)
        self._pending = waiting[::-1]
        if waiting:
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._ask)

    def _refuse_unwritable(self, group: list[Entry], error: NotEncoded) -> None:
        """Refuse the entries of a group that cannot be encoded, and later ones of their shards."""
        if any(group[place].refuse is None for place in error.places):
            self._pending = [*group, *self._pending]
            raise error
        wrong = {id(group[place]) for place in error.places}
        refused, kept = [], []
        tainted: set[GlobalId] = set()
        for entry in (*group, *self._pending):
            shards = shards_of(entry.content)
            if id(entry) in wrong or (entry.refuse is not None and not shards.isdisjoint(tainted)):
                refused.append(entry)
                tainted |= shards
            else:
                kept.append(entry)
        self._pending = kept
        for entry in reversed(refused):  # each builds on the previous one
            assert entry.refuse is not None
            entry.refuse()
            if entry.ended is not None:
                entry.ended(Unwritable(f"the write cannot be encoded: {error}"))
        logger.error("a write cannot be encoded and is refused", exc_info=error.__cause__)
        self._ask()

    def _write(self, contents: list[Event | Sequence[ShardWrite]]) -> None:
        assert self._segment is not None
        try:
            payload, saved = encoded(contents, self._scratch)
        except OutOfDisk as error:
            raise DiskFull("to the log") from error
        self._segment.write(Kind.GROUP, payload)
        self._saved += saved
        reached("log.synced")
        self.check_fence()

    def check_fence(self) -> None:
        """Raise Fenced if another environment has taken the log over; reads a file."""
        assert self._fence is not None
        self._fence.check()

    def lose(self) -> None:
        """Fail at the next write, as another environment owns the data."""
        assert self._fence is not None
        self._fence.lose()

    def _full(self) -> bool:
        assert self._segment is not None
        # Uncompressed, because its updates stay in memory until they are in batches.
        return (
            self._segment.length + self._saved >= self._segment_bytes
            or self._segment.records >= self._segment_records
        )

    async def _start_segment_if_due(self, opening: Callable[[], Opening], *, asked: bool) -> bool:
        """Begin a new segment if this one is full, or if asked; return whether it did.

        Raises DiskFull if there is no room for it, or for it in the log's state. Until there is
        room, the current segment is used if possible.
        """
        await self._list()
        assert self._segment is not None
        if not self._full() and not (asked and self._segment.records > 1):
            return False
        stated = opening()
        follower = await blocking.run(
            self._executor, self._create, self._segment.number + 1, stated
        )
        try:
            self._before = await self._end(stated)
        except DiskFull:
            await blocking.run(self._executor, follower.discard)
            raise
        self._segment = follower
        self._saved = 0
        await self._list()
        return True

    async def _end(self, opening: Opening) -> tuple[SegmentInfo, ...]:
        """Write the Closing of the segment; return the segments with it sealed."""
        segment = self._segment
        assert segment is not None
        closing = Closing(tuple((shard.id, shard.upper) for shard in opening.shards))
        await blocking.run(self._executor, segment.write, Kind.CLOSING, encode_statement(closing))
        segment.close()
        reached("segment.closed")
        self._segment = None
        info = SegmentInfo(segment.number, self.epoch, segment.length, segment.checksum)
        return (*self.segments[:-1], info)

    async def _list(self) -> None:
        """Add the segment to the log's state, if it is not listed yet."""
        if self._before is None:
            return
        async with self._changing:
            await self._register.settle()
            present = {info.number for info in self.segments}
            kept = tuple(info for info in self._before if info.number in present)
            listed = (*kept, SegmentInfo(self.number, self.epoch))
            await self._register.change_with_retry(LogState(epoch=self.epoch, segments=listed))
            self._before = None

    def _create(self, number: int, opening: Opening) -> SegmentWriter:
        with writing("a segment of the log"):
            segment = SegmentWriter(self._directory, number, self.epoch)
            reached("segment.made")
            try:
                segment.write(Kind.OPENING, encode_statement(opening))
            except BaseException:
                segment.discard()
                raise
        reached("segment.opened")
        return segment

    async def remove(self, through: int) -> None:
        """Remove the segments up to number `through`, whose contents are in batches."""
        async with self._changing:
            assert through < self.segments[-1].number, (through, self.segments)
            gone = [info for info in self.segments if info.number <= through]
            await self._register.settle()
            kept = tuple(info for info in self.segments if info.number > through)
            if not gone:
                return
            await self._register.change(LogState(epoch=self.epoch, segments=kept))
            reached("segment.unlisted")
        await self._garbage.collect(f"log/{segment_name(i.number, i.epoch)}" for i in gone)

    def _unlisted_segments(self) -> list[str]:
        """Return segment files left by earlier epochs that the log does not list."""
        found = unlisted_segments(self._directory, self.segments, self.epoch)
        return [f"log/{path.name}" for path in found]

    def _fail(self, failure: DatabaseError) -> None:
        logger.error("the log has failed, nothing more is written", exc_info=failure)
        self.failure = failure
        if self._in_flight is not None:  # what is known of it comes too late
            self._pending = self._in_flight + self._pending
            self._in_flight = None
        pending, self._pending = self._pending, []
        for entry in pending:
            if entry.ended is not None:
                entry.ended(failure)
        for done in self._sealing:
            _complete(done, failure)
        self._sealing = []

    def shut(self) -> None:
        """Close the files."""
        if self._segment is not None:
            self._segment.close()
        if self._fence is not None:
            self._fence.close()
        self._executor.shutdown(wait=True)


def unlisted_segments(directory: Path, listed: Sequence[SegmentInfo], epoch: int) -> list[Path]:
    """Return the unlisted segments in the log's directory that were begun before `epoch`.

    Files whose names are not segment names are ignored.
    """
    names = {segment_name(info.number, info.epoch) for info in listed}
    return [
        path
        for path in directory.glob("*-*.log")
        if path.name not in names and _SEGMENT.fullmatch(path.name) and _numbers(path)[1] < epoch
    ]


def check_unlisted(path: Path, listed: Sequence[SegmentInfo]) -> None:
    """Raise DataCorrupted if the unlisted segment was once listed and never removed.

    A segment is listed before more than its Opening is written to it, and segments are removed
    oldest first. So consensus has lost recent changes.
    """
    if (not listed or _numbers(path)[0] >= listed[0].number) and has_records(path):
        raise DataCorrupted(f'the log has "{path.name}", of which consensus knows nothing')


def _numbers(path: Path) -> tuple[int, int]:
    """Return the number and the epoch of a segment's file."""
    number, _, epoch = path.stem.partition("-")
    return int(number), int(epoch)


def _apply(group: Sequence[Entry]) -> None:
    """Apply the entries of a record that is durable, and acknowledge them."""
    for entry in group:
        entry.apply()
        reached("log.applied")
        if entry.ended is not None:
            entry.ended(None)


def _complete(done: asyncio.Future[None], error: DatabaseError | None = None) -> None:
    """Complete the future, unless its caller was cancelled."""
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
