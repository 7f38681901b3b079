"""Secondary keys against a plain model: the rows at each time by columns that are no key."""

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.compute.arrange import arrangement as arrangement_module
from foreshore.compute.keys import group_keys as group_keys_module
from foreshore.compute.keys import layout as layout_module
from foreshore.compute.keys import per_run as per_run_module
from foreshore.compute.keys import secondary as secondary_module
from foreshore.compute.keys.group_keys import GroupKeys
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.layout import KeyedRows
from foreshore.compute.keys.own_rows import OwnRows
from foreshore.constraint import Unique
from foreshore.ids import GlobalId
from foreshore.table_rows import TableRows
from foreshore.types import INT4, TEXT, ColumnType, RelationDesc
from foreshore.update import DIFF_FIELD
from tests.effort import examples

T = GlobalId("u1")
DESC = RelationDesc(("k", "a", "b"), (ColumnType(INT4, False), ColumnType(INT4), ColumnType(TEXT)))
SCHEMA = pa.schema([*DESC.arrow_schema(), DIFF_FIELD])

Row = tuple[int, int | None, str | None]
KEYS = [(1, ""), (2, ""), (1, "x"), (3, "x")]
COLUMNS = (1, 2)


def table(updates: list[tuple[Row, int]]) -> TableRows:
    columns = [[row[i] for row, _ in updates] for i in range(3)]
    arrays = [
        pa.array(columns[0], pa.int32()),
        pa.array(columns[1], pa.int32()),
        pa.array(columns[2], pa.string()),
        pa.array([diff for _, diff in updates], pa.int64()),
    ]
    return TableRows.of_table(DESC, pa.Table.from_arrays(arrays, schema=SCHEMA))


def changes_of(now: dict[int, Row], wanted: list[Row]) -> list[tuple[Row, int]]:
    """Return the updates that make `wanted` the rows of their keys; `now` follows."""
    found = []
    for row in wanted:
        before = now.pop(row[0], None)
        found += [(before, -1)] if before is not None else []
        if before != row:
            now[row[0]] = row
            found.append((row, 1))
    return found


rows = st.tuples(
    st.integers(0, 9), st.sampled_from([None, 1, 2, 3]), st.sampled_from([None, "", "x"])
)
groups = st.lists(
    st.one_of(st.lists(rows, max_size=8), st.sampled_from(["merge", "compact"])), max_size=12
)


@settings(max_examples=examples(100), deadline=None)
@given(groups, st.lists(rows, max_size=4), st.sampled_from([1, 3, 2048]), st.sampled_from([2, 99]))
def test_rows_by_other_columns_are_those_of_model(
    steps: list[list[Row] | str], staged: list[Row], tail: int, large: int
) -> None:
    async def check() -> None:
        index, now = KeyIndex(T, Unique("k", (0,)), DESC, 0), dict[int, Row]()
        index.insert([], 0)
        history: list[dict[int, Row]] = [{}]
        with ThreadPoolExecutor(1) as executor:
            for step in steps:
                if step == "merge":
                    merge = index.arrangement.next_merge()
                    if merge is not None:
                        await index._merge(executor, merge)
                elif isinstance(step, list):
                    changes = changes_of(now, step)
                    parts = [KeyedRows(index.layout, table(changes))] if changes else []
                    index.insert(parts, len(history))
                    history.append(dict(now))
                elif len(history) > 1:
                    index.arrangement.compact(len(history) - 2)
                index.settled()
                await index.prepare(COLUMNS, None, executor)
                found = index.look_up_by(COLUMNS)
                assert found is not None
                for time in range(index.arrangement.since, len(history)):
                    assert under(found, time) == wanted(history[time])
            own = OwnRows(index.layout)
            written = table(changes_of(now, staged))
            own.add(KeyedRows(index.layout, written), written)
            await index.prepare(COLUMNS, own, executor)
            found = index.look_up_by(COLUMNS, own)
            assert under(found, len(history) - 1) == wanted(now)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrangement_module, "TAIL_ROWS", tail)
        patch.setattr(layout_module, "TAIL_ROWS", tail)
        patch.setattr(per_run_module, "LARGE", large)
        asyncio.run(check())


