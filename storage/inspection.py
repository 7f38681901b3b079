"""Inspection: reports what a data directory holds and which parts are corrupt.

It owns nothing and changes nothing. The server may be running, and any file may be corrupt. Each
problem becomes a `Corruption` with the file and, if known, the offset; reading continues with the
rest, whatever error a corrupt file causes. A problem counts only if it is still there after reading
the states again, because the compacter may have replaced the file.
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from foreshore.clock import SystemClock
from foreshore.errors import DatabaseError, DataCorrupted
from foreshore.ids import GlobalId
from foreshore.processes.child_environment import child_environment, private_home
from foreshore.storage.batch import read_batch
from foreshore.storage.consolidate import least_multiplicity
from foreshore.storage.directory import (
    CONSENSUS_FILE,
    States,
    batch_files,
    read_log,
    read_states,
)
from foreshore.storage.epoch import FENCE
from foreshore.storage.identity import NAME
from foreshore.storage.lease_file import DIRECTORY, LeaseFile, find_leases
from foreshore.storage.record import Grant
from foreshore.storage.replay import replay
from foreshore.storage.segment import Contents, segment_name
from foreshore.storage.shard import Shard
from foreshore.storage.trace import Batch
from foreshore.storage.wal import SegmentInfo, check_unlisted, unlisted_segments
from foreshore.update import Timestamp, decode_schema, row_schema


@dataclass(frozen=True, slots=True, order=True)
class Corruption:
    """A deviation from what was written."""

    file: str  # within the data directory
    offset: int | None  # in bytes, if known
    message: str


@dataclass(frozen=True, slots=True)
class SegmentReport:
    """A segment of the log; `length` is its valid part."""

    name: str
    sealed: bool
    length: int
    torn: int  # bytes of an unfinished record after it
    records: int


@dataclass(frozen=True, slots=True)
class ShardReport:
    """A shard. `least` and `greatest` are its times, if verified and not empty."""

    id: GlobalId
    since: Timestamp
    upper: Timestamp
    batches: tuple[Batch, ...]
    tail_rows: int
    least: Timestamp | None
    greatest: Timestamp | None
    grants: tuple[Grant, ...]
    schema: pa.Schema  # of the rows


@dataclass(slots=True)
class Inspection:
    """The result of an inspection."""

    states: States | None = None
    segments: list[SegmentReport] = field(default_factory=list)
    shards: list[ShardReport] = field(default_factory=list)
    leases: list[LeaseFile] = field(default_factory=list)  # only live ones
    # Files that no state names, which is not corruption.
    unreferenced: list[str] = field(default_factory=list)
    corruptions: list[Corruption] = field(default_factory=list)
    recovered: dict[GlobalId, Shard] = field(default_factory=dict)  # for reading contents


_Times = tuple[Timestamp, Timestamp] | None

ROUNDS = 20


@dataclass(frozen=True, slots=True)
class BatchCheck:
    """The check of one batch file, in whatever process it runs; `verify` reads all of it."""

    data_dir: str
    batch: Batch
    schema: bytes
    verify: bool = True

    def __call__(self) -> "Checked":
        """Return what was found; never raises."""
        batch, path = self.batch, Path(self.data_dir, "blob", self.batch.key)
        try:
            size = path.stat().st_size
            if size != batch.bytes:
                raise DataCorrupted(
                    f'batch "{batch.key}" has {size} bytes instead of {batch.bytes}',
                    offset=min(size, batch.bytes),
                )
            if not self.verify:
                return Checked(None)
            files = batch_files(Path(self.data_dir))
            return Checked(_range(read_batch(files, batch, decode_schema(self.schema))))
        except FileNotFoundError:
            return Checked(None, f'batch "{batch.key}" is missing')
        except Exception as error:
            offset = getattr(error, "offset", None) or corrupt_offset(path)
            return Checked(None, _said(error), offset)


@dataclass(frozen=True, slots=True)
class Checked:
    """The times in a batch, or what is wrong with its file, and at which offset."""

    times: _Times
    error: str | None = None
    offset: int | None = None


Runner = Callable[[Sequence[BatchCheck]], Sequence[Checked]]


def here(checks: Sequence[BatchCheck]) -> Sequence[Checked]:
    """Run checks in this process."""
    return [check() for check in checks]


def inspect(data_dir: Path, *, verify: bool = False, run: Runner = here) -> Inspection:
    """Return what the data directory holds; `verify` also reads and sums up all updates.

    `run` reads the batches, perhaps in several processes that see the directory.

    What a live server has replaced meanwhile is inspected again; if it never lasts long enough,
    corruption is what each round found. Raises UndefinedFile if there is no data directory. No
    state of a directory makes it raise anything else.
    """
    verified: dict[Batch, _Times] = {}
    rounds: list[set[Corruption]] = []
    for _ in range(ROUNDS):
        found = _Inspector(data_dir, verify, verified, run).inspect()
        rounds.append(set(found.corruptions))
        if found.states is None or not found.corruptions:
            return found
        try:
            again = read_states(data_dir)
        except DataCorrupted:
            return found
        if found.states.log == again.log and found.states.traces == again.traces:
            return found
    lasting = set.intersection(*rounds)
    found.corruptions = [each for each in found.corruptions if each in lasting]
    return found


class _Inspector:
    def __init__(
        self, data_dir: Path, verify: bool, verified: dict[Batch, _Times], run: Runner
    ) -> None:
        self._run = run
        self._dir = data_dir
        self._batches = batch_files(data_dir)
        self._verify = verify
        self._verified = verified
        self._found = Inspection()

    def inspect(self) -> Inspection:
        found = self._found
        self._leases()
        try:
            states = found.states = read_states(self._dir)
        except DataCorrupted as error:
            self._corruption(CONSENSUS_FILE, error)
            return found
        self._identity(states)
        self._fence(states)
        log = self._log(states)
        self._unlisted_segments(states)
        self._check_batches(states)
        if len(log) == len(states.log.segments):
            self._shards(states, log)
        found.unreferenced = sorted(self._files() - states.names())
        found.corruptions.sort(key=lambda corruption: (corruption.file, corruption.offset or 0))
        return found

    def _corruption(self, file: str, error: Exception, offset: int | None = None) -> None:
        if offset is None:
            offset = getattr(error, "offset", None)
        self._found.corruptions.append(Corruption(file, offset, _said(error)))

    def _leases(self) -> None:
        now = SystemClock().now()
        try:
            self._found.leases = [each for each in find_leases(self._dir) if each.lives(now)]
        except OSError as error:
            self._corruption(DIRECTORY, DataCorrupted(f"leases are not readable: {error.strerror}"))

    def _log(self, states: States) -> list[tuple[SegmentInfo, Contents]]:
        log = []
        for segment in states.log.segments:
            name = segment_name(segment.number, segment.epoch)
            try:
                contents = read_log(self._dir, segment)
            except Exception as error:
                self._corruption(f"log/{name}", error)
                continue
            log.append((segment, contents))
            self._found.segments.append(
                SegmentReport(
                    name,
                    segment.sealed is not None,
                    contents.length,
                    contents.torn,
                    len(contents.records),
                )
            )
        return log

    def _unlisted_segments(self, states: States) -> None:
        """Check that the log's directory has no segment missing from consensus."""
        for path in unlisted_segments(self._dir / "log", states.log.segments, states.epoch + 1):
            try:
                check_unlisted(path, states.log.segments)
            except DataCorrupted as error:
                self._corruption(f"log/{path.name}", error)

    def _check_batches(self, states: States) -> None:
        checks = [
            BatchCheck(
                str(self._dir), batch, trace.schema, self._verify and batch not in self._verified
            )
            for trace in states.traces.values()
            for batch in trace.batches
        ]
        for check, found in zip(checks, self._run(checks), strict=True):
            if found.error is not None:
                file = f"blob/{check.batch.key}"
                self._found.corruptions.append(Corruption(file, found.offset, found.error))
            elif check.verify:
                self._verified[check.batch] = found.times

    def _shards(self, states: States, log: list[tuple[SegmentInfo, Contents]]) -> None:
        numbered = [(segment.number, contents) for segment, contents in log]
        try:
            recovered = replay(numbered, states.traces, states.epoch + 1)
        except Exception as error:
            self._corruption(f"log/{segment_name(log[-1][0].number, log[-1][0].epoch)}", error)
            return
        self._found.recovered = recovered.shards
        corrupt = {corruption.file for corruption in self._found.corruptions}
        for shard in recovered.shards.values():
            whole = not any(f"blob/{batch.key}" in corrupt for batch in shard.batches)
            self._found.shards.append(self._shard(shard, whole))
            if self._verify and whole:
                self._check_multiplicities(shard)

    def _shard(self, shard: Shard, whole: bool) -> ShardReport:
        known = []
        if self._verify and whole:  # otherwise no file is opened: Arrow may abort on a corrupt one
            ranges = [_range(part.updates.to_batches()) for part in shard.tail]
            ranges += [self._verified[batch] for batch in shard.batches]
            known = [times for times in ranges if times is not None]
        return ShardReport(
            shard.id,
            shard.since,
            shard.upper,
            shard.batches,
            sum(part.updates.num_rows for part in shard.tail),
            min((least for least, _ in known), default=None),
            max((greatest for _, greatest in known), default=None),
            shard.capabilities.grants,
            row_schema(shard.schema),
        )

    def _check_multiplicities(self, shard: Shard) -> None:
        """Check that no row has a negative multiplicity at any readable time."""
        with tempfile.TemporaryDirectory() as scratch:
            try:
                least = least_multiplicity(
                    self._updates(shard), shard.schema, shard.since, Path(scratch)
                )
            except Exception as error:
                self._corruption(f"blob/{shard.id}", error)
                return
        if least < 0:
            negative = DataCorrupted(f"{shard.id} has a row {least} times")
            self._corruption(f"blob/{shard.id}" if shard.batches else "log", negative)

    def _updates(self, shard: Shard) -> Iterator[pa.RecordBatch]:
        for batch in shard.batches:
            yield from read_batch(self._batches, batch, shard.schema)
        for part in shard.tail:
            yield from part.updates.to_batches()

    def _identity(self, states: States) -> None:
        """Check that the log and the batches belong to the database in consensus."""
        for folder in ("blob", "log"):
            path = self._dir / folder / NAME
            if states.identity is None or not path.parent.is_dir():
                continue
            mark = path.read_bytes() if path.exists() else b""
            if mark != states.identity.encode():
                shown = mark.decode(errors="backslashreplace")
                message = f'"{NAME}" is "{shown}", and consensus has {states.identity}'
                self._corruption(f"{folder}/{NAME}", DataCorrupted(message))

    def _fence(self, states: States) -> None:
        """Check that the fence is between the last segment's epoch and the last epoch taken."""
        if not states.log.segments and not (self._dir / "log" / FENCE).exists():
            return
        try:
            data = (self._dir / "log" / FENCE).read_bytes()
        except OSError as error:
            self._corruption(
                f"log/{FENCE}", DataCorrupted(f'"fence" is not readable: {error.strerror}')
            )
            return
        least = states.log.segments[-1].epoch if states.log.segments else 1
        if len(data) != 8 or not least <= int.from_bytes(data, "little") <= states.epoch:
            message = f'"fence" is {data.hex()}, which is no epoch from {least} to {states.epoch}'
            self._corruption(f"log/{FENCE}", DataCorrupted(message, offset=0))

    def _files(self) -> set[str]:
        return {
            path.relative_to(self._dir).as_posix()
            for folder in ("blob", "log", "scratch")
            for path in (self._dir / folder).rglob("*")
            if path.is_file() and path.name not in (FENCE, NAME) and ".scratch" not in path.parts
        }


