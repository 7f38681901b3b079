"""Rows one by one against a plain model, with keys that share hashes, and groups of both forms."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.compute.keys import layout as layout_module
from foreshore.compute.keys import newest_rows as newest_rows_module
from foreshore.compute.keys.group_keys import GroupKeys
from foreshore.compute.keys.key_index import Duplicate, KeyIndex
from foreshore.compute.keys.key_indexes import KeyIndexes
from foreshore.compute.keys.layout import FEW, Change, KeyedRows, KeyLayout
from foreshore.compute.keys.newest_rows import NewestRows
from foreshore.compute.keys.own_rows import OwnRows
from foreshore.constraint import Unique
from foreshore.ids import GlobalId
from foreshore.storage.corruption import Corruptions
from foreshore.table_rows import Row, TableRows
from foreshore.types import INT4, TEXT, ColumnType, RelationDesc
from tests.effort import examples

T = GlobalId("u1")
DESC = RelationDesc(("k", "v"), (ColumnType(INT4), ColumnType(TEXT)))
KEYS = range(6)

commands = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.lists(st.sampled_from(KEYS), max_size=4)),
        st.tuples(st.just("ask"), st.sampled_from(KEYS)),
        st.tuples(st.just("settle"), st.none()),
        st.tuples(st.just("merge"), st.none()),
        st.tuples(st.just("compact"), st.none()),
    ),
    max_size=40,
)


@settings(max_examples=examples(200))
@given(commands, st.sampled_from([1, 2, 7]), st.sampled_from([0, 900, 1 << 20]))
def test_newest_rows_agree_with_model(
    commands: list[tuple[str, object]], hashes: int, most: int
) -> None:
    """`hashes` are how many there are, `most` the bytes after which all is forgotten."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(newest_rows_module, "MOST_BYTES", most)
        layout = KeyLayout(T, Unique("k", (0,)), DESC)
        arrangement = layout.arrangement(0)
        rows = NewestRows(layout, arrangement)
        there: dict[int, tuple[Row, int]] = {}  # the row and the time
        touched: dict[int, int] = {}  # when each key was last changed
        time = 0
        for command, argument in commands:
            if command == "write":
                assert isinstance(argument, list)
                time += 1
                changes = []
                for key in argument:
                    old = there.pop(key, None)
                    if old is not None:
                        changes.append(Change(key % hashes, (key,), old[0], -1))
                    if old is None or key % 2:
                        new: Row = (key, f"{key} at {time}.{len(changes)}")
                        changes.append(Change(key % hashes, (key,), new, 1))
                        there[key] = new, time
                    touched[key] = time
                if changes:
                    rows.apply(changes, time)
                else:
                    rows.advance(time + 1)
            elif command == "settle":
                rows.settle()
            elif command == "compact":
                arrangement.compact(time)
            elif command == "merge":
                rows.settle()
                while arrangement.maintain():
                    pass
            for key in [argument] if command == "ask" else []:
                assert isinstance(key, int)
                entry = rows.newest(key % hashes, (key,))
                assert entry.row == (there[key][0] if key in there else None)
                assert touched.get(key, 0) <= entry.time <= time
                same = [touched.get(each, 0) for each in KEYS if each % hashes == key % hashes]
                assert max(same) <= rows.latest(key % hashes) <= time
            assert rows.upper == time + 1 or time == 0
        rows.settle()
        found = arrangement.scan(time) if time else arrangement.schema.empty_table()
        assert Counter(map(tuple, (r.values() for r in found.to_pylist()))) == Counter(
            row for row, _ in there.values()
        )


writes = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from(KEYS), st.booleans()), min_size=1, max_size=3),
        st.booleans(),  # whether it comes as columns
    ),
    max_size=12,
)


