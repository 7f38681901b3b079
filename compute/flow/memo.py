"""Memos: the values of a scalar over one column of strings, by the number of the string.

The registry's functions cost tens of microseconds a call, however few rows there are. Strings come
again and again, so their values are kept, until a cycle begins in which strings are forgotten.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from foreshore.compute.flow.batch import Ints
from foreshore.compute.flow.kernels.memo import look_up

MOST = 1 << 16  # strings

# Low and high words, where they are NULL, and the numbers of errors.
Values = tuple[Ints, Ints, Any, Ints]


class Memo:
    """The values for up to `MOST` strings; beyond that it begins anew."""

    def __init__(self) -> None:
        self._generation = 0  # of the interner
        self._forget()

    def _forget(self) -> None:
        self._count = 0
        self._known = np.zeros(256, np.int64)
        self._places = np.zeros(256, np.int64)
        self._values = _room(64)

    @property
    def nbytes(self) -> int:
        """Return the size in memory."""
        return sum(each.nbytes for each in (self._known, self._places, *self._values))

    def values(self, ids: Ints, evaluate: Callable[[Ints], Values], generation: int) -> Values:
        """Return the values for strings, of which `evaluate` computes those for new ones.

        `generation` is that of the interner.
        """
        ids = np.ascontiguousarray(ids)
        if generation != self._generation:
            self._generation = generation
            self._forget()
        if len(ids) > MOST // 4:
            return evaluate(ids)
        if self._count + len(ids) > MOST:
            self._forget()
        self._reserve(self._count + len(ids))
        found = np.empty(len(ids), np.int64)
        new = look_up(ids, self._known, self._places, self._count, found)
        if len(new):
            try:
                made = evaluate(new)
            except BaseException:
                self._forget()
                raise
            end = self._count + len(new)
            for held, values in zip(self._values, made, strict=True):
                held[self._count : end] = values
            self._count = end
        low, high, null, error = (held[found] for held in self._values)
        return low, high, null, error

    def _reserve(self, count: int) -> None:
        if count > len(self._values[0]):
            room = _room(2 * count)
            for held, larger in zip(self._values, room, strict=True):
                larger[: self._count] = held[: self._count]
            self._values = room
        if 2 * count > len(self._known):
            known = self._known[self._known != 0] - 1
            old = self._places[self._known != 0]
            size = 1 << (2 * count).bit_length()
            self._known, self._places = np.zeros(size, np.int64), np.zeros(size, np.int64)
            order = np.argsort(old)
            look_up(known[order], self._known, self._places, 0, np.empty(len(old), np.int64))


def _room(size: int) -> Values:
    return (
        np.zeros(size, np.int64),
        np.zeros(size, np.int64),
        np.zeros(size, np.bool_),
        np.zeros(size, np.int64),
    )
