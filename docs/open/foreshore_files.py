"""What a collection consists of in a Foreshore data directory: its files, found as format.md says.

The server may run or not. What does not have its checksum is refused. A lease, a file beside the
data, keeps what is read from being deleted; nothing else is written. Where none can be taken
`reading` begins again when the compacter has taken a file away meanwhile. Needs pyarrow, to read
the names in the catalog and to lay down the end of the log as one more Parquet file.
"""

import argparse
import base64
import filecmp
import json
import os
import shutil
import sqlite3
import struct
import sys
import tempfile
import threading
import time
import uuid
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

States = dict[str, dict[str, Any]]
Objects = dict[str, dict[str, Any]]  # of the catalog, by id
STATES = ("log", "shard")  # those that say where the data is
LEASE_MS = 60_000
EMPTY = 2**63 - 1  # the frontier at or beyond which there is no time
TAKEOVER_S = 10.0  # after which who began to take the data over, and has not, has died


class Unreadable(Exception):
    """The collection or the time cannot be read, or the files are damaged."""


@dataclass
class Shard:
    """A collection: its updates are those in `files` and those in `messages`, each in one."""

    since: int = 0  # readable from here
    upper: int = 0  # up to before here
    sealed: int = 0  # the end of the batches
    schema: bytes = b""  # Arrow's, of updates, in IPC form
    checksums: dict[str, int] = field(default_factory=dict)  # of the files
    messages: list[memoryview] = field(default_factory=list)  # Arrow record batches without schema
    holds: dict[str, tuple[int, bool]] = field(default_factory=dict)  # who reads: see `grant`

    @property
    def files(self) -> list[str]:
        """The Parquet files, in the order of their times."""
        return list(self.checksums)

    def grant(self, grants: list[list[Any]], *, taking_over: bool = False) -> None:
        """Let capabilities live: by the token of each to read, its frontier and if it is a lease.

        Who takes over ends those of earlier epochs, but for leases and what was given up for ever.
        """
        for token, mode, frontier, *lease in grants:
            if taking_over:
                self.holds = {
                    other: (held, leased)
                    for other, (held, leased) in self.holds.items()
                    if leased or held == EMPTY or epoch_of(other) >= epoch_of(token)
                }
            if mode == "read":
                self.holds.setdefault(token, (frontier, any(lease)))
        self.update_since()

    def downgrade(self, token: str, frontier: int | None) -> None:
        """Let a capability hold less; None: nothing, and the last holder takes since to the end."""
        if token in self.holds:
            held, leased = self.holds.pop(token)
            if frontier is not None:
                self.holds[token] = (max(held, frontier), leased)
            elif not self.holds:
                self.holds[token] = (EMPTY, False)
            self.update_since()

    def update_since(self) -> None:
        """Let since be where the first of its holders is, but never go back."""
        self.since = max(self.since, min((held for held, _ in self.holds.values()), default=0))

    def check(self) -> None:
        """Raise Unreadable for a file that is not as it was written."""
        for file, checksum in self.checksums.items():
            found = 0
            with open(file, "rb") as content:
                while piece := content.read(1 << 20):
                    found = zlib.crc32(piece, found)
            if found != checksum:
                raise Unreadable(f"{file} is not what was written: wrong checksum")