def _said(error: Exception) -> str:
    return error.message if isinstance(error, DatabaseError) else str(error)


def _range(updates: Iterable[pa.RecordBatch]) -> _Times:
    """Return the least and the greatest time of updates, None if there are none."""
    found: _Times = None
    for piece in updates:
        times = piece.column(piece.num_columns - 2).to_numpy()
        if len(times):
            least, greatest = int(times.min()), int(times.max())
            found = (min(least, found[0]), max(greatest, found[1])) if found else (least, greatest)
    return found


def corrupt_offset(path: Path) -> int | None:
    """Return the offset of the first unreadable column chunk of a corrupt Parquet file.

    If all are readable, the footer or the magic bytes are corrupt, and the footer's offset is
    returned. None if there is no file. The check runs in another process, because Arrow may abort
    on a corrupt footer.
    """
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            magic = file.read(4)
            file.seek(max(0, size - 8))
            footer = max(0, size - 8 - int.from_bytes(file.read(4), "little"))
    except OSError:
        return None
    if magic != b"PAR1":
        return 0
    # A corrupt file may end the process that reads it.
    command = [sys.executable, "-P", "-m", "foreshore.storage.corrupt_chunk", str(path)]
    environment = child_environment(private_home())
    found = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    chunk = found.stdout.strip()
    return int(chunk) if found.returncode == 0 and chunk else footer
