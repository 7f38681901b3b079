"""Rows in the order of a key: places of sorted rows, and where values are among them.

A key's value is a tuple with a part for each column: (0, value), or (1,) for NULL, which is last.
Values are comparable with one another: words for whole numbers and times, also with a Decimal,
bytes for strings and uuids.
"""

from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.flow.batch import Ints, Words
from foreshore.compute.flow.convert import nulls_at
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.layout import Place
from foreshore.expr.ir import Literal

MOST_TEXT = 1 << 30  # bytes of the strings of one column that are sorted at once
NULL = (1,)
Part: TypeAlias = tuple[Any, ...]
Value: TypeAlias = tuple[Part, ...]

_WIDE = Context(prec=200)


class KeyOrder:
    """Rows in words in the order of the columns at `key`, NULL last."""

    def __init__(self, words: Words, key: Sequence[Place], interner: Interner) -> None:
        self._words = words
        self._parts = [_part_reader(words, place, interner) for place in key]
        columns = [each for place in key for each in _ranks(words, place, interner)]
        self.places: npt.NDArray[np.int32] = np.lexsort(columns[::-1]).astype(np.int32)

    @property
    def nbytes(self) -> int:
        """Return the size in memory."""
        return self.places.nbytes

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.places)

    def value(self, at: int, width: int) -> Value:
        """Return the first `width` parts of the key of the row that is `at` in order."""
        place = int(self.places[at])
        return tuple(part(place) for part in self._parts[:width])

    def first_from(self, value: Value) -> int:
        """Return how many rows come before `value`."""
        return self._bisect(lambda found: found < value, len(value))

    def first_after(self, value: Value) -> int:
        """Return how many rows come before `value` or have it."""
        return self._bisect(lambda found: found <= value, len(value))

    def _bisect(self, is_before: Callable[[Value], bool], width: int) -> int:
        low, high = 0, len(self.places)
        while low < high:
            middle = (low + high) // 2
            if is_before(self.value(middle, width)):
                low = middle + 1
            else:
                high = middle
        return low


def value_of(literals: Sequence[Literal], key: Sequence[Place]) -> Value:
    """Return literals as a key's value."""
    return tuple(_part_of(each, place) for each, place in zip(literals, key, strict=False))


def has_order(place: Place) -> bool:
    """Whether rows can be put in the order of a column."""
    return place.kind in ("int", "bytes", "uuid")


def text_size(words: Words, key: Sequence[Place], interner: Interner) -> int:
    """Return the bytes of the longest column of strings of a key, without those that repeat."""
    sizes = [
        int(interner.lengths[np.unique(words[:, place.word])].sum())
        for place in key
        if place.kind == "bytes"
    ]
    return max(sizes, default=0)


def _ranks(words: Words, place: Place, interner: Interner) -> list[Any]:
    """Return columns in whose order the values of a column are, the first one deciding."""
    low = words[:, place.word]
    ranks: list[Any]
    match place.kind:
        case "uuid":
            both = np.ascontiguousarray(words[:, place.word : place.word + 2])
            swapped = both.view(np.uint64).byteswap()
            ranks = [swapped[:, 0], swapped[:, 1]]
        case "bytes":
            ids, inverse = np.unique(low, return_inverse=True)
            ranks = [_text_ranks(ids, interner)[inverse]]
        case _:
            ranks = [low]
    null = nulls_at(words, place)
    return ranks if null is None else [null, *ranks]


def _text_ranks(ids: Ints, interner: Interner) -> Ints:
    """Return the rank of each string among these, in the order of bytes."""
    order = pc.sort_indices(interner.strings(ids, pa.binary())).to_numpy()
    ranks = np.empty(len(ids), np.int64)
    ranks[order] = np.arange(len(ids))
    return ranks


def _part_reader(words: Words, place: Place, interner: Interner) -> Callable[[int], Part]:
    """Return what reads a column of the row at a place."""
    at = place.word
    bit, mask = (-1, 0) if place.bit < 0 else (place.bit // 64, 1 << (place.bit % 64))

    def value(row: int) -> Part:
        match place.kind:
            case "uuid":
                return 0, words[row, at : at + 2].tobytes()
            case "bytes":
                id = int(words[row, at])
                start = int(interner.starts[id])
                return 0, interner.arena[start : start + int(interner.lengths[id])].tobytes()
            case _:
                return 0, int(words[row, at])

    def read(row: int) -> Part:
        if bit >= 0 and int(words[row, bit]) & mask:
            return NULL
        return value(row)

    return read


def _part_of(literal: Literal, place: Place) -> Part:
    value: Any = literal.value
    if value is None:
        return NULL
    match place.kind:
        case "uuid":
            return 0, value
        case "bytes":
            return 0, value.encode() if isinstance(value, str) else value
        case _ if place.type.name == "numeric":
            assert place.type.scale is not None, place
            return 0, Decimal(value).scaleb(place.type.scale, _WIDE)
        case _:
            return 0, Decimal(value) if isinstance(value, str) else int(value)
