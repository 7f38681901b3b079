"""Values that are computed once for each object, found without hashing what the object holds.

The hash of a schema or of a table's description goes over all of its columns, which costs more
than the statement about one row that asks for it.
"""

from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class ByIdentity(Generic[K, V]):
    """A function of immutable objects that keeps its values, and the objects, up to `most`."""

    def __init__(self, compute: Callable[[K], V], most: int) -> None:
        self._compute = compute
        self._most = most
        self._kept: dict[int, tuple[K, V]] = {}  # by the address of the object, which is kept

    def __call__(self, key: K) -> V:
        """Return the value of `key`."""
        found = self._kept.get(id(key))
        if found is not None:
            return found[1]
        value = self._compute(key)
        if len(self._kept) >= self._most:
            self._kept.clear()
        self._kept[id(key)] = key, value
        return value
