"""Answers of IMMUTABLE functions, kept by arguments, so that equal calls are made once.

An engine asks for the value of a call and for its error apart, a query has the same call several
times, and a view computes a row again to take it back: all of these find the answer here. Arguments
are known by their hashes (`row_hashes.py`). All functions of a process share one bound of memory.
What is kept of a function is in two halves: when the newer one is full, the older one is forgotten,
and what is used of it moves to the newer one before.
"""

from collections.abc import Callable, Sequence
from functools import partial
from threading import Condition, Event, Lock, Thread
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from foreshore.python_functions.patience import POLL_SECONDS, Check
from foreshore.python_functions.row_hashes import Words, row_hashes

Outcome: TypeAlias = tuple[pa.Array, pa.Array | None]
Ask: TypeAlias = Callable[[Sequence[pa.Array]], Outcome]
Ints: TypeAlias = Any  # an array of int64

PART = 16_384  # rows that are looked up at once
PART_BYTES = 16 << 20
WAIT_SECONDS = 0.2
MOST_FUNCTIONS = 256
WHILE = 100  # calls
LITTLE = (
    2 * MOST_FUNCTIONS
)  # functions that have less than one part of so many do not share the bound
_UNKNOWN, _ASKED = -1, -2  # in place of the number of an answer


def waited_for(work: Callable[[], Outcome], check: Check) -> Outcome:
    """Return what `work` does on a thread of its own; what `check` raises ends the wait only."""
    found: list[Outcome] = []
    failed: list[BaseException] = []
    done = Event()

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            failed.append(error)
        finally:
            done.set()

    Thread(target=run, daemon=True, name="asking").start()
    while not done.wait(POLL_SECONDS):
        check()
    if failed:
        raise failed[0]
    return found[0]


