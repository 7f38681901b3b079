"""The present row of each key, in memory.

A key has the number of its row. Rows are in chunks, in the order of their numbers, and the space of
rows that are gone is reclaimed when they are the most.
"""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foreshore.datum import from_array
from foreshore.errors import OutOfMemory
from foreshore.expr.equality import is_plain, python_keys
from foreshore.memory import physical_bytes
from foreshore.types import SqlType
from foreshore.update import DIFF_FIELD

LARGEST_CHUNK = 1 << 28  # bytes
FEW = 10_000  # rows that are gone and are left
KEY_BYTES = 180  # that a key takes, about
SHARE = 4  # of the machine's memory a source may take one part in


class KeyedRows:
    """Rows by their keys, which are the values of some of their columns, as SQL compares them."""

    def __init__(self, schema: pa.Schema, key_at: Sequence[int], types: Sequence[SqlType]) -> None:
        self._schema, self._key_at, self._types = schema, tuple(key_at), tuple(types)
        self._numbers: dict[Hashable, int] = {}
        self._chunks: list[pa.Table] = []
        self._total = 0  # rows in chunks
        self._most_bytes = physical_bytes() // SHARE

    @property
    def bytes(self) -> int:
        """Return about how much memory the rows and keys take."""
        chunks: int = sum(each.nbytes for each in self._chunks)
        return chunks + KEY_BYTES * len(self._numbers)

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, key: Hashable) -> bool:
        return key in self._numbers

    def keys_of(self, rows: pa.Table) -> list[Hashable]:
        """Return the keys of rows; None is in those with a NULL."""
        columns = [rows.column(at) for at in self._key_at]
        values = [_keys(*each) for each in zip(columns, self._types, strict=True)]
        return values[0] if len(values) == 1 else list(zip(*values, strict=True))

    def load(self, rows: pa.Table) -> None:
        """Add rows whose keys are new; raises OutOfMemory if there are too many."""
        self._put(self.keys_of(rows), rows.select(self._schema.names))

    def change(self, keys: Sequence[Hashable], stays: Sequence[bool], rows: pa.Table) -> pa.Table:
        """Set the rows of keys, or remove them; return the updates, rows with `__diff`.

        The last row of a key counts; where `stays` is false, the key has none after it. Raises
        OutOfMemory if there are too many rows, and is of no more use then.
        """
        last = {key: row for row, key in enumerate(keys)}
        get = self._numbers.get
        gone = [number for key in last if (number := get(key)) is not None]
        before = self._taken(gone)
        kept = [(key, row) for key, row in last.items() if stays[row]]
        for key, row in last.items():
            if not stays[row]:
                self._numbers.pop(key, None)
        after = rows.take(pa.array([row for _, row in kept], pa.int64()))
        self._put([key for key, _ in kept], after)
        self._reclaim()
        return pa.concat_tables([_with_diff(before, -1), _with_diff(after, 1)])

    def _put(self, keys: Sequence[Hashable], rows: pa.Table) -> None:
        if not rows.num_rows:
            return
        self._numbers.update(zip(keys, range(self._total, self._total + len(keys)), strict=True))
        self._total += rows.num_rows
        self._chunks.append(rows.cast(self._schema).combine_chunks())
        if self.bytes > self._most_bytes:
            raise OutOfMemory(
                f"{len(self)} keys with their rows take {self.bytes >> 20} MB",
                hint=f"A source that has keys keeps {self._most_bytes >> 20} MB of rows at most.",
            )
        while len(self._chunks) > 1:
            a, b = self._chunks[-2:]
            if a.num_rows > 2 * b.num_rows or a.nbytes + b.nbytes > LARGEST_CHUNK:
                return
            self._chunks[-2:] = [pa.concat_tables([a, b]).combine_chunks()]

    def _taken(self, numbers: Sequence[int]) -> pa.Table:
        """Return rows by their numbers, in any order."""
        wanted = np.sort(np.asarray(numbers, np.int64))
        parts: list[pa.Table] = []
        begin = 0
        for chunk in self._chunks:
            end = begin + chunk.num_rows
            here: npt.NDArray[np.int64] = wanted[
                np.searchsorted(wanted, begin) : np.searchsorted(wanted, end)
            ]
            if len(here):
                parts.append(chunk.take(pa.array(here - begin)))
            begin = end
        return pa.concat_tables(parts) if parts else self._schema.empty_table()

    def _reclaim(self) -> None:
        if self._total - len(self._numbers) <= len(self._numbers) + FEW:
            return
        numbers = np.fromiter(self._numbers.values(), np.int64, len(self._numbers))
        keys = list(self._numbers)
        order = np.argsort(numbers)
        rows = self._taken(numbers[order].tolist())
        self._chunks, self._numbers, self._total = [], {}, 0
        self._put([keys[each] for each in order.tolist()], rows)


def _keys(chunked: pa.ChunkedArray, type: SqlType) -> list[Any]:
    column = chunked.combine_chunks()
    return from_array(column, type) if is_plain(type) else python_keys(column, type)


def _with_diff(rows: pa.Table, diff: int) -> pa.Table:
    diffs = pa.repeat(pa.scalar(diff, pa.int64()), rows.num_rows)
    return rows.append_column(DIFF_FIELD, diffs)
