"""Key indexes against a plain model: the rows at each time, and keys that would be there twice."""

import asyncio
from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.compute.arrange import arrangement as arrangement_module
from foreshore.compute.keys import layout as layout_module
from foreshore.compute.keys.group_keys import GroupKeys
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.key_indexes import KeyIndexes
from foreshore.compute.keys.layout import KeyedRows
from foreshore.constraint import Unique
from foreshore.ids import GlobalId
from foreshore.storage.corruption import Corruptions
from foreshore.table_rows import TableRows
from foreshore.types import INT4, TEXT, ColumnType, RelationDesc
from foreshore.update import DIFF_FIELD
from tests.effort import examples

T = GlobalId("u1")
DESC = RelationDesc(("a", "b", "v"), (ColumnType(INT4), ColumnType(TEXT), ColumnType(INT4)))
SCHEMA = pa.schema([*DESC.arrow_schema(), DIFF_FIELD])

Row = tuple[int | None, str | None, int]


def table(updates: list[tuple[Row, int]]) -> TableRows:
    columns = [[row[i] for row, _ in updates] for i in range(3)]
    rows = pa.Table.from_arrays(
        [
            pa.array(columns[0], pa.int32()),
            pa.array(columns[1], pa.string()),
            pa.array(columns[2], pa.int32()),
            pa.array([diff for _, diff in updates], pa.int64()),
        ],
        schema=SCHEMA,
    )
    return TableRows.of_table(DESC, rows)


def counted(row: Row, nulls_distinct: bool) -> bool:
    return not nulls_distinct or (row[0] is not None and row[1] is not None)


keys = st.tuples(st.sampled_from([None, 0, 1, 2]), st.sampled_from([None, "", "x"]))
changes = st.lists(st.tuples(keys, st.integers(0, 3), st.booleans()), max_size=6)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("group"), changes),
        st.tuples(st.just("merge"), st.none()),
        st.tuples(st.just("compact"), st.integers(0, 3)),
        st.tuples(st.just("restart"), st.none()),
    ),
    max_size=14,
)


@settings(max_examples=examples(120))
@given(steps, st.booleans(), st.sampled_from([1, 3, 2048]))
def test_index_agrees_with_model_at_each_time(
    steps: list[tuple[str, object]], nulls_distinct: bool, tail: int
) -> None:
    constraint = Unique("k", (0, 1), False, nulls_distinct)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrangement_module, "TAIL_ROWS", tail)
        patch.setattr(layout_module, "TAIL_ROWS", tail)
        index = KeyIndex(T, constraint, DESC, 0)
        history: list[Counter[Row]] = [Counter()]  # the rows at each time
        index.insert([], 0)
        for step, argument in steps:
            now = history[-1]
            if step == "merge":
                merge = index.arrangement.next_merge()
                if merge is not None:
                    index.arrangement.install(merge, merge.result())
            elif step == "compact":
                assert isinstance(argument, int)
                index.arrangement.compact(max(0, len(history) - 1 - argument))
            elif step == "restart":
                base = index.layout.updates(table(list(now.items())).table)
                index = KeyIndex(T, constraint, DESC, len(history) - 1)
                index.fill(base, len(history) - 1)
            else:
                assert isinstance(argument, list)
                group(index, history, argument, nulls_distinct)
            index.settled().check()
            agree(index, history, nulls_distinct)


def group(
    index: KeyIndex,
    history: list[Counter[Row]],
    changes: list[tuple[tuple[int | None, str | None], int, bool]],
    nulls_distinct: bool,
) -> None:
    """Make those of the changes together that leave no key twice, as the index itself says."""
    after = history[-1].copy()
    parts: list[KeyedRows] = []
    for (a, b), v, comes in changes:
        row = (a, b, v)
        if not comes and not after[row]:
            continue
        diff = 1 if comes else -1
        part = index.keyed(table([(row, diff)]))
        found = index.duplicate([*parts, part])
        there = Counter(k[:2] for k in after.elements() if counted(k, nulls_distinct))
        expected = comes and counted(row, nulls_distinct) and there[row[:2]] > 0
        assert (found is not None) == expected, (row, found, after)
        if found is not None:
            assert found.key == (a, b)
            continue
        after[row] += diff
        parts.append(part)
    index.insert(parts, len(history))
    history.append(+after)


def agree(index: KeyIndex, history: list[Counter[Row]], nulls_distinct: bool) -> None:
    sought = [(a, b) for a in (None, 0, 1, 2) for b in (None, "", "x")]
    columns = [pa.array([k[0] for k in sought], pa.int32()), pa.array([k[1] for k in sought])]
    for time in range(index.arrangement.since, len(history)):
        assert index.readable(time)
        places, rows = index.find(columns, time)
        found = Counter(
            (sought[place], tuple(row.values()))
            for place, row in zip(places.tolist(), rows.to_pylist(), strict=True)
        )
        expected = Counter(
            {
                (row[:2], row): count
                for row, count in history[time].items()
                if counted(row, nulls_distinct)
            }
        )
        assert found == expected, time
    assert not index.readable(len(history))


def test_many_rows_are_checked_against_changes_since_and_the_group() -> None:
    async def play() -> None:
        indexes = KeyIndexes(lambda _: 0, Corruptions())
        index = KeyIndex(T, Unique("k", (0,)), DESC, 0)
        indexes.replace(T, {"k": index})
        many = index.keyed(table([((i, "", 0), 1) for i in range(10_000)]))
        few = index.keyed(table([((77, "", 0), 1)]))
        other = index.keyed(table([((20_000, "", 0), 1)]))
        indexes.apply(1, {T: [{"k": other}]})
        assert indexes.duplicate({T: [{"k": many}]}, 0, GroupKeys()) is None
        earlier = GroupKeys()
        earlier.add({T: [{"k": few}]})
        found = indexes.duplicate({T: [{"k": many}]}, 0, earlier)
        assert found is not None
        assert found.key == (77,)
        indexes.apply(2, {T: [{"k": few}]})
        found = indexes.duplicate({T: [{"k": many}]}, 1, GroupKeys())
        assert found is not None
        assert found.key == (77,)
        earlier = GroupKeys()
        earlier.add({T: [{"k": many}]})
        found = indexes.duplicate({T: [{"k": index.keyed(table([((5, "", 1), 1)]))}]}, 2, earlier)
        assert found is not None
        assert found.key == (5,)
        indexes.close()

    asyncio.run(play())