def reading(
    data_dir: Path, name: str, as_of: int | None, read: Callable[..., Any], *, lease: bool = True
) -> Any:
    """Return `read(files, as_of)` for the collection; `as_of` None is its last readable time.

    `read` must be done with the Parquet files when it returns: the rows as of `as_of` are what the
    updates with `__time <= as_of` add up to. It is called again only if a file that it was to read
    has been taken away, which does not happen while a lease is held.
    """
    deadline = time.monotonic() + TAKEOVER_S
    while True:
        with leased(data_dir) if lease else nullcontext() as hold:
            before = states(data_dir)  # the lease comes first
            if "log" not in before:
                raise Unreadable(f"there is no database in {data_dir} yet")
            is_taken_over = changes_hands(before["log"])
            if is_taken_over and time.monotonic() < deadline:
                time.sleep(0.1)
                continue
            try:
                shards = log(data_dir, before)
                after = states(data_dir)["log"]
                if after["epoch"] != before["log"]["epoch"] or (
                    is_taken_over and after != before["log"]
                ):
                    continue  # its next owner may have cut off what was read of the log's end
                catalog = objects(shards["s1"]) if "s1" in shards else {}
                id = resolve(shards, catalog, name)
                shard = shards.get(id)
                if shard is None:
                    raise Unreadable(f"{name} has no shard")
                at = shard.upper - 1 if as_of is None else as_of
                item = catalog.get(id, {})  # as an item is now, it is not to be read from the first
                since = max(shard.since, item.get("since", 0), item.get("promised", 0))
                if not since <= at < shard.upper:
                    bounds = f"from {since} and before {shard.upper}"
                    raise Unreadable(f"{name} is readable {bounds}")
                refuse_error(shards, catalog, id, name, at)
                if hold is not None:
                    hold([Path(file).relative_to(data_dir).as_posix() for file in shard.files])
                shard.check()
                with tempfile.TemporaryDirectory() as place:
                    return read([*shard.files, *tail_file(shard, Path(place))], at)
            except Exception as error:
                missing = {file for file in named(data_dir, before) if not Path(file).exists()}
                if missing <= named(data_dir, states(data_dir)):  # nothing was taken away
                    if isinstance(error, FileNotFoundError) and error.filename in missing:
                        raise Unreadable(f"{error.filename} is missing") from None
                    raise


@contextmanager
def leased(data_dir: Path) -> Iterator[Callable[[list[str]], None]]:
    """Hold all files for the length of a block; called with some, what it gives holds only those.

    Who may not write there holds nothing, nor does who stood still for longer than `LEASE_MS`.
    """
    path = data_dir / "leases" / f"{uuid.uuid4()}.json"
    unfinished = path.with_name(f".{path.name}")
    holder = f"{Path(sys.argv[0]).name}, process {os.getpid()}"
    done = threading.Event()

    def content(holds: list[str]) -> str:
        return json.dumps({"holds": holds, "lease_ms": LEASE_MS, "holder": holder})

    def renew() -> None:
        with suppress(OSError):  # the lease has ended, or never was
            while not done.wait(LEASE_MS / 3_000):
                os.utime(path)

    def hold(holds: list[str]) -> None:
        with suppress(OSError), path.open("r+") as file:  # else it holds more, or has ended
            file.truncate()
            file.write(content(holds))

    with suppress(OSError):
        unfinished.touch(0o600)  # for this user alone, as all is there
        unfinished.write_text(content(["blob", "log"]))
        unfinished.rename(path)
    renewing = threading.Thread(target=renew, daemon=True)
    renewing.start()
    try:
        yield hold
    finally:
        done.set()
        renewing.join()
        with suppress(OSError):  # it is gone
            path.unlink()


def states(data_dir: Path) -> States:
    """Return the last version of every state, all as of one moment."""
    path = data_dir.absolute() / "consensus.sqlite"
    while True:
        try:
            return ask(path)
        except sqlite3.OperationalError as error:
            code = getattr(error, "sqlite_errorcode", None)  # the module's own have none
            if code != sqlite3.SQLITE_READONLY_ROLLBACK:
                raise Unreadable(f"{path} is not readable: {error}") from None
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise Unreadable(f"{path} is not readable: {error}") from None
        # A kill left the journal of a commit. By it SQLite takes the commit back, here in a copy.
        # A server may do so meanwhile: the journal goes last, so if it is there all is well.
        journal = path.with_name(f"{path.name}-journal")
        with tempfile.TemporaryDirectory() as place, suppress(FileNotFoundError):
            for each in (journal, path):
                shutil.copy(each, place)
            if filecmp.cmp(journal, Path(place) / journal.name, shallow=False):
                return ask(Path(place) / path.name, "rw")


