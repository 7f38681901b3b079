"""Few rows in columns, with their multiplicities, and codes that tell rows apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.expr.equality import has_many_forms, has_one_form, with_one_zero
from foreshore.types import SqlType

Ints = npt.NDArray[np.int64]
MOST_ROWS = 200_000
MOST_BYTES = 32 << 20
MOST_COPIES = 2.0**53
MOST_CODES = 1 << 62


class NotSmall(Exception):
    """The plan, its rows or its values are for an engine: too many, or of a kind not known here."""


@dataclass(frozen=True, slots=True)
class SmallRows:
    """Rows in columns, each with its multiplicity, which may be negative."""

    columns: tuple[pa.Array, ...]
    diffs: Ints

    @property
    def count(self) -> int:
        """Return the number of rows."""
        return len(self.diffs)

    def take(self, places: Any) -> "SmallRows":
        """Return the rows at `places`, numbers or a mask."""
        if places.dtype == np.bool_:
            places = np.flatnonzero(places)
        require_few(len(places), sum(size_at(column, places) for column in self.columns))
        indices = pa.array(places)
        return SmallRows(tuple(c.take(indices) for c in self.columns), self.diffs[places])


def require_few(rows: int, size: int) -> None:
    """Raise NotSmall for more rows, or more bytes, than this process should compute with."""
    if rows > MOST_ROWS or size > MOST_BYTES:
        raise NotSmall(f"{rows} rows of {size} bytes")


def require_countable(diffs: Any) -> None:
    """Raise NotSmall if sums of multiplicities, given as floats, could overflow."""
    if np.abs(diffs).sum() > MOST_COPIES:
        raise NotSmall("too many copies")


def size_at(column: pa.Array, places: Ints) -> int:
    """Return about how many bytes the values at `places` take."""
    if pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
        return int(lengths[places].sum()) + 4 * len(places)
    return int(column.nbytes) * len(places) // max(len(column), 1)


def canonical(column: pa.Array, type: SqlType) -> pa.Array:
    """Return a column in which values that SQL considers equal are identical; raises NotSmall."""
    if has_one_form(type):
        return column
    if has_many_forms(type):
        raise NotSmall(f"equality of {type.name}")
    return with_one_zero(column)


def codes_of(columns: Sequence[pa.Array], rows: int) -> Ints:
    """Return a number for each row, from 0 on, the same for identical rows; NULL is a value."""
    codes = np.zeros(rows, np.int64)
    most = 1
    for column in columns:
        found, size = _codes(column)
        if most * size >= MOST_CODES:
            values, codes = np.unique(codes, return_inverse=True)
            most = len(values)
        codes = codes * size + found
        most *= max(size, 1)
    if len(columns) > 1 and rows:
        return np.unique(codes, return_inverse=True)[1].astype(np.int64, copy=False)
    return codes


def _codes(column: pa.Array) -> tuple[Ints, int]:
    """Return a number below the second result for each value."""
    if pa.types.is_floating(column.type):
        wide = column.cast(pa.float64())
        column = pa.Array.from_buffers(pa.int64(), len(wide), wide.buffers(), offset=wide.offset)
    if pa.types.is_nested(column.type):
        return _codes_of_lists(column)
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    found = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return found, len(encoded.dictionary)


def _codes_of_lists(column: pa.Array) -> tuple[Ints, int]:
    """Return the codes of lists, which are identical if their elements have the same codes."""
    if not pa.types.is_list(column.type):
        raise NotSmall(str(column.type))
    elements = _codes(column.flatten())[0]
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths)
    known: dict[bytes | None, int] = {}
    bounds = zip((ends - lengths).tolist(), ends.tolist(), strict=True)
    lists = [elements[start:end].tobytes() for start, end in bounds]
    present = column.is_valid().to_pylist()
    codes = [
        known.setdefault(each if valid else None, len(known))
        for each, valid in zip(lists, present, strict=True)
    ]
    return np.array(codes, np.int64), len(known)


def consolidated(rows: SmallRows) -> SmallRows:
    """Return distinct rows with their multiplicities added up, without those of none."""
    if not rows.count:
        return rows
    codes = codes_of(rows.columns, rows.count)
    firsts, diffs = added_up(codes, rows.diffs)
    kept = diffs != 0
    found = rows.take(firsts[kept])
    return SmallRows(found.columns, diffs[kept])


def added_up(codes: Ints, diffs: Ints) -> tuple[Ints, Ints]:
    """Return the first place of each code, in the order of the codes, and the sum of its diffs."""
    order = np.argsort(codes, kind="stable")
    starts = starts_of(codes[order])
    return order[starts], np.add.reduceat(diffs[order], starts)


def starts_of(ordered: Ints) -> Ints:
    """Return where each new value begins among ordered ones, of which there is one at least."""
    return np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
