"""What tasks do to write a sorted run: rows become words, meet by their hashes, and are sorted.

    rows ──► words with the hash of their key ──► (shuffle by the first bits) ──► sorted pieces

A piece has all rows whose hashes begin with the same bits, so the pieces one after the other are
the run, and equal rows are added up in one piece. Both steps run in Python workers, by the kernels
that sort runs of an embedded engine.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa

from foreshore.compute.checkpoint.files import write_arrays
from foreshore.types import ColumnType
from foreshore.update import Timestamp

PART, ROW = "part", "row"
SPREAD = f"{PART} INT, {ROW} BINARY"


@dataclass(frozen=True, slots=True)
class RunForm:
    """How rows of `columns` are sorted: by the hashes, with `seed`, of their words at `key`.

    All updates are moved to `time`. A run has 2 ** `bits` pieces.
    """

    columns: tuple[ColumnType, ...]
    key: tuple[int, ...]
    seed: int
    time: Timestamp
    bits: int


def spread(form: RunForm, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches, with diffs, as words, and the numbers of their pieces."""
    from foreshore.compute.delta.tables import cast_to_schema
    from foreshore.compute.engine import result_schema
    from foreshore.compute.flow.convert import flat, integers, words_of
    from foreshore.compute.flow.kernels.rows import hash_places
    from foreshore.compute.flow.layout import layout_of

    layout, key = layout_of(form.columns), np.array(form.key, np.int64)
    schema, nobody = result_schema(form.columns), _NoStrings()
    for batch in batches:
        if not batch.num_rows:
            continue
        table = cast_to_schema(pa.Table.from_batches([batch]), schema)
        *columns, diffs = map(flat, table.columns)
        words = np.empty((batch.num_rows, layout.words + 1), np.int64)
        words[:, :-1] = words_of(columns, batch.num_rows, layout, nobody)
        words[:, -1] = integers(diffs)
        hashes = np.empty(batch.num_rows, np.uint64)
        hash_places(np.ascontiguousarray(words[:, :-1]), key, np.uint64(form.seed), hashes)
        parts = (hashes >> np.uint64(64 - form.bits)).astype(np.int32)
        yield pa.RecordBatch.from_arrays([pa.array(parts), _as_bytes(words)], names=[PART, ROW])


def write_pieces(
    form: RunForm, directory: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Sort the rows of some pieces, write a file of each, and yield the files' names."""
    from foreshore.compute.flow.layout import layout_of
    from foreshore.compute.flow.sorter import Sorter

    width, key = layout_of(form.columns).words, np.array(form.key, np.int64)
    seed, time = np.uint64(form.seed), np.array([form.time], np.int64)
    parts: list[Any] = []
    rows: list[Any] = []
    for batch in batches:
        parts.append(batch.column(0).to_numpy())
        rows.append(_as_words(batch.column(1), width + 1))
    if not parts:
        return
    part_of, words = np.concatenate(parts), np.concatenate(rows)
    for part in np.unique(part_of):
        own = words[part_of == part]
        updates, diffs = np.ascontiguousarray(own[:, :-1]), np.ascontiguousarray(own[:, -1])
        sorter = Sorter(seed, len(own))
        sorter.count(updates, key)
        sorter.begin(width)
        sorter.add(updates, time, diffs, key)
        names = ("hashes", "words", "times", "diffs")
        arrays = dict(zip(names, sorter.sorted(form.time), strict=True))
        path = Path(directory, f"{uuid4().hex}.run")
        write_arrays(path, arrays)
        count = len(arrays["hashes"])
        yield pa.RecordBatch.from_pydict(
            {
                "part": pa.array([part], pa.int32()),
                "path": [str(path)],
                "rows": pa.array([count], pa.int64()),
                "bytes": pa.array([sum(array.nbytes for array in arrays.values())], pa.int64()),
            }
        )


class _NoStrings:
    """The numbers of strings in a layout that has none."""

    def numbers(self, column: pa.Array) -> Any:
        raise AssertionError("strings have numbers in the replica only")


def _as_bytes(words: Any) -> pa.Array:
    """Return each row of words as bytes."""
    rows, width = words.shape
    offsets = np.arange(rows + 1, dtype=np.int32) * np.int32(8 * width)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(words)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers)


def _as_words(column: pa.Array, width: int) -> Any:
    """Return rows of words of their bytes, which are all of one length."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)
    first = int(offsets[column.offset])
    count = len(column) * width
    return np.frombuffer(column.buffers()[2], np.int64, count, first).reshape(-1, width)


def is_without_strings(columns: Sequence[ColumnType]) -> bool:
    """Whether the words of rows mean the same in all processes: none is a number of a string."""
    from foreshore.compute.flow.layout import kind_of

    return not any(kind_of(column.type) in ("bytes", "value") for column in columns)


def pieces_of(rows: int, cores: int, most: int = 1 << 20) -> int:
    """Return the bits that number so many pieces that each has work and none too many rows."""
    return max(1, min(16, max(-(-rows // most) - 1, 2 * cores - 1).bit_length()))
