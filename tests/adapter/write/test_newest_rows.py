"""Rows one by one against a plain model, with keys that share hashes, and groups of both forms."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.adapter.write import newest_rows as newest_rows_module
from foreshore.adapter.write.key_index import Changes, Duplicate, Earlier, KeyIndex, KeyIndexes
from foreshore.adapter.write.newest_rows import Change, NewestRows
from foreshore.adapter.write.values import Row, Values
from foreshore.compute.arrange.arrangement import Arrangement
from foreshore.compute.arrange.run import Updates
from foreshore.constraint import Unique
from foreshore.ids import GlobalId
from foreshore.storage.corruption import Corruptions
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
def test_it_knows_the_newest_row_of_each_key(
    commands: list[tuple[str, object]], hashes: int, most: int
) -> None:
    """`hashes` are how many there are, `most` the bytes after which all is forgotten."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(newest_rows_module, "MOST_BYTES", most)
        schema = DESC.arrow_schema()
        arrangement = Arrangement("t", schema, [INT4], lambda rows: [rows.column(0)], 0)
        rows = NewestRows(arrangement, DESC.columns, (0,))
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
def test_groups_of_rows_and_columns_are_told_their_duplicates(
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
            earlier = Earlier()
            taken: list[Updates | Changes] = []
            for changes, as_columns in group:
                going = Counter[Row]((key, "x") for key, comes in changes if not comes) & there
                coming = [(key, "x") for key, comes in changes if comes]
                rows: list[Row] = [*going.elements(), *coming]
                diffs = [-1] * going.total() + [1] * len(coming)
                after = there - going + Counter(coming)
                if not rows:
                    continue
                values = Values(DESC, rows, diffs)
                part = index.prepare(values.table()) if as_columns else index.changes(values)
                found = indexes.duplicate({T: [{"k": part}]}, time - 1, earlier)
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
                entry = index.newest.newest(index.hash((key,)), (key,))
                assert (entry.row is not None) == bool(there[key, "x"])
            places, batch = index.find([pa.array(list(KEYS), pa.int32())], time)
            assert len(places) == batch.num_rows == there.total()
            assert np.all(np.bincount(places, minlength=len(KEYS)) <= 1)
    finally:
        indexes.close()
