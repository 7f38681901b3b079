"""How much memory a merge of batches needs: `python -m tests.bench.compaction [MIB] [DIRECTORY]`.

Batches of `MIB` mebibytes in all (2048 without), in geometric sizes, are made by one process and
merged by another, whose resident memory before and at its peak is what is printed. The rows have
random bytes, so that a mebibyte of file is one of data; an eighth of the rows of the largest batch
is retracted by each of the others.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from foreshore.storage.batch import BatchMetadata, read_batch, write_batch
from foreshore.storage.blob import FileBlob
from foreshore.storage.compacter import MERGED_BYTES
from foreshore.storage.consolidate import merge
from foreshore.storage.local_files import LocalFiles
from foreshore.storage.trace import Batch
from foreshore.update import update_schema

SCHEMA = update_schema(pa.schema([("k", pa.int64()), ("x", pa.float64()), ("v", pa.binary())]))
PAYLOAD_BYTES = 84
ROW_BYTES = PAYLOAD_BYTES + 16 + 4
BLOCK = 40_000  # rows of the largest batch
SHARES = (0, 1, 2, 3)  # batch r has BLOCK >> r rows of its own in each block
SINCE = 10


@dataclass(frozen=True, slots=True)
class Figures:
    """What a merge needed; sizes in MiB."""

    batches: float
    merged: float
    rows: int
    seconds: float
    before: float
    peak: float


def opened(directory: Path) -> LocalFiles:
    return LocalFiles(FileBlob(directory / "blob"), directory / "cache")


def own_rows(run: int, block: int) -> pa.Table:
    random = np.random.default_rng([run, block])
    count = BLOCK >> run
    keys = np.arange(count) * 16 * (BLOCK // count) + run + block * BLOCK * 16
    payload = random.bytes(count * PAYLOAD_BYTES)
    offsets = np.arange(count + 1, dtype="int32") * PAYLOAD_BYTES
    values = pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(payload)]
    )
    times = np.full(count, run * 10)
    columns = [keys, random.random(count), values, times, np.ones(count, "int64")]
    return pa.table([pa.array(c) for c in columns], schema=SCHEMA)


def updates(run: int, blocks: int) -> Iterator[pa.RecordBatch]:
    """Yield the updates of a batch, sorted: its own rows, and what it retracts of the largest."""
    for block in range(blocks):
        table = own_rows(run, block)
        if run:
            gone = own_rows(0, block).take(np.arange(run, BLOCK, 8))
            count = gone.num_rows
            for i, values in ((3, np.full(count, run * 10)), (4, np.full(count, -1))):
                gone = gone.set_column(i, SCHEMA.field(i), pa.array(values))
            table = pa.concat_tables([table, gone]).sort_by("k")
        yield from table.combine_chunks().to_batches()


def make(directory: Path, mib: int) -> None:
    """Store the batches, and what a state would say of them."""
    in_block = sum((BLOCK >> run) + (BLOCK // 8 if run else 0) for run in SHARES)
    blocks = max(1, (mib << 20) // (in_block * ROW_BYTES))
    files = opened(directory)
    batches = []
    for run in SHARES:
        metadata = BatchMetadata("u1", run * 10, run * 10 + 10, run * 10)
        key = f"u1/{run}.parquet"
        batches.append(
            write_batch(files, key, directory / "s", SCHEMA, metadata, updates(run, blocks))
        )
    (directory / "batches").write_bytes(msgspec.json.encode(batches))
    kept = BLOCK - (len(SHARES) - 1) * (BLOCK // 8) + sum(BLOCK >> run for run in SHARES[1:])
    (directory / "expected").write_text(str(kept * blocks))


def resident(name: str) -> float:
    """Return a figure of this process's memory, in MiB: VmRSS is now, VmHWM the most so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith(name))
    return int(line.split()[1]) / 1024


def measure(directory: Path) -> Figures:
    """Merge the batches; raises AssertionError if what comes out is not what it has to be."""
    files = opened(directory)
    batches = msgspec.json.decode((directory / "batches").read_bytes(), type=list[Batch])
    before = resident("VmRSS")
    began = time.perf_counter()
    metadata = BatchMetadata("u1", 0, batches[-1].upper, batches[-1].upper - 1)
    size = MERGED_BYTES // len(batches)
    runs = [read_batch(files, batch, SCHEMA, piece_bytes=size) for batch in batches]
    consolidated = merge(runs, SCHEMA, metadata.since, directory)
    merged = write_batch(
        files, "u1/merged.parquet", directory / "s", SCHEMA, metadata, consolidated
    )
    seconds = time.perf_counter() - began
    assert merged.rows == int((directory / "expected").read_text()), merged
    read = sum(batch.bytes for batch in batches) / (1 << 20)
    return Figures(read, merged.bytes / (1 << 20), merged.rows, seconds, before, resident("VmHWM"))


def figures(mib: int, directory: Path) -> Figures:
    """Make the batches and merge them, each in a process of its own."""
    for stage in ("make", "measure"):
        done = subprocess.run(
            [sys.executable, "-m", "tests.bench.compaction", stage, str(mib), str(directory)],
            check=True,
            stdout=subprocess.PIPE,
        )
    return Figures(**json.loads(done.stdout))


def main(arguments: list[str]) -> None:
    match arguments:
        case ["make", mib, directory]:
            make(Path(directory), int(mib))
        case ["measure", _, directory]:
            print(json.dumps(asdict(measure(Path(directory)))))
        case _:
            with tempfile.TemporaryDirectory(dir=arguments[1] if arguments[1:] else None) as name:
                found = figures(int(arguments[0]) if arguments else 2048, Path(name))
            print(
                f"merged {found.batches:,.0f} MiB of batches into {found.merged:,.0f} MiB"
                f" ({found.rows:,} rows) in {found.seconds:.1f} s\n"
                f"resident: {found.before:.0f} MiB before, {found.peak:.0f} MiB at the peak"
            )


if __name__ == "__main__":
    main(sys.argv[1:])
