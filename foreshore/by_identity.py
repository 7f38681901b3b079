"""Values that are computed once for each object, found without hashing what the object holds.

The hash of a schema or of a table's description goes over all of its columns, which costs more
than the statement about one row that asks for it.
"""

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class ByIdentity(Generic[K, V]):
    """A function of immutable objects that keeps its values as long as the objects live.

    A value must not refer to its object.
    """

    def __init__(self, compute: Callable[[K], V]) -> None:
        self._compute = compute
        # By the address of the object, with what forgets it before the address is used again.
        self._kept: dict[int, tuple[weakref.ref[K], V]] = {}

    def __call__(self, key: K) -> V:
        """Return the value of `key`."""
        found = self._kept.get(id(key))
        if found is not None:
            return found[1]
        value = self._compute(key)
        self._kept[id(key)] = weakref.ref(key, partial(self._forget, id(key))), value
        return value

    def _forget(self, address: int, _: Any) -> None:
        self._kept.pop(address, None)
