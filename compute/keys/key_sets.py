"""Sets of keys of tables, by the hashes that they have: what a transaction locks or has read.

Few sets of many hashes are compared and joined at the speed of sets, not key by key.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import TypeAlias

from foreshore.compute.keys.layout import KeyName
from foreshore.ids import GlobalId

KeyPlace: TypeAlias = tuple[GlobalId, KeyName]  # a table, and the name of one of its keys
Keys: TypeAlias = Mapping[KeyPlace, AbstractSet[int]]  # hashes by that key

NO_KEYS: Keys = {}
_NONE: frozenset[int] = frozenset()


def keys_of(table: GlobalId, name: KeyName, hashes: Iterable[int]) -> Keys:
    """Return keys of one table."""
    found = frozenset(hashes)
    return {(table, name): found} if found else NO_KEYS


def joined(*parts: Keys) -> Keys:
    """Return the keys of all `parts`."""
    whole: dict[KeyPlace, AbstractSet[int]] = {}
    for part in parts:
        for place, hashes in part.items():
            before = whole.get(place)
            whole[place] = hashes if before is None else before | hashes
    return whole


def covers(keys: Keys, others: Keys) -> bool:
    """Return whether `keys` has all of `others`."""
    return all(hashes <= keys.get(place, _NONE) for place, hashes in others.items())


def are_disjoint(keys: Keys, others: Keys) -> bool:
    """Return whether no key is in both."""
    return all(hashes.isdisjoint(keys.get(place, _NONE)) for place, hashes in others.items())