@settings(max_examples=examples(100), deadline=None)
@given(groups, st.lists(rows, max_size=4), st.sampled_from([1, 3, 2048]))
def test_many_rows_by_other_columns_are_looked_for_one_by_one(
    steps: list[list[Row] | str], staged: list[Row], tail: int
) -> None:
    """Of many rows, some of which were deleted, a reader may want the first ones only."""

    async def check() -> None:
        index, now, time = KeyIndex(T, Unique("k", (0,)), DESC, 0), dict[int, Row](), 0
        index.insert([], 0)
        with ThreadPoolExecutor(1) as executor:
            for step in steps:
                if step == "merge":
                    merge = index.arrangement.next_merge()
                    if merge is not None:
                        await index._merge(executor, merge)
                elif isinstance(step, list):
                    time += 1
                    changes = changes_of(now, step)
                    parts = [KeyedRows(index.layout, table(changes))] if changes else []
                    index.insert(parts, time)
                await index.prepare((1,), None, executor)
                find = index.rows_by((1,), {0, 1, 2})
                assert find is not None
                expected = Counter(row for row in now.values() if row[1] in (1, 2))
                assert Counter(find([(1,), (2,)], time)[1]) == expected
            own = OwnRows(index.layout)
            written = table(changes_of(now, staged))
            own.add(KeyedRows(index.layout, written), written)
            await index.prepare((1,), own, executor)
            find = index.rows_by((1,), {0, 1, 2}, own)
            assert find is not None
            expected = Counter(row for row in now.values() if row[1] in (1, 2))
            assert Counter(find([(1,), (2,)], time)[1]) == expected

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrangement_module, "TAIL_ROWS", tail)
        patch.setattr(layout_module, "TAIL_ROWS", tail)
        patch.setattr(secondary_module, "MOST_ADDED", 0)
        asyncio.run(check())


def under(found: object, time: int) -> Counter[Row]:
    keys = [pa.array([a for a, _ in KEYS], pa.int32()), pa.array([b for _, b in KEYS])]
    places, batch = found.find(keys, time)  # type: ignore[attr-defined]
    columns = [column.to_pylist() for column in batch.columns]
    result = list(zip(*columns, strict=True))
    assert [KEYS[place] for place in places] == [row[1:] for row in result]
    return Counter(result)


def wanted(now: dict[int, Row]) -> Counter[Row]:
    return Counter(row for row in now.values() if row[1:] in KEYS)


def test_large_run_is_not_hashed_before_it_is_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(per_run_module, "LARGE", 1)
    index = KeyIndex(T, Unique("k", (0,)), DESC, 0)
    index.fill(index.layout.updates(table([((1, 1, "x"), 1), ((2, 1, ""), 1)]).table), 0)
    index.arrangement._spill()
    assert index.look_up_by(COLUMNS) is None
    before = secondary_module.BYTES._value.get()
    with ThreadPoolExecutor(1) as executor:
        asyncio.run(index.prepare(COLUMNS, None, executor))
    assert index.look_up_by(COLUMNS) is not None
    assert secondary_module.BYTES._value.get() == before + 16
    del index
    assert secondary_module.BYTES._value.get() == before


def test_writes_of_group_are_known_by_other_columns() -> None:
    index = KeyIndex(T, Unique("k", (0,)), DESC, 0)
    group = GroupKeys()
    layout = index.layout.by(COLUMNS)
    hashes = layout.hashes([pa.array([1], pa.int32()), pa.array(["x"])]).tolist()
    assert not group.has_by(index.layout, COLUMNS, hashes)
    for row in ((1, 1, "y"), (2, None, "x"), (3, 1, "x")):
        group.add({T: [{"k": KeyedRows(index.layout, table([(row, 1)]))}]})
        assert group.has_by(index.layout, COLUMNS, hashes) == (row[0] == 3)
    many = table([((i, 9, "z"), 1) for i in range(4, 40)])
    group.add({T: [{"k": KeyedRows(index.layout, many)}]})
    others = [0]
    assert not group.has_by(index.layout, COLUMNS, others)


def test_many_rows_of_group_count_as_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_keys_module, "LARGE", 20)
    index, group = KeyIndex(T, Unique("k", (0,)), DESC, 0), GroupKeys()
    for count in (10, 30):
        rows = table([((i, 9, "z"), 1) for i in range(count)])
        group.add({T: [{"k": KeyedRows(index.layout, rows)}]})
        assert group.has_by(index.layout, COLUMNS, [0]) == (count == 30)