@settings(max_examples=examples(150))
@given(writes, st.lists(st.integers(1, 4), min_size=12, max_size=12))
def test_group_finds_the_same_duplicates_in_tuples_and_columns(
    writes: list[tuple[list[tuple[int, bool]], bool]], sizes: list[int]
) -> None:
    """What a group refuses does not depend on the form in which the rows come."""
    indexes = KeyIndexes(lambda id: 0, Corruptions())
    index = KeyIndex(T, Unique("k", (0,)), DESC, 0)
    index.insert([], 0)
    indexes.replace(T, {"k": index})
    there: Counter[Row] = Counter()
    time = 0
    pending = list(writes)
    try:
        while pending:
            time += 1
            group, pending = pending[: sizes[time % 12]], pending[sizes[time % 12] :]
            earlier = GroupKeys()
            taken: list[KeyedRows] = []
            for changes, as_columns in group:
                going = Counter[Row]((key, "x") for key, comes in changes if not comes) & there
                coming = [(key, "x") for key, comes in changes if comes]
                rows: list[Row] = [*going.elements(), *coming]
                diffs = [-1] * going.total() + [1] * len(coming)
                after = there - going + Counter(coming)
                if not rows:
                    continue
                part = keyed(index, rows, diffs, as_columns=as_columns)
                found = indexes.duplicate({T: [{"k": part}]}, -1, earlier)  # not checked before
                twice = [row for row in coming if after[row] > 1]
                assert (found is not None) == bool(twice)
                if found is not None:
                    assert isinstance(found, Duplicate)
                    assert found.key in [row[:1] for row in twice]
                    continue
                earlier.add({T: [{"k": part}]})
                taken.append(part)
                there = after
            index.insert(taken, time)
            for key in KEYS:
                entry = index.newest.newest(index.layout.hash((key,)), (key,))
                assert (entry.row is not None) == bool(there[key, "x"])
            places, batch = index.find([pa.array(list(KEYS), pa.int32())], time)
            assert len(places) == batch.num_rows == there.total()
            assert np.all(np.bincount(places, minlength=len(KEYS)) <= 1)
    finally:
        indexes.close()


def keyed(index: KeyIndex, rows: list[Row], diffs: list[int], *, as_columns: bool) -> KeyedRows:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layout_module, "FEW", -1 if as_columns else FEW)
        return index.keyed(TableRows(DESC, rows, diffs))


@settings(max_examples=examples(150))
@given(writes, st.lists(st.sampled_from(KEYS), max_size=4, unique=True))
def test_own_rows_count_the_same_as_tuples_and_as_columns(
    writes: list[tuple[list[tuple[int, bool]], bool]], committed: list[int]
) -> None:
    index = KeyIndex(T, Unique("k", (0,)), DESC, 0)
    index.insert(
        [keyed(index, [(k, "x") for k in committed], [1] * len(committed), as_columns=False)], 1
    )
    own = OwnRows(index.layout)
    there: Counter[Row] = Counter((k, "x") for k in committed)
    for changes, as_columns in writes:
        changes = sorted(changes, key=lambda each: each[1])  # deletes come first
        rows: list[Row] = [(k, "x") for k, _ in changes]
        diffs = [1 if comes else -1 for _, comes in changes]
        after = there.copy()
        for row, diff in zip(rows, diffs, strict=True):
            after[row] += diff
        part = keyed(index, rows, diffs, as_columns=as_columns)
        inserted = {row for row, diff in zip(rows, diffs, strict=True) if diff > 0}
        deleted = set(rows) - inserted
        gone = Counter(row for row, diff in zip(rows, diffs, strict=True) if diff < 0)
        if inserted and gone - there:
            continue  # a statement deletes rows that it has read, so they are there
        duplicate = index.duplicate([part], own)
        assert (duplicate is not None) == any(after[row] > 1 for row in inserted)
        if deleted and not inserted:
            lost = index.overdrawn([part], own)
            assert (lost is not None and lost <= 1) == any(after[row] < 0 for row in deleted)
        if min(after.values()) >= 0 and max(after.values()) <= 1:
            written = TableRows(DESC, rows, diffs)
            if as_columns and len(rows) > 2:
                written = TableRows.of_table(DESC, written.table)
            own.add(part, written)
            there = after
            assert (
                part.changes is None
                or own.newest is None
                or own.newest.keys() >= set(index.layout.key(row) for row in rows)
            )
            _, found = index.find([pa.array(list(KEYS), pa.int32())], 1, own)
            assert found.num_rows == there.total()
