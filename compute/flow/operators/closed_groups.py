"""Operators whose state is by groups, and which can forget those that do not change again."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from foreshore.compute.flow.batch import Words
from foreshore.compute.flow.layout import Place
from foreshore.compute.presence import Bits

LEAST_TO_FORGET = 1 << 10  # rows of state


class Kept(Protocol):
    """Rows that begin with the words of a group's key."""

    def __len__(self) -> int:
        """Return the number of rows."""
        ...

    def forget(self, gone: Callable[[Words], Bits]) -> None:
        """Forget the rows for which `gone` returns true."""
        ...


class ClosedGroups(ABC):
    """The base of operators that forget closed groups."""

    _left = 0  # rows of state after the last `forget`

    @property
    @abstractmethod
    def by_group(self) -> tuple[Kept, ...]:
        """Return what is kept by groups."""

    def forget(self, place: Place, through: int) -> None:
        """Forget groups whose value at `place` of the key is at most `through`.

        Nothing happens until there are twice as many rows of state as were left the last time: so
        a row costs as much as it costs to copy it a few times.
        """
        kept = self.by_group
        if sum(map(len, kept)) < max(LEAST_TO_FORGET, 2 * self._left):
            return

        def gone(words: Words) -> Bits:
            found: Bits = words[:, place.word] <= through
            if place.bit >= 0:
                word, bit = divmod(place.bit, 64)
                found &= (words[:, word] >> bit & 1) == 0
            return found

        for each in kept:
            each.forget(gone)
        self._left = sum(map(len, kept))


class ClosedRows(ClosedGroups):
    """Rows that a join looks up; `place` is that of a value in them."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept

    @property
    def by_group(self) -> tuple[Kept, ...]:
        """Return the rows."""
        return (self._kept,)
