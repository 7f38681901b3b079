"""Layouts: where the columns of a row are in its words.

A row is a fixed number of 64-bit words. Each column has one or two of them:

    whole numbers, booleans, dates and times, object ids   the integer
    numeric of at most 18 declared digits                  the digits as an integer
    other numerics                                         the low and the high word of 128 bits
    float4, float8                                         the bits of the float8, one kind of NaN
    uuid, interval                                         16 bytes
    text, bytea, json, enums, arrays                       a number of the interner (`intern.py`)

A row with nullable columns begins with mask words: bit i of them is set if the i-th nullable column
is NULL; its words are 0 then. So two rows are identical exactly if all their words are. (A column
that was made NOT NULL later may have been NULL at earlier times; nothing reads it at these.)
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal as OneOf

import numpy as np
import numpy.typing as npt

from foreshore.compute.flow.shared import Shared
from foreshore.types import REG_NAMES, SORTED_BYTES, ColumnType, SqlType

Kind = OneOf["int", "float", "wide", "bytes", "uuid", "interval", "value"]

_INTEGERS = frozenset(
    (
        *"bool int2 int4 int8 oid xid cid date time timestamp timestamptz".split(),
        *("mz_timestamp", "uint2", "uint4", "money", *REG_NAMES),
    )
)
_BYTES = frozenset(
    "text varchar bpchar name char unknown record void bytea json jsonb jsonpath enum".split()
)
NARROW_DIGITS = 18


def kind_of(type: SqlType) -> Kind:
    """Return how values of `type` are held."""
    if type.name in _INTEGERS:
        return "int"
    if type.name in ("float4", "float8"):
        return "float"
    if type.name == "numeric":
        return "int" if type.length is not None and type.length <= NARROW_DIGITS else "wide"
    if type.name in _BYTES or type.name in SORTED_BYTES:
        return "bytes"
    if type.name == "uuid":
        return "uuid"
    return "interval" if type.name == "interval" else "value"


def width_of(kind: Kind) -> int:
    """Return how many words a value has."""
    return 2 if kind in ("wide", "uuid", "interval") else 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where a column is: its first word, and its bit of the mask, -1 if it is never NULL."""

    word: int
    bit: int
    kind: Kind
    type: SqlType

    @property
    def width(self) -> int:
        """Return how many words it has."""
        return width_of(self.kind)


def words_of(place: Place) -> set[int]:
    """Return the numbers of a column's words, with that of its mask."""
    mask = {place.bit // 64} if place.bit >= 0 else set()
    return mask.union(range(place.word, place.word + place.width))


@dataclass(frozen=True, slots=True)
class Layout(Shared):
    """The places of a row's columns, and the number of its words.

    `null_bits` has each column's mask word and bit, -1 if it is never NULL.
    """

    places: tuple[Place, ...]
    masks: int
    words: int
    null_bits: npt.NDArray[np.int64] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Find the bits."""
        bits = [(p.bit // 64, p.bit % 64) if p.bit >= 0 else (-1, -1) for p in self.places]
        object.__setattr__(self, "null_bits", np.array(bits, np.int64).reshape(-1, 2))

    @property
    def columns(self) -> tuple[ColumnType, ...]:
        """Return the types of the columns."""
        return tuple(ColumnType(place.type, place.bit >= 0) for place in self.places)


@lru_cache(4096)
def layout_of(columns: tuple[ColumnType, ...]) -> Layout:
    """Return the layout of rows with these columns."""
    masks = -(-sum(column.nullable for column in columns) // 64)
    places = []
    word, bit = masks, 0
    for column in columns:
        kind = kind_of(column.type)
        places.append(Place(word, bit if column.nullable else -1, kind, column.type))
        word += width_of(kind)
        bit += column.nullable
    return Layout(tuple(places), masks, word)


def composed(parts: Sequence[Layout]) -> Layout:
    """Return the layout of rows that are the words of several, one after the other."""
    places: list[Place] = []
    words = 0
    for part in parts:
        for place in part.places:
            bit = place.bit + 64 * words if place.bit >= 0 else -1
            places.append(Place(place.word + words, bit, place.kind, place.type))
        words += part.words
    return Layout(tuple(places), sum(part.masks for part in parts), words)


def part_of(layout: Layout, columns: Sequence[int]) -> tuple[npt.NDArray[np.int64], Layout]:
    """Return the words of some columns and their masks, and the layout of these words."""
    places = [layout.places[i] for i in columns]
    words = sorted({place.bit // 64 for place in places if place.bit >= 0})
    masks = {word: number for number, word in enumerate(words)}
    found = []
    for place in places:
        bit = -1 if place.bit < 0 else 64 * masks[place.bit // 64] + place.bit % 64
        found.append(Place(len(words), bit, place.kind, place.type))
        words.extend(range(place.word, place.word + place.width))
    return np.array(words, np.int64), Layout(tuple(found), len(masks), len(words))