class Answers:
    """The answers of all functions of a process, at most about `limit` bytes. Thread-safe."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = Lock()
        self._of: dict[tuple[str, pa.DataType], _OfFunction] = {}
        self._calls = 0

    @property
    def nbytes(self) -> int:
        """Return the size of what is kept."""
        with self._lock:
            return sum(each.nbytes for each in self._of.values())

    def outcome(
        self,
        key: str,
        arrays: Sequence[pa.Array],
        result: pa.DataType,
        ask: Ask,
        check: Check | None = None,
    ) -> Outcome:
        """Return values and errors of a function, of which `ask` gives those that are not kept.

        `check` is called now and then while there are none; what it raises ends the call, but not
        what was asked.
        """
        rows = len(arrays[0])
        if not self._limit or not rows:
            return ask(arrays)
        nbytes = sum(array.nbytes for array in arrays)
        most = max(1, min(PART, rows * PART_BYTES // max(nbytes, 1)))
        parts = []
        for at in range(0, rows, most):
            part = [array.slice(at, most) for array in arrays]
            hashes = row_hashes(part)
            if hashes is None:
                return ask(arrays)
            function = self._function(key, result)
            try:
                parts.append(function.outcome(part, hashes, ask, check))
            finally:  # a call that fails has taken places for its arguments
                self._forget(function)
        return joined(parts)

    def _function(self, key: str, result: pa.DataType) -> "_OfFunction":
        with self._lock:
            self._calls += 1
            found = self._of.pop((key, result), None) or _OfFunction(result)
            found.used_at = self._calls
            self._of[key, result] = found  # the one that was used last is the last
            while len(self._of) > MOST_FUNCTIONS:
                del self._of[next(iter(self._of))]
            return found

    def _forget(self, used: "_OfFunction") -> None:
        """Forget until the bound is kept.

        What is kept of functions that have not been called for a while goes first. Of the others
        those that have much have the same part of the bound.
        """
        with self._lock:
            each_has = [each for each in self._of.values() if each.nbytes > self._limit // LITTLE]
            active = sum(self._calls - each.used_at < WHILE for each in each_has)
            if used.nbytes_newer > self._limit // (2 * max(active, 1)):
                used.forget_older()
            total = sum(each.nbytes for each in self._of.values())
            while total > self._limit:
                idle = self._calls - each_has[0].used_at >= WHILE
                chosen = each_has[0] if idle else max(each_has, key=lambda each: each.nbytes)
                before = chosen.nbytes
                chosen.forget_older()
                total -= before - chosen.nbytes
                if not chosen.nbytes:
                    each_has.remove(chosen)


def joined(parts: Sequence[Outcome]) -> Outcome:
    """Return the outcome of rows, given those of their parts in order."""
    if len(parts) == 1:
        return parts[0]
    values = pa.concat_arrays([value for value, _ in parts])
    if all(error is None for _, error in parts):
        return values, None
    texts = [pa.nulls(len(v), pa.string()) if e is None else e for v, e in parts]
    return values, pa.concat_arrays(texts)


class _OfFunction:
    """The answers of one function: of a newer and an older half."""

    def __init__(self, result: pa.DataType) -> None:
        self._result = result
        self._changed = Condition()
        self._newer, self._older = _Half(result), _Half(result)
        self.used_at = 0  # the number of the call that used it last

    @property
    def nbytes(self) -> int:
        return self._newer.nbytes + self._older.nbytes

    @property
    def nbytes_newer(self) -> int:
        return self._newer.nbytes

    def forget_older(self) -> None:
        """Forget the older half, which the newer one becomes."""
        with self._changed:
            self._newer, self._older = _Half(self._result), self._newer

    def outcome(
        self,
        arrays: Sequence[pa.Array],
        hashes: tuple[Words, Words],
        ask: Ask,
        check: Check | None,
    ) -> Outcome:
        with self._changed:
            half, older = self._newer, self._older
            places = half.places(hashes)
            if len(older):
                self._move(half, older, places, hashes)
        while True:
            with self._changed:
                rows = half.claimed(places)
                if rows is None:
                    if not half.asked(places):
                        return half.answers(places)
                    self._changed.wait(WAIT_SECONDS)
            if rows is None:
                if check is not None:
                    check()
                continue
            is_whole = len(rows) == len(places)
            given = arrays if is_whole else [array.take(pa.array(rows)) for array in arrays]
            asked = partial(self._ask, half, places[rows], ask, given)
            found = asked() if check is None else waited_for(asked, check)
            if is_whole:
                return found

    def _ask(self, half: "_Half", places: Ints, ask: Ask, arrays: Sequence[pa.Array]) -> Outcome:
        """Ask for answers and keep them."""
        try:
            values, errors = ask(arrays)
        except BaseException:
            self._settle(half.give_up, places)
            raise
        self._settle(half.add, places, values, errors)
        return values, errors

    def _settle(self, how: Callable[..., None], *of: Any) -> None:
        with self._changed:
            how(*of)
            self._changed.notify_all()

    def _move(self, half: "_Half", older: "_Half", places: Ints, hashes: Any) -> None:
        """Take over the answers that only the older half has."""
        rows = half.unknown(places)
        if len(rows):
            before = older.found((hashes[0][rows], hashes[1][rows]))
            has = before >= 0
            if has.any():
                half.add(places[rows[has]], *older.answers(before[has]))


class _Half:
    """A hash table from hashes to places, of which each has an answer, or none yet."""

    def __init__(self, result: pa.DataType) -> None:
        self._slots = np.full(64, -1, np.int32)
        self._first, self._second = np.zeros(32, np.uint64), np.zeros(32, np.uint64)
        self._numbers = np.full(32, _UNKNOWN, np.int32)  # of answers, by place
        self._count = 0
        self._answers = _Parts(result)

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        kept = (self._slots, self._first, self._second, self._numbers)
        empty = self._count == 0
        return 0 if empty else sum(each.nbytes for each in kept) + self._answers.nbytes

    def places(self, hashes: tuple[Words, Words]) -> Ints:
        """Return the place of each hash, with new places for new ones."""
        first, second = hashes
        self._reserve(self._count + len(first))
        return self._probed(first, second, adds=True)

    def found(self, hashes: tuple[Words, Words]) -> Ints:
        """Return the place of each hash that has an answer, -1 for others."""
        places = self._probed(*hashes, adds=False)
        return np.where((places >= 0) & (self._numbers[places] >= 0), places, -1)

    def _probed(self, first: Words, second: Words, *, adds: bool) -> Ints:
        slots, mask = self._slots, len(self._slots) - 1
        places = np.full(len(first), -1, np.int64)
        rows = np.arange(len(first))
        at = (first & np.uint64(mask)).astype(np.int64)
        while len(rows):
            held = slots[at]
            empty = held < 0
            if empty.any():
                if adds:
                    self._enter(rows[empty], at[empty], first, second)
                    held = slots[at]
                else:
                    rows, at, held = rows[~empty], at[~empty], held[~empty]
            same = (self._first[held] == first[rows]) & (self._second[held] == second[rows])
            places[rows[same]] = held[same]
            rows, at = rows[~same], (at[~same] + 1) & mask
        return places

    def _enter(self, rows: Ints, at: Ints, first: Words, second: Words) -> None:
        """Give empty slots to rows, where several want the same one to one of them."""
        self._slots[at] = rows
        rows_in = self._slots[at] == rows
        rows, at = rows[rows_in], at[rows_in]
        end = self._count + len(rows)
        self._first[self._count : end], self._second[self._count : end] = first[rows], second[rows]
        self._slots[at] = np.arange(self._count, end)
        self._count = end

    def _reserve(self, count: int) -> None:
        if count > len(self._numbers):
            more = 2 * count - len(self._numbers)
            none = np.zeros(more, np.uint64)
            self._first = np.concatenate([self._first, none])
            self._second = np.concatenate([self._second, none])
            self._numbers = np.concatenate([self._numbers, np.full(more, _UNKNOWN, np.int32)])
        if 2 * count > len(self._slots):
            self._slots = np.full(1 << (2 * count).bit_length(), -1, np.int32)
            mask = np.uint64(len(self._slots) - 1)
            rows = np.arange(self._count)
            at = (self._first[: self._count] & mask).astype(np.int64)
            while len(rows):
                free = self._slots[at] < 0
                self._slots[at[free]] = rows[free]
                left = self._slots[at] != rows
                rows, at = rows[left], (at[left] + 1) & int(mask)

    def unknown(self, places: Ints) -> Ints:
        """Return a row for each place among those of rows for whose answer nobody has asked."""
        rows = np.flatnonzero(self._numbers[places] == _UNKNOWN)
        return rows[np.sort(np.unique(places[rows], return_index=True)[1])] if len(rows) else rows

    def claimed(self, places: Ints) -> Ints | None:
        """Return rows for whose answers the caller now asks; None if there are no such rows."""
        rows = self.unknown(places)
        if not len(rows):
            return None
        self._numbers[places[rows]] = _ASKED
        return rows

    def asked(self, places: Ints) -> bool:
        """Whether some answer is being asked for."""
        return bool((self._numbers[places] == _ASKED).any())

    def give_up(self, places: Ints) -> None:
        """Let others ask."""
        self._numbers[places] = _UNKNOWN

    def add(self, places: Ints, values: pa.Array, errors: pa.Array | None) -> None:
        """Keep answers."""
        start = self._answers.add(values, errors)
        self._numbers[places] = np.arange(start, start + len(places))

    def answers(self, places: Ints) -> Outcome:
        """Return the answers at places, which all have one."""
        return self._answers.taken(self._numbers[places])


class _Parts:
    """Values and errors in order of addition, in a number of parts that grows by the logarithm."""

    def __init__(self, result: pa.DataType) -> None:
        self._result = result
        self._parts: list[Outcome] = []
        self._starts: list[int] = []
        self._count = self.nbytes = 0

    def add(self, values: pa.Array, errors: pa.Array | None) -> int:
        """Add answers; return the number of the first one."""
        start = self._count
        self._parts.append((values, errors))
        self._starts.append(start)
        self._count += len(values)
        while len(self._parts) > 1 and len(self._parts[-2][0]) <= 2 * len(self._parts[-1][0]):
            self._parts[-2:] = [joined(self._parts[-2:])]
            self._starts.pop()
        self.nbytes = sum(
            value.nbytes + (0 if error is None else error.nbytes) for value, error in self._parts
        )
        return start

    def taken(self, numbers: Ints) -> Outcome:
        """Return the answers with these numbers."""
        part = np.searchsorted(self._starts, numbers, side="right") - 1
        used = np.unique(part)
        if len(used) == 1:
            return self._of_part(int(used[0]), numbers)
        rows = [np.flatnonzero(part == each) for each in used]
        found = [self._of_part(int(p), numbers[r]) for p, r in zip(used, rows, strict=True)]
        back = np.empty(len(numbers), np.int64)
        back[np.concatenate(rows)] = np.arange(len(numbers))
        values, errors = joined(found)
        order = pa.array(back)
        return values.take(order), None if errors is None else errors.take(order)

    def _of_part(self, part: int, numbers: Ints) -> Outcome:
        values, errors = self._parts[part]
        at = pa.array(numbers - self._starts[part])
        taken = None if errors is None else errors.take(at)
        if taken is not None and taken.null_count == len(taken):
            taken = None
        return values.take(at), taken
