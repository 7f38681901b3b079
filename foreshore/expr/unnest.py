"""The elements of arrays as rows, as FlatMap appends them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Elements:
    """Rows of elements: the place of the row that each comes from, its values, and its number."""

    parents: Ints
    values: list[pa.Array]
    numbers: Ints  # in its arrays, from 1


def unnested(columns: Sequence[pa.Array]) -> Elements:
    """Return the elements of columns of lists, in step; NULL where a list is not the longest."""
    counts = [_lengths(lists) for lists in columns]
    longest = np.maximum.reduce(counts)
    rows = len(longest)
    parents = np.repeat(np.arange(rows), longest)
    numbers = np.arange(len(parents)) - np.repeat(np.cumsum(longest) - longest, longest)
    values = []
    for lists, count in zip(columns, counts, strict=True):
        elements = lists.flatten()
        if len(elements) < len(parents):
            begins = np.cumsum(count) - count
            missing = numbers >= count[parents]
            places = pa.array(begins[parents] + numbers, pa.int64(), mask=missing)
            elements = elements.take(places)
        values.append(elements)
    return Elements(parents, values, numbers + 1)


def _lengths(lists: pa.Array) -> Ints:
    """Return the length of each list, 0 for NULL."""
    lengths: Ints = lists.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return lengths.astype(np.int64)
