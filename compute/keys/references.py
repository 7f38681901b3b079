"""Foreign keys over rows: the keys that rows refer to, and whether these are there.

A `Reference` is a foreign key resolved against the present columns of both tables. `ReferredKeys`
are the distinct keys to which some rows refer; a key with a NULL in it refers to nothing. Few keys
are tuples, many are columns, as in a key index.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.arrange.key import Words, hash_columns, pairs_equal
from foreshore.compute.arrange.run import Ints, Updates
from foreshore.compute.keys.group_keys import GroupKeys
from foreshore.compute.keys.key_casts import are_same, cast_keys
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.layout import FEW, KeyedRows, takes_tuples
from foreshore.compute.keys.own_rows import OwnRows
from foreshore.constraint import Unique
from foreshore.foreign_key import ForeignKey
from foreshore.ids import GlobalId
from foreshore.rows import split_diffs
from foreshore.table_rows import Row, TableRows, columns_of_rows
from foreshore.types import ColumnType, RelationDesc, SqlType
from foreshore.update import Timestamp

NEWEST: Timestamp = 2**63 - 1
Columns = Sequence[pa.Array]


class MixedNulls(Exception):
    """A row of MATCH FULL has a NULL beside another value."""


@dataclass(frozen=True, slots=True)
class Reference:
    """A foreign key of table `child` to the unique `constraint` of table `parent`.

    `columns` are the child's, in the order of the constraint's columns; both have `types`.
    """

    child: GlobalId
    parent: GlobalId
    key: ForeignKey
    constraint: Unique
    columns: tuple[int, ...]
    types: tuple[SqlType, ...]
    key_types: tuple[SqlType, ...]
    is_same: bool  # no value has to be cast
    takes_tuples: bool
    order: tuple[int, ...]  # for each column of the foreign key, its place among `columns`


@lru_cache(4096)
def reference_of(
    child: GlobalId,
    key: ForeignKey,
    desc: RelationDesc,
    parent: RelationDesc,
    unique: tuple[Unique, ...],
) -> Reference | None:
    """Return the foreign key `key` of table `child`, which has `desc`.

    None if no constraint of the `parent` has its columns.
    """
    places = {parent.names.index(name): at for at, name in enumerate(key.referenced)}
    found = [each for each in unique if set(each.columns) == places.keys() and each.nulls_distinct]
    if not found:
        return None
    constraint = max(found, key=lambda each: each.primary)
    columns = tuple(desc.names.index(key.columns[places[i]]) for i in constraint.columns)
    types = tuple(desc.columns[i].type for i in columns)
    key_types = tuple(parent.columns[i].type for i in constraint.columns)
    is_same = are_same(types, key_types)
    few = is_same and takes_tuples(constraint, parent)
    order = tuple(constraint.columns.index(parent.names.index(name)) for name in key.referenced)
    return Reference(
        child, key.references, key, constraint, columns, types, key_types, is_same, few, order
    )


class ReferredKeys:
    """Distinct keys of the referenced table, in its types, without NULL.

    `out_of_range` is a key, in the types of the rows, that no row of that table can have.
    """

    __slots__ = ("_columns", "hashes", "out_of_range", "reference", "tuples")

    def __init__(
        self,
        reference: Reference,
        hashes: Sequence[int],
        tuples: Sequence[Row] | None,
        columns: Columns | None,
        out_of_range: Columns | None = None,
    ) -> None:
        self.reference = reference
        self.hashes = hashes
        self.tuples = tuples
        self._columns = columns
        self.out_of_range = out_of_range

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def columns(self) -> Columns:
        """The keys as columns."""
        if self._columns is None:
            assert self.tuples is not None
            types = [ColumnType(type) for type in self.reference.key_types]
            self._columns = columns_of_rows(self.tuples, types)
        return self._columns

    def take(self, places: Sequence[int]) -> "ReferredKeys":
        """Return the keys at `places`."""
        tuples = None if self.tuples is None else [self.tuples[i] for i in places]
        columns = None
        if tuples is None:
            columns = [column.take(pa.array(places, pa.int64())) for column in self.columns]
        return ReferredKeys(self.reference, [self.hashes[i] for i in places], tuples, columns)


def referred_keys(
    reference: Reference, index: KeyIndex, new: TableRows, old: TableRows | None
) -> ReferredKeys:
    """Return the keys to which `new` rows refer and no `old` row that they replace does.

    `index` is that of the referenced key. Raises MixedNulls.
    """
    if _are_few(reference, new, old):
        found = dict.fromkeys(_tuples(reference, new))
        for key in _tuples(reference, old) if old is not None else ():
            found.pop(key, None)
        return _few_keys(reference, index, found)
    columns = _valid_columns(reference, new)
    before = None if old is None else _valid_columns(reference, old)
    return keys_of_columns(reference, columns, before)


def _are_few(reference: Reference, *parts: TableRows | None) -> bool:
    """Whether keys are compared as tuples."""
    if not reference.takes_tuples:
        return False
    for part in parts:
        if part is not None and not (part.are_tuples and part.num_rows <= FEW):
            return False
    return True


def _few_keys(reference: Reference, index: KeyIndex, keys: Iterable[Row]) -> ReferredKeys:
    found = [*keys]
    return ReferredKeys(reference, list(map(index.layout.hash, found)), found, None)


def with_changed_reference(reference: Reference, old: TableRows, new: TableRows) -> TableRows:
    """Return the `new` rows that refer to another key than the `old` row in the same place."""
    (before, _), (after, diffs) = split_diffs(old.table), split_diffs(new.table)
    differs = np.zeros(new.num_rows, np.bool_)
    for i, type in zip(reference.columns, reference.types, strict=True):
        differs |= ~pairs_equal(before[i], after[i], type)
    mask = pa.array(differs)
    kept = [column.filter(mask) for column in after]
    return TableRows.of_columns(new.desc, kept, diffs.filter(mask))


def _tuples(reference: Reference, rows: TableRows) -> list[Row]:
    found = []
    for row in rows.tuples:
        key = tuple([row[i] for i in reference.columns])
        if None not in key:
            found.append(key)
        elif reference.key.match_full and any(part is not None for part in key):
            raise MixedNulls
    return found


def _valid_columns(reference: Reference, rows: TableRows) -> Columns:
    columns, _ = split_diffs(rows.table)
    return without_nulls(reference, [columns[i] for i in reference.columns])


def without_nulls(reference: Reference, columns: Columns) -> Columns:
    """Return the rows of a foreign key's columns that refer to something; raises MixedNulls."""
    if not any(column.null_count for column in columns):
        return columns
    valid = columns[0].is_valid()
    some = valid
    for column in columns[1:]:
        valid, some = pc.and_(valid, column.is_valid()), pc.or_(some, column.is_valid())
    if reference.key.match_full and pc.any(pc.and_not(some, valid)).as_py():
        raise MixedNulls
    return [column.filter(valid) for column in columns]


