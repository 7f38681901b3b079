"""Maps that are values: a changed one shares what it can with the one before.

A `LayeredMap` is a dictionary that many versions share, and a small one with what this version has
otherwise. To change some entries takes a time in proportion to them and to the small dictionary,
which is put into a new shared one when it has grown to the root of the whole. So a change of a map
with n entries takes O(sqrt n) on average, and two versions near each other are compared without
looking at what they share.
"""

from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from math import isqrt
from typing import Any, Final, Generic, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

LEAST_TOP: Final = 64

_GONE: Final[Any] = object()


class LayeredMap(Mapping[K, V], Generic[K, V]):
    """An immutable mapping, in the order in which the entries were last set."""

    __slots__ = ("_base", "_size", "_top", "_whole")

    def __init__(self, entries: Mapping[K, V] | None = None) -> None:
        """Copy `entries`."""
        self._base: dict[K, V] = dict(entries or {})
        self._top: dict[K, V] = {}
        self._size = len(self._base)
        self._whole: dict[K, V] | None = self._base  # all entries, once they were asked for

    def __getitem__(self, key: K) -> V:
        """Return the value of a key."""
        found: V = self.get(key, _GONE)
        if found is _GONE:
            raise KeyError(key)
        return found

    @overload
    def get(self, key: K, /) -> V | None: ...

    @overload
    def get(self, key: K, /, default: V | T) -> V | T: ...

    def get(self, key: Any, /, default: Any = None) -> Any:
        """Return the value of a key, or `default`."""
        if self._top:
            found = self._top.get(key, self)
            if found is not self:
                return default if found is _GONE else found
        return self._base.get(key, default)

    def __contains__(self, key: Any) -> bool:
        """Return whether there is a value for a key."""
        if key in self._top:
            return self._top[key] is not _GONE
        return key in self._base

    def _entries(self) -> dict[K, V]:
        if self._whole is None:
            top = self._top
            whole = {key: value for key, value in self._base.items() if key not in top}
            whole.update((key, value) for key, value in top.items() if value is not _GONE)
            self._whole = whole
        return self._whole

    def __iter__(self) -> Iterator[K]:
        """Yield the keys, those that were set last at the end."""
        return iter(self._entries())

    def __len__(self) -> int:
        """Return the number of entries."""
        return self._size

    def keys(self) -> KeysView[K]:
        """Return the keys as a set."""
        return self._entries().keys()

    def values(self) -> ValuesView[V]:
        """Return the values."""
        return self._entries().values()

    def items(self) -> ItemsView[K, V]:
        """Return the entries."""
        return self._entries().items()

    def __repr__(self) -> str:
        """Return the entries as a dictionary's."""
        return f"LayeredMap({self._entries()!r})"

    def changed(self, changes: Mapping[K, V | None]) -> "LayeredMap[K, V]":
        """Return this map with other entries; None removes one, if it is there."""
        if not changes:
            return self
        top, base, size = dict(self._top), self._base, self._size
        for key, value in changes.items():
            size -= key in self
            top.pop(key, None)
            if value is not None:
                top[key] = value
                size += 1
            elif key in base:
                top[key] = _GONE
        new: LayeredMap[K, V] = LayeredMap.__new__(LayeredMap)
        new._base, new._top, new._size, new._whole = base, top, size, None
        if len(top) > max(LEAST_TOP, isqrt(2 * len(base))):
            new._base, new._top = new._entries(), {}
        return new

    def keys_changed_since(self, old: "LayeredMap[K, V]") -> list[K]:
        """Return the keys whose values are not the same objects in `old`.

        First those that are here, then those that are only there.
        """
        if self._base is not old._base:
            found = [key for key, value in self.items() if old.get(key, _GONE) is not value]
            return [*found, *(key for key in old if key not in self)]
        known = [*self._top, *(key for key in old._top if key not in self._top)]
        found = [key for key in known if self.get(key, _GONE) is not old.get(key, _GONE)]
        return [*(key for key in found if key in self), *(key for key in found if key not in self)]