def ask(path: Path, mode: str = "ro") -> States:
    """Return the last version of every state in the SQLite database.

    All versions are looked at: damage may make another key or number of the last one.
    """
    uri = f"{path.as_uri()}?mode={mode}"
    with closing(sqlite3.connect(uri, uri=True, timeout=10)) as connection:
        versions = connection.execute("SELECT * FROM version ORDER BY key, seqno").fetchall()
        ((verdict,),) = connection.execute("PRAGMA integrity_check(1)")
    if verdict != "ok":
        raise Unreadable(f"{path} is damaged: {verdict}")
    heads = {version[0]: checked(path, *version) for version in versions}
    return {key: json.loads(heads[key]) for key in heads if key.partition("/")[0] in STATES}


def checked(path: Path, key: str, seqno: int, data: object, checksum: int | None = None) -> bytes:
    """Return a state; raises Unreadable if its checksum, which very old ones have not, is wrong."""
    if not isinstance(data, bytes):
        raise Unreadable(f'{path} is damaged: "{key}" is not bytes')
    if checksum not in (None, zlib.crc32(data, zlib.crc32(f"{key} {seqno} ".encode()))):
        raise Unreadable(f'{path} is damaged: "{key}" has a wrong checksum')
    return data


def changes_hands(log: dict[str, Any]) -> bool:
    """Whether a new owner has claimed the log, and not yet said where what is before him ends."""
    last = log["segments"][-1:]
    return any(each["length"] is None and each["epoch"] < log["epoch"] for each in last)


def named(data_dir: Path, found: States) -> set[str]:
    """Return all files that the states name."""
    batches = [batch["key"] for state in found.values() for batch in state.get("batches", ())]
    segments = [segment_path(data_dir, each) for each in found["log"]["segments"]]
    return {*(str(data_dir / "blob" / key) for key in batches), *map(str, segments)}


def segment_path(data_dir: Path, segment: dict[str, Any]) -> Path:
    """Return where the segment of the log is."""
    return data_dir / "log" / f"{segment['number']:012}-{segment['epoch']:06}.log"


def log(data_dir: Path, found: States) -> dict[str, Shard]:
    """Return every shard, by id: from its batches and from all that the log says."""
    shards: dict[str, Shard] = {}
    for key, state in found.items():
        if key.startswith("shard/") and not state["dropped"]:
            batches = state["batches"]
            sealed = batches[-1]["upper"] if batches else 0
            shards[state["id"]] = Shard(
                since=max((batch["since"] for batch in batches), default=0),
                upper=sealed,
                sealed=sealed,
                schema=base64.b64decode(state["schema"]),
                checksums={
                    str(data_dir / "blob" / batch["key"]): batch["checksum"] for batch in batches
                },
            )
    for segment in found["log"]["segments"]:
        for kind, payload in records(segment_path(data_dir, segment), segment):
            if kind == 1:
                (_, entries, _), _ = unpack(payload)
                for id, schema, since, upper, _, grants in entries:
                    shard = shards.setdefault(id, Shard(schema=schema))
                    shard.since = max(shard.since, since)
                    shard.upper = max(shard.upper, upper)
                    shard.holds = {}
                    shard.grant(grants)
            elif kind == 2:
                replay(shards, payload)
    return shards