def keys_of_columns(
    reference: Reference, columns: Columns, before: Columns | None = None
) -> ReferredKeys:
    """Return the distinct keys of a foreign key's columns without those of `before`."""
    places = distinct_places(columns, reference.types)
    if before is not None and len(places):
        known = hash_columns(before, reference.types, len(before[0]))
        here = hash_columns(columns, reference.types, len(columns[0]))[places]
        places = places[~np.isin(here, known)]
    columns = [column.take(pa.array(places)) for column in columns]
    out_of_range = None
    cast = list(columns)
    if not reference.is_same:
        cast, valid = cast_keys(columns, reference.types, reference.key_types)
        if not valid.all():
            at = pa.array(np.flatnonzero(~valid)[:1])
            out_of_range = [column.take(at) for column in columns]
            cast = [column.filter(pa.array(valid)) for column in cast]
    hashes = hash_columns(cast, reference.key_types, len(cast[0]))
    return ReferredKeys(reference, hashes.tolist(), None, cast, out_of_range)


def distinct_places(columns: Columns, types: Sequence[SqlType]) -> Ints:
    """Return the place of the first of each group of equal keys, in order; NULLs are equal."""
    hashes = hash_columns(columns, types, len(columns[0]))
    _, firsts, groups = np.unique(hashes, return_index=True, return_inverse=True)
    if len(firsts) == len(hashes):
        return np.arange(len(hashes))
    first = pa.array(firsts[groups])
    for column, type in zip(columns, types, strict=True):
        if not pairs_equal(column, column.take(first), type).all():
            return np.arange(len(hashes))  # two keys have one hash
    return np.sort(firsts)


def missing_places(index: KeyIndex, own: OwnRows | None, keys: ReferredKeys) -> Sequence[int]:
    """Return the places of keys that no row has at the newest time, with a transaction's `own`."""
    if keys.tuples is not None and (own is None or own.newest is not None):
        written = own.newest if own is not None and own.newest is not None else {}
        places = []
        for place, (hash, key) in enumerate(zip(keys.hashes, keys.tuples, strict=True)):
            row = written[key] if key in written else index.newest.newest(hash, key).row
            if row is None:
                places.append(place)
        return places
    if not len(keys):
        return ()
    there, _ = index.look_up(own).find(keys.columns, NEWEST)
    missing: list[int] = np.setdiff1d(np.arange(len(keys)), there, assume_unique=False).tolist()
    return missing


