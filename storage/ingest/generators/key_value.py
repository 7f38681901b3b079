"""KEY VALUE: keys that get a new value again and again.

Each of the first ticks, the rounds of the snapshot, writes all keys; each later one a number of
keys, one after another. The `offset` of a key counts how often it was written.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from foreshore.sources.generators import LoadGenerator
from foreshore.sources.outputs import OWN_ROWS
from foreshore.storage.ingest.generators.drawn import Numbers, drawn, rows


def ticks(spec: LoadGenerator, begin: int, end: int) -> Mapping[str, pa.Table]:
    """Return the rows of ticks `begin` to `end`, exclusive."""
    rounds, size = spec.snapshot_rounds, min(spec.batch_size, spec.keys)
    numbers = np.arange(begin, end, dtype=np.int64)
    first = numbers[numbers < rounds]
    keys = [np.tile(np.arange(spec.keys, dtype=np.int64), len(first))]
    versions = [np.repeat(first, spec.keys)]
    later = numbers[numbers >= rounds] - rounds
    written = (later[:, None] * size + np.arange(size, dtype=np.int64)[None, :]).reshape(-1)
    keys.append(written % spec.keys)
    versions.append(written // spec.keys + rounds)
    return {OWN_ROWS: _changes(spec, np.concatenate(keys), np.concatenate(versions))}


def _changes(spec: LoadGenerator, keys: Numbers, versions: Numbers) -> pa.Table:
    """Return the rows that go and those that come, each pair side by side."""
    count = len(keys)
    both = np.repeat(keys, 2)
    offsets = np.repeat(versions, 2)
    offsets[::2] -= 1
    diffs = np.tile(np.array([-1, 1], dtype=np.int64), count)
    kept = offsets >= 0
    both, offsets, diffs = both[kept], offsets[kept], diffs[kept]
    return rows(
        diffs,
        key=both,
        partition=both % spec.partitions,
        offset=offsets,
        value=_values(both + spec.seed * 7_368_787, offsets, spec.value_size),
    )


def _values(keys: Numbers, versions: Numbers, size: int) -> pa.Array:
    words = -(-size // 4)
    seeds = drawn(keys * 1_000_003 + versions, 7)[:, None] * words + np.arange(words)[None, :]
    data = drawn(seeds.reshape(-1), 8).astype(np.uint32).view(np.uint8)
    data = np.ascontiguousarray(data.reshape(len(keys), words * 4)[:, :size])
    fixed = pa.Array.from_buffers(pa.binary(size), len(keys), [None, pa.py_buffer(data.tobytes())])
    return fixed.cast(pa.binary())