def replay(shards: dict[str, Shard], payload: memoryview) -> None:
    """Take up one group of the log."""
    (length,) = struct.unpack_from("<I", payload)
    events, _ = unpack(payload[4 : 4 + length])
    messages = payload[4 + length + -(4 + length) % 8 :]
    for kind, *said in events:
        if kind == "Created":
            shards[said[0]] = Shard(schema=said[1])
            shards[said[0]].grant(said[2])
        elif kind == "Dropped":
            shards.pop(said[0], None)
        elif kind == "Advanced":
            for id, upper in said[0]:
                if id in shards:
                    shards[id].upper = max(shards[id].upper, upper)
        elif kind == "Granted":
            for id, grant in said[0]:
                if id in shards:
                    shards[id].grant([grant], taking_over=said[1])
        elif kind == "Downgraded":
            for id, token, frontier in said[0]:
                if id in shards:
                    shards[id].downgrade(token, frontier)
        elif kind == "Expired":
            for id, token in said[0]:
                if id in shards:
                    shards[id].holds.pop(token, None)
                    shards[id].update_since()
        elif kind == "Rows":
            id, _, upper, time, diffs, rows = said
            shard = shards.get(id, Shard())
            if upper > shard.sealed:
                shard.messages.append(message_of(shard.schema, rows, time, diffs))
            shard.upper = max(shard.upper, upper)
        elif kind == "Appended":
            for id, _, upper, lengths in said[0]:
                shard = shards.get(id, Shard())
                for length in lengths:
                    if upper > shard.sealed:
                        shard.messages.append(messages[:length])
                    messages = messages[length:]
                shard.upper = max(shard.upper, upper)


def message_of(schema: bytes, rows: list[list[Any]], time: int, diffs: list[int]) -> memoryview:
    """Return the rows of a `Rows` event as an Arrow record batch without its schema."""
    fields = pa.ipc.read_schema(pa.py_buffer(schema))
    columns = []
    for *data, type in zip(*rows, fields.types[:-2], strict=True):
        if pa.types.is_decimal(type):
            data = [None if each is None else Decimal(each) for each in data]
        elif pa.types.is_temporal(type):  # these are integers
            integers = pa.int32() if type.bit_width == 32 else pa.int64()
            columns.append(pa.array(data, integers).view(type))
            continue
        columns.append(pa.array(data, type))
    columns += [pa.array([time] * len(diffs), pa.int64()), pa.array(diffs, pa.int64())]
    return memoryview(pa.RecordBatch.from_arrays(columns, schema=fields).serialize())


def epoch_of(token: str) -> int:
    """Return the epoch in which the capability was given out."""
    return int(token.partition("-")[0])


def records(path: Path, segment: dict[str, Any]) -> list[tuple[int, memoryview]]:
    """Return kind and payload of the segment's records; raises Unreadable where one is damaged.

    A segment that is written meanwhile may seem damaged, but not twice in the same place.
    """
    before = ""
    while True:
        try:
            return list(records_of(path, segment))
        except Unreadable as error:
            if segment["length"] is not None or str(error) == before:
                raise
            before = str(error)


def records_of(path: Path, segment: dict[str, Any]) -> Iterator[tuple[int, memoryview]]:
    """Yield kind and payload of the records, as `records` does.

    The first says what there is, and is whole in each that is listed; the last may be torn.
    """
    content = path.read_bytes()
    data = memoryview(content)
    written = len(content.rstrip(FILLING))
    if segment["length"] is not None:
        data = data[: segment["length"]]
        written = len(data)
        if zlib.crc32(data) != segment["checksum"]:
            raise Unreadable(f"{path} is not what was sealed")
    start = 32
    for sequence in count():
        if sequence and start >= written:
            return
        head = data[start : start + 32]
        if len(head) < 32:
            if sequence:
                return
            raise Unreadable(f"{path} is cut off")
        magic, kind, found, length, checksum, own = struct.unpack("<4sB3xQQII", head)
        is_head = (magic, found, own) == (b"FSR1", sequence, zlib.crc32(head[:28]))
        end = start + 32 + (length + -length % 8 if is_head else 0)
        payload = data[start + 32 : start + 32 + length]
        if not is_head or end > len(data) or zlib.crc32(payload) != checksum:
            is_torn = written < end or any(
                not bytes(data[at : min(at - at % 512 + 512, end)]).strip(FILLING)
                for at in (start, *range(start - start % 512 + 512, end, 512))
            )
            if sequence and is_torn and not is_followed(content, start, sequence):
                return  # and so never acknowledged
            raise Unreadable(f"{path} is damaged in the record at offset {start}")
        yield kind, payload
        start = end


