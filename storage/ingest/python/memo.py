"""Which rows of its input a memo has answered.

A row is answered once. A memo that keeps its answers knows the keys of all rows that it has ever
answered. One that forgets has besides how often each row is in the input, and the answers that it
takes back when a row is there no more.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from foreshore.errors import OutOfMemory
from foreshore.memory import physical_bytes
from foreshore.python_functions.row_hashes import Words
from foreshore.storage.ingest.kafka.upsert import KEY_BYTES, SHARE, KeyedRows
from foreshore.storage.ingest.python.memo_rows import NetRows, keys_of, words_of
from foreshore.types import BYTEA
from foreshore.update import DIFF, DIFF_FIELD

KEY = "__key"
LOADED_BYTES = 16  # that a loaded key takes


class _Loaded:
    """The keys that a start has read, as sorted words: 16 bytes each, a sixth of a set's."""

    def __init__(self) -> None:
        self._parts: list[Words] = []
        self._first = self._second = np.zeros(0, np.uint64)

    def __len__(self) -> int:
        return len(self._first) + sum(map(len, self._parts))

    def add(self, words: Words) -> None:
        """Add keys."""
        self._parts.append(words)

    def has(self, keys: Sequence[bytes]) -> Any:
        """Return an array that says which keys were added."""
        if self._parts:
            words = np.concatenate([np.column_stack([self._first, self._second]), *self._parts])
            words = words[np.argsort(words[:, 0], kind="stable")]
            self._first, self._second, self._parts = words[:, 0].copy(), words[:, 1].copy(), []
        asked = words_of(keys)
        found = np.zeros(len(keys), np.bool_)
        rows = np.arange(len(keys))
        at = np.searchsorted(self._first, asked[:, 0])
        while len(rows):  # once, but for keys that begin alike
            inside = at < len(self._first)
            rows, at = rows[inside], at[inside]
            alike = self._first[at] == asked[rows, 0]
            rows, at = rows[alike], at[alike]
            same = self._second[at] == asked[rows, 1]
            found[rows[same]] = True
            rows, at = rows[~same], at[~same] + 1
        return found


class KeptAnswers:
    """Answers stay when their rows are deleted."""

    needs_rows = False  # of answers, but for the rows that were answered

    def __init__(self) -> None:
        self._loaded = _Loaded()
        self._keys: set[bytes] = set()  # answered since, or being answered
        self._most = physical_bytes() // SHARE // KEY_BYTES

    def load(self, words: Words, rows: pa.Table) -> None:
        """Note rows that have answers."""
        self._loaded.add(words)

    def begin(self, keys: Iterable[bytes], counts: Iterable[int]) -> None:
        """Note what the input has before its next changes."""

    def change(self, changes: NetRows, schema: pa.Schema) -> tuple[list[int], pa.Table]:
        """Take changes; return which rows are to be answered, and updates that take answers back.

        Raises OutOfMemory if there are too many rows.
        """
        asked = []
        loaded = self._loaded.has(changes.keys).tolist()
        for place, (key, net) in enumerate(zip(changes.keys, changes.nets, strict=True)):
            if net > 0 and not loaded[place] and key not in self._keys:
                self._keys.add(key)
                asked.append(place)
        known = len(self._keys) + len(self._loaded) * LOADED_BYTES // KEY_BYTES
        if known > self._most:
            raise OutOfMemory(
                f"the answers of {len(self._keys) + len(self._loaded)} rows are too many to know",
                hint="A source over a relation knows all rows that it has answered.",
            )
        return asked, _updates(schema.empty_table(), 1)

    def settle(self, schema: pa.Schema) -> pa.Table:
        """Return updates that take back answers without a row, after the first interval."""
        return _updates(schema.empty_table(), 1)

    def answer(self, keys: Sequence[bytes], rows: pa.Table) -> pa.Table:
        """Return the updates that give rows their answers."""
        return _updates(rows, 1)

    def fail(self, keys: Sequence[bytes]) -> None:
        """Note that rows get no answer; they are asked for when they come again."""
        self._keys.difference_update(keys)


class ForgottenAnswers:
    """Answers go with their rows."""

    needs_rows = True

    def __init__(self, schema: pa.Schema) -> None:
        self._counts: dict[bytes, int] = {}  # of the rows that the input has
        self._pending: set[bytes] = set()  # being answered
        self._answers = KeyedRows(
            schema.append(pa.field(KEY, pa.binary())), (len(schema),), (BYTEA,)
        )
        self._loaded: set[bytes] = set()  # answered before this process began

    def load(self, words: Words, rows: pa.Table) -> None:
        """Note rows that have answers."""
        keys = keys_of(words)
        self._answers.load(_keyed(keys, rows))
        self._loaded.update(keys)

    def begin(self, keys: Iterable[bytes], counts: Iterable[int]) -> None:
        """Note what the input has before its next changes."""
        for key, count in zip(keys, counts, strict=True):
            self._counts[key] = self._counts.get(key, 0) + count

    def change(self, changes: NetRows, schema: pa.Schema) -> tuple[list[int], pa.Table]:
        """Take changes; return which rows are to be answered, and updates that take answers back.

        Raises OutOfMemory if there are too many rows.
        """
        asked, gone = [], list[Hashable]()
        for place, (key, net) in enumerate(zip(changes.keys, changes.nets, strict=True)):
            count = self._counts.get(key, 0) + net
            if count:
                self._counts[key] = count
            else:
                self._counts.pop(key, None)
                gone.append(key)
            if net > 0 and key not in self._pending and key not in self._answers:
                self._pending.add(key)
                asked.append(place)
        return asked, self._taken_back(gone, schema)

    def settle(self, schema: pa.Schema) -> pa.Table:
        """Return updates that take back answers without a row, after the first interval.

        A row may have come, been answered and gone while the position did not move.
        """
        gone: list[Hashable] = [key for key in self._loaded if key not in self._counts]
        self._loaded = set()
        return self._taken_back(gone, schema)

    def answer(self, keys: Sequence[bytes], rows: pa.Table) -> pa.Table:
        """Return the updates that give rows their answers, but those that are gone meanwhile."""
        self._pending.difference_update(keys)
        here = [key in self._counts for key in keys]
        updates = self._answers.change(keys, here, _keyed(keys, rows))
        return updates.drop_columns([KEY])

    def fail(self, keys: Sequence[bytes]) -> None:
        """Note that rows get no answer; they are asked for when they come again."""
        self._pending.difference_update(keys)

    def _taken_back(self, keys: Sequence[Hashable], schema: pa.Schema) -> pa.Table:
        nothing = schema.append(pa.field(KEY, pa.binary())).empty_table()
        if not keys:
            return _updates(schema.empty_table(), 1)
        none = nothing.take(pa.array([], pa.int64()))
        return self._answers.change(keys, [False] * len(keys), none).drop_columns([KEY])


def _keyed(keys: Sequence[bytes], rows: pa.Table) -> pa.Table:
    return rows.append_column(pa.field(KEY, pa.binary()), pa.array(keys, pa.binary()))


def _updates(rows: pa.Table, diff: int) -> pa.Table:
    assert DIFF not in rows.column_names, rows.schema
    return rows.append_column(DIFF_FIELD, pa.array([diff] * rows.num_rows, pa.int64()))
