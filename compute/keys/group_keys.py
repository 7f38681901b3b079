"""The keys that a group commit writes; writes that join the group later are checked with them."""

from collections.abc import Mapping, Sequence

import numpy as np

from foreshore.compute.arrange.key import Words
from foreshore.compute.arrange.run import Updates
from foreshore.compute.keys.layout import FEW, Change, KeyedRows, KeyLayout, SecondaryName
from foreshore.compute.keys.per_run import LARGE
from foreshore.ids import GlobalId

# Rows on their way into a table, for each of its unique constraints.
Keyed = Mapping[str, KeyedRows]

_ByHash = dict[int, list[Change | Updates]]


class GroupKeys:
    """The writes of a group so far: few by the hash of each key, many as they are."""

    def __init__(self) -> None:
        self._few: dict[tuple[GlobalId, str], _ByHash] = {}
        self._many: dict[tuple[GlobalId, str], list[Updates]] = {}
        self._parts: dict[tuple[GlobalId, str], list[KeyedRows]] = {}
        self._secondary: dict[tuple[GlobalId, SecondaryName], tuple[int, set[int]]] = {}

    def add(self, keyed: Mapping[GlobalId, Sequence[Keyed]]) -> None:
        """Add what one more write of the group writes."""
        for table, parts in keyed.items():
            for part in parts:
                for name, rows in part.items():
                    self._add(table, name, rows)

    def _add(self, table: GlobalId, name: str, rows: KeyedRows) -> None:
        self._parts.setdefault((table, name), []).append(rows)
        if rows.changes is not None:
            by_hash = self._few.setdefault((table, name), {})
            for change in rows.changes:
                by_hash.setdefault(change.hash, []).append(change)
        elif len(rows) <= FEW:
            by_hash = self._few.setdefault((table, name), {})
            for place, hash in enumerate(rows.updates.key_hashes.tolist()):
                by_hash.setdefault(hash, []).append(rows.updates.slice(place, place + 1))
        else:
            self._many.setdefault((table, name), []).append(rows.updates)

    def writes(self, layout: KeyLayout) -> bool:
        """Whether any row of the table has been written."""
        return (layout.table, layout.constraint.name) in self._parts

    def has(self, table: GlobalId, name: str, hashes: Sequence[int]) -> bool:
        """Whether one of these keys has been written."""
        by_hash = self._few.get((table, name))
        if by_hash and any(hash in by_hash for hash in hashes):
            return True
        many = self._many.get((table, name), ())
        return any(np.isin(np.array(hashes, np.uint64), each.key_hashes).any() for each in many)

    def has_by(self, layout: KeyLayout, columns: tuple[int, ...], hashes: Sequence[int]) -> bool:
        """Whether a row has been written in which other columns have one of `hashes`.

        `layout` is that of a key by which all rows are known. Rows that are too many to be hashed
        on the event loop count as such.
        """
        name = layout.constraint.name
        parts = self._parts.get((layout.table, name), ())
        place = layout.table, SecondaryName(name, columns)
        done, known = self._secondary.get(place, (0, set[int]()))
        if any(len(part) > LARGE for part in parts[done:]):
            return True
        if done < len(parts):
            by = layout.by(columns)
            for part in parts[done:]:
                known.update(by.hashes(by.key_of(part.updates.rows)).tolist())
            self._secondary[place] = len(parts), known
        return not known.isdisjoint(hashes)

    def changes(self, layout: KeyLayout, hashes: Sequence[int]) -> list[Change] | None:
        """Return the writes of keys one by one; None if some were written as columns."""
        place = (layout.table, layout.constraint.name)
        if place in self._many:
            return None
        found: list[Change] = []
        by_hash = self._few.get(place)
        for hash in dict.fromkeys(hashes) if by_hash else ():
            for each in by_hash.get(hash, ()):  # type: ignore[union-attr]
                if isinstance(each, Updates):
                    return None
                found.append(each)
        return found

    def updates(self, layout: KeyLayout, hashes: Words) -> list[Updates]:
        """Return the writes of keys as columns."""
        place = (layout.table, layout.constraint.name)
        found = with_hashes(self._many.get(place, ()), hashes)
        by_hash = self._few.get(place)
        if by_hash:
            known = np.fromiter(by_hash, np.uint64, len(by_hash))
            few = [
                each for hash in known[np.isin(known, hashes)].tolist() for each in by_hash[hash]
            ]
            found += [each for each in few if isinstance(each, Updates)]
            changes = [each for each in few if isinstance(each, Change)]
            found += [layout.updates_of(changes)] if changes else []
        return found


def with_hashes(parts: Sequence[Updates], hashes: Words) -> list[Updates]:
    """Return the updates whose key has one of `hashes`."""
    found = []
    for part in parts:
        places = np.flatnonzero(np.isin(part.key_hashes, hashes))
        if len(places):
            found.append(part.take(places))
    return found