def is_followed(content: bytes, start: int, sequence: int) -> bool:
    """Whether a later record than this one is in the segment."""
    while (start := content.find(b"FSR1", start + 1)) >= 0:
        head = content[start : start + 32]
        if start % 8 == 0 and len(head) == 32:
            _, _, found, _, _, own = struct.unpack("<4sB3xQQII", head)
            if found > sequence and own == zlib.crc32(head[:28]):
                return True
    return False


FILLING = b"\xc1"  # what follows the last record of a segment

# Of MessagePack what the log uses: lengths of strings, bytes and arrays; numbers.
_LENGTHS = {0xC4: ">B", 0xC5: ">H", 0xC6: ">I", 0xD9: ">B", 0xDA: ">H", 0xDB: ">I"}
_LENGTHS |= {0xDC: ">H", 0xDD: ">I"}
_NUMBERS = {0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"}
_NUMBERS |= {0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}


def unpack(data: memoryview, at: int = 0) -> tuple[Any, int]:
    """Return the MessagePack value that begins at offset `at`, and where it ends."""
    tag = data[at]
    at += 1
    if tag < 0x80 or tag >= 0xE0:
        return tag - (0x100 if tag >= 0xE0 else 0), at
    if tag in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[tag], at
    if tag in _NUMBERS:
        (number,) = struct.unpack_from(_NUMBERS[tag], data, at)
        return number, at + struct.calcsize(_NUMBERS[tag])
    if tag in _LENGTHS:
        (length,) = struct.unpack_from(_LENGTHS[tag], data, at)
        at += struct.calcsize(_LENGTHS[tag])
    else:
        length = tag & (0x1F if tag >= 0xA0 else 0x0F)
    if tag in (0xDC, 0xDD) or 0x90 <= tag < 0xA0:
        values = []
        for _ in range(length):
            value, at = unpack(data, at)
            values.append(value)
        return values, at
    raw = bytes(data[at : at + length])
    return raw if tag in (0xC4, 0xC5, 0xC6) else raw.decode(), at + length


def tail_file(shard: Shard, place: Path) -> list[str]:
    """Write the updates that are in no batch to a Parquet file like a batch's, if there are any."""
    schema = pa.ipc.read_schema(pa.py_buffer(shard.schema))
    taken = {"__time", "__diff"}
    names = []
    for name in schema.names[:-2]:
        unique = name
        for i in count(1):
            if unique.casefold() not in taken:
                break
            unique = f"{name}_{i}"
        taken.add(unique.casefold())
        names.append(unique)
    if shard.files and not shard.messages:
        return []
    batches = [pa.ipc.read_record_batch(pa.py_buffer(m), schema) for m in shard.messages]
    table = pa.Table.from_batches(batches, schema).rename_columns([*names, "__time", "__diff"])
    pq.write_table(table, place / "tail.parquet", version="2.6")
    return [str(place / "tail.parquet")]


def resolve(shards: dict[str, Shard], catalog: Objects, name: str) -> str:
    """Return the id of `[[database.]schema.]name`, or the id itself, as the catalog has it now."""
    parts = name.split(".")
    wanted = [*("foreshore", "public")[: 3 - len(parts)], *parts]
    found = SYSTEM_TABLES.get(".".join(wanted[-2:]))
    for item in catalog.values():
        if "create_sql" in item and item["type"] in ("table", "materialized view"):
            schema_of = catalog[item["schema"]]
            if [catalog[schema_of["database"]]["name"], schema_of["name"], item["name"]] == wanted:
                found = item["id"]
    if name in shards and found not in (None, name):
        full = ".".join(wanted)
        raise Unreadable(f"{name} is an id, and {full} is another one: give the name with a schema")
    if name not in shards and found is None:
        raise Unreadable(f"there is no table or materialized view {'.'.join(wanted)}")
    return found or name


def refuse_error(
    shards: dict[str, Shard], catalog: Objects, id: str, name: str, as_of: int
) -> None:
    """Raise Unreadable if the collection is made of a view that has an error at `as_of`."""
    views = views_below(catalog, id)
    if not views or "s3" not in shards:
        return
    last: dict[str, tuple[int, str | None, str | None]] = {}
    for of, code, text, at in rows(shards["s3"]):
        if of in views and last.get(of, (-1,))[0] < at <= as_of:
            last[of] = (at, code, text)
    for view, (at, code, text) in last.items():
        if text is not None:
            made_of = "" if view == id else f" is made of {view}, which"
            raise Unreadable(f"{name}{made_of} has an error from {at} on: {code} {text}")


def views_below(catalog: Objects, id: str) -> set[str]:
    """Return the views that the collection is, or is made of, by their ids."""
    found: set[str] = set()
    stack = [id]
    while stack:
        item = catalog.get(stack.pop(), {})
        if item.get("type") in ("view", "materialized view") and item["id"] not in found:
            found.add(item["id"])
            stack += item["depends_on"]
    return found


def objects(catalog: Shard) -> Objects:
    """Return what the catalog has now, by id."""
    return {id: json.loads(value) for kind, id, value in rows(catalog) if kind in KINDS}


def rows(shard: Shard) -> Iterator[tuple[Any, ...]]:
    """Yield the distinct rows of a small collection at its last time."""
    shard.check()
    schema = pa.ipc.read_schema(pa.py_buffer(shard.schema))
    tables = [pq.read_table(file) for file in shard.files]
    tables += [
        pa.Table.from_batches([pa.ipc.read_record_batch(pa.py_buffer(message), schema)])
        for message in shard.messages
    ]
    found: Counter[tuple[Any, ...]] = Counter()
    for table in tables:
        *columns, _, diffs = (column.to_pylist() for column in table.columns)
        for *row, diff in zip(*columns, diffs, strict=True):
            found[tuple(row)] += diff
    return (row for row, times in found.items() if times)


KINDS = ("database", "schema", "item")
SYSTEM_TABLES = {  # in no catalog
    "mz_internal.mz_wallclock_global_lag_history": "s2",
    "mz_internal.mz_materialized_view_errors": "s3",
    "mz_catalog.mz_audit_events": "s4",
}


def main(read: Callable[[list[str], int], pa.Table]) -> None:
    """Run a reader from the command line: print the rows, or write them to a Parquet file."""
    parser = argparse.ArgumentParser(description="Read a collection as of a time.")
    parser.add_argument("data_dir", type=Path)
    parser.add_argument(
        "name", help="[[database.]schema.]name, or an id such as u7, if no table is called so"
    )
    parser.add_argument("--as-of", type=int, help="milliseconds since 1970")
    parser.add_argument("--output", type=Path, help="a Parquet file to write")
    parser.add_argument("--no-lease", action="store_true", help="write nothing into DATA_DIR")
    arguments = parser.parse_args()
    try:
        lease = not arguments.no_lease
        rows = reading(arguments.data_dir, arguments.name, arguments.as_of, read, lease=lease)
    except Unreadable as error:
        parser.exit(1, f"{error}\n")
    if arguments.output:
        pq.write_table(rows, arguments.output)
    else:
        for values in zip(*map(printable, rows.columns), strict=True):
            print(dict(zip(rows.column_names, values, strict=True)))


def printable(column: pa.ChunkedArray) -> list[Any]:
    """Return the values, as they are stored if there are times that Python has not: infinity."""
    try:
        found: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        return printable(column.cast(pa.int32() if pa.types.is_date32(column.type) else pa.int64()))
    return found
