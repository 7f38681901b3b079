"""Owners of keys: which worker has the rows of an index under a key.

The output of a dataflow is placed by the key of its first index, by the hashes of the values
(`flow/peers.py`). So the replica finds the owner of a key as the workers do, without their numbers
of strings.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from foreshore.compute.arrange.arrangement import Key
from foreshore.compute.flow.convert import words_of_values
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.layout import layout_of
from foreshore.compute.flow.peers import owners, strings_of
from foreshore.datum import to_array
from foreshore.types import ColumnType, Datum, SqlType


class Owners:
    """The owners, of `count` workers with these seeds, of keys of these `types`."""

    def __init__(self, types: Sequence[SqlType], count: int, seed: int, strings_seed: int) -> None:
        self._layout = layout_of(tuple(map(ColumnType, types)))
        self._strings = strings_of(self._layout)
        self._count = count
        self._seed = seed
        self._strings_seed = strings_seed

    def by_owner(self, keys: Iterable[Key]) -> dict[int, list[Key]]:
        """Return the keys of each worker that has some, without those that no row can have."""
        found: dict[int, list[Key]] = {}
        types = [place.type for place in self._layout.places]
        possible = list(_possible(keys, types))
        if not possible:
            return found
        interner = Interner(self._strings_seed)
        words = np.zeros((len(possible), self._layout.words), np.int64)
        for at, place in enumerate(self._layout.places):
            column = pa.concat_arrays([columns[at] for _, columns in possible])
            for k, part in enumerate(words_of_values(column, place.type, "key", interner)):
                words[:, place.word + k] = part
        owner = owners(words, self._strings, interner, self._seed, self._count)
        for (key, _), worker in zip(possible, owner.tolist(), strict=True):
            found.setdefault(worker, []).append(key)
        return found


def possible_keys(keys: Iterable[Key], types: Sequence[SqlType]) -> list[Key]:
    """Return the keys that rows can have: without NULL, and with values of their types."""
    return [key for key, _ in _possible(keys, types)]


def _possible(
    keys: Iterable[Key], types: Sequence[SqlType]
) -> Iterator[tuple[Key, Sequence[pa.Array]]]:
    """Yield those keys, each with its parts as columns."""
    for key in keys:
        columns = [_column(datum, type) for datum, type in zip(key, types, strict=True)]
        if all(column is not None for column in columns):
            yield key, columns


def _column(datum: Datum, type: SqlType) -> pa.Array | None:
    """Return a datum as a column of a type, None if it is NULL or not of the type."""
    if datum is None:
        return None
    try:
        return to_array([datum], type)
    except (pa.ArrowInvalid, OverflowError):
        return None