def gone_keys(
    reference: Reference,
    index: KeyIndex,
    old: TableRows,
    new: TableRows | None,
    beside: TableRows | None = None,
) -> ReferredKeys:
    """Return the keys of `old` rows of the referenced table that no `new` row has.

    Nor a row in `beside`. `index` is that of the key.
    """
    if _are_few(reference, old, new, beside):
        found = dict.fromkeys(map(index.layout.key, old.tuples))
        found.pop(None, None)
        for other in (new, beside):
            for row in () if other is None else other.tuples:
                found.pop(index.layout.key(row), None)
        return _few_keys(reference, index, filter(None, found))
    columns = _key_columns(reference, old)
    hashes = hash_columns(columns, reference.key_types, len(columns[0]))
    kept = np.ones(len(hashes), np.bool_)
    for other in (new, beside):
        if other is not None and other.num_rows:
            known = _key_columns(reference, other)
            kept &= ~np.isin(hashes, hash_columns(known, reference.key_types, len(known[0])))
    columns = [column.filter(pa.array(kept)) for column in columns]
    return ReferredKeys(reference, hashes[kept].tolist(), None, columns)


def changed_keys(
    reference: Reference, index: KeyIndex, old: TableRows, new: TableRows
) -> ReferredKeys:
    """Return the keys of `old` rows that differ from those of the `new` rows, in the same order."""
    if _are_few(reference, old, new):
        pairs = zip(
            map(index.layout.key, old.tuples), map(index.layout.key, new.tuples), strict=True
        )
        found = dict.fromkeys(before for before, after in pairs if before != after)
        return _few_keys(reference, index, filter(None, found))
    before, after = key_columns(reference, old), key_columns(reference, new)
    differs = np.zeros(old.num_rows, np.bool_)
    valid = np.ones(old.num_rows, np.bool_)
    for one, other, type in zip(before, after, reference.key_types, strict=True):
        differs |= ~pairs_equal(one, other, type)
        valid &= one.is_valid().to_numpy(zero_copy_only=False)
    columns = [column.filter(pa.array(differs & valid)) for column in before]
    hashes = hash_columns(columns, reference.key_types, len(columns[0]))
    return ReferredKeys(reference, hashes.tolist(), None, columns)


def key_columns(reference: Reference, rows: TableRows) -> Columns:
    """Return the referenced columns of rows."""
    columns, _ = split_diffs(rows.table)
    return [columns[i] for i in reference.constraint.columns]


def _key_columns(reference: Reference, rows: TableRows) -> Columns:
    """Return the referenced columns of rows in which none of them is NULL."""
    keys = key_columns(reference, rows)
    if not any(key.null_count for key in keys):
        return keys
    valid = keys[0].is_valid()
    for key in keys[1:]:
        valid = pc.and_(valid, key.is_valid())
    return [key.filter(valid) for key in keys]


# --- group commit ----------------------------------------------------------------------------


def missing_at_commit(
    index: KeyIndex,
    keys: ReferredKeys,
    checked: Timestamp,
    earlier: GroupKeys,
    mine: Sequence[KeyedRows],
) -> int | None:
    """Return the place of a key that is there no more after `earlier` writes and `mine`.

    All were there at some time at or after `checked`, with `mine`.
    """
    if index.newest.changed <= checked and not earlier.writes(index.layout):
        return None
    layout, name = index.layout, index.constraint.name
    hashes = np.array(keys.hashes, np.uint64)
    if len(hashes) <= FEW:
        at = [
            place
            for place, hash in enumerate(keys.hashes)
            if index.latest([hash]) > checked or earlier.has(index.table, name, [hash])
        ]
    else:
        changed = [index.settled().changed_since(checked)]
        changed += [part.key_hashes for part in earlier.updates(layout, hashes)]
        at = np.flatnonzero(np.isin(hashes, np.concatenate(changed))).tolist()
    if not at:
        return None
    suspects = keys.take(at)
    wanted = np.array(suspects.hashes, np.uint64)
    places, _ = index.look_up().find(suspects.columns, NEWEST)
    counts = np.bincount(places, minlength=len(suspects)).astype(np.int64)
    for part in (*earlier.updates(layout, wanted), *(each.updates for each in mine)):
        counts += _diffs_of(index, suspects.columns, wanted, part)
    gone = np.flatnonzero(counts <= 0)
    return at[int(gone[0])] if len(gone) else None


def _diffs_of(index: KeyIndex, keys: Columns, hashes: Words, part: Updates) -> Ints:
    """Return the sum of the diffs of `part` under each of `keys`, which are distinct."""
    sums = np.zeros(len(hashes), np.int64)
    order = np.argsort(hashes, kind="stable")
    starts = hashes[order].searchsorted(part.key_hashes)
    ends = hashes[order].searchsorted(part.key_hashes, "right")
    while (left := np.flatnonzero(starts < ends)).size:
        places = order[starts[left]]
        equal = np.ones(len(left), np.bool_)
        there = index.layout.key_of(part.rows)
        for key, column, type in zip(keys, there, index.layout.types, strict=True):
            found = column.take(pa.array(left))
            equal &= pairs_equal(key.take(pa.array(places)), found, type)
        np.add.at(sums, places[equal], part.diffs[left[equal]])
        starts[left] += 1
    return sums
