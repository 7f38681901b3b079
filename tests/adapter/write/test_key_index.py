"""Key indexes against a plain model: which keys are there, which would be there twice, at each time."""

import asyncio
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.adapter.write.key_index import Earlier, KeyIndex, KeyIndexes, _merged
from foreshore.compute.arrange import arrangement as arrangement_module
from foreshore.compute.arrange.run import Updates
from foreshore.constraint import Unique
from foreshore.ids import GlobalId
from foreshore.storage.corruption import Corruptions
from foreshore.types import INT4, TEXT, ColumnType, RelationDesc
from foreshore.update import DIFF_FIELD
from tests.adapter.harness import TestEnvironment, in_environment
from tests.effort import examples

T = GlobalId("u1")
DESC = RelationDesc(("a", "b", "v"), (ColumnType(INT4), ColumnType(TEXT), ColumnType(INT4)))
SCHEMA = pa.schema([*DESC.arrow_schema(), DIFF_FIELD])

Row = tuple[int | None, str | None, int]


def table(updates: list[tuple[Row, int]]) -> pa.Table:
    columns = [[row[i] for row, _ in updates] for i in range(3)]
    return pa.Table.from_arrays(
        [
            pa.array(columns[0], pa.int32()),
            pa.array(columns[1], pa.string()),
            pa.array(columns[2], pa.int32()),
            pa.array([diff for _, diff in updates], pa.int64()),
        ],
        schema=SCHEMA,
    )


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
def test_it_knows_what_the_model_knows(
    steps: list[tuple[str, object]], nulls_distinct: bool, tail: int
) -> None:
    constraint = Unique("k", (0, 1), False, nulls_distinct)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrangement_module, "TAIL_ROWS", tail)
        index = KeyIndex(T, constraint, DESC, 0)
        history: list[Counter[Row]] = [Counter()]  # the rows at each time
        index.insert([], 0)
        for step, argument in steps:
            now = history[-1]
            if step == "merge":
                merge = index.arrangement.next_merge()
                if merge is not None:
                    index.arrangement.install(merge, _merged(merge))
            elif step == "compact":
                assert isinstance(argument, int)
                index.arrangement.compact(max(0, len(history) - 1 - argument))
            elif step == "restart":
                base = index.prepare(table(list(now.items())))
                index = KeyIndex(T, constraint, DESC, len(history) - 1)
                index.arrangement.insert_prepared([base], len(history) - 1, len(history))
            else:
                assert isinstance(argument, list)
                group(index, history, argument, nulls_distinct)
            index.arrangement.check()
            agree(index, history, nulls_distinct)


def group(
    index: KeyIndex,
    history: list[Counter[Row]],
    changes: list[tuple[tuple[int | None, str | None], int, bool]],
    nulls_distinct: bool,
) -> None:
    """Make those of the changes together that leave no key twice, as the index itself says."""
    after = history[-1].copy()
    parts: list[Updates] = []
    for (a, b), v, comes in changes:
        row = (a, b, v)
        if not comes and not after[row]:
            continue
        diff = 1 if comes else -1
        part = index.prepare(table([(row, diff)]))
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


def test_many_rows_are_checked_against_what_has_changed_since() -> None:
    async def play() -> None:
        indexes = KeyIndexes(lambda _: 0, Corruptions())
        index = KeyIndex(T, Unique("k", (0,)), DESC, 0)
        indexes.replace(T, {"k": index})
        many = index.prepare(table([((i, "", 0), 1) for i in range(10_000)]))
        few = index.prepare(table([((77, "", 0), 1)]))
        other = index.prepare(table([((20_000, "", 0), 1)]))
        indexes.apply(1, {T: [{"k": other}]})
        assert indexes.duplicate({T: [{"k": many}]}, 0, Earlier()) is None
        earlier = Earlier()
        earlier.add({T: [{"k": few}]})
        found = indexes.duplicate({T: [{"k": many}]}, 0, earlier)
        assert found is not None
        assert found.key == (77,)
        indexes.apply(2, {T: [{"k": few}]})
        found = indexes.duplicate({T: [{"k": many}]}, 1, Earlier())
        assert found is not None
        assert found.key == (77,)
        earlier = Earlier()
        earlier.add({T: [{"k": many}]})
        found = indexes.duplicate({T: [{"k": index.prepare(table([((5, "", 1), 1)]))}]}, 2, earlier)
        assert found is not None
        assert found.key == (5,)
        indexes.close()

    asyncio.run(play())


def test_of_colliding_inserts_exactly_one_wins(tmp_path: Path) -> None:
    async def play() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query("s0", "CREATE TABLE t (k int PRIMARY KEY, who int)")
        for k in range(5):
            answers = await asyncio.gather(
                *(env.query(f"s{i}", f"INSERT INTO t VALUES ({k}, {i})") for i in range(16))
            )
            assert [a.splitlines()[0] for a in answers].count("INSERT 0 1") == 1
            lost = [a for a in answers if a != "INSERT 0 1"]
            assert (
                lost
                == [
                    'ERROR 23505: duplicate key value violates unique constraint "t_pkey"\n'
                    f"DETAIL: Key (k)=({k}) already exists."
                ]
                * 15
            )
        await env.reopen()
        assert "ERROR 23505" in await env.query("s", "INSERT INTO t VALUES (3, 1)")
        assert await env.query("s", "SELECT count(*) FROM t") == "5\nSELECT 1"
        await env.close()

    asyncio.run(play())


def test_rows_on_their_way_into_a_table_that_is_altered_are_refused(tmp_path: Path) -> None:
    async def play(env: TestEnvironment) -> None:
        await env.query("s", "CREATE TABLE t (k int); INSERT INTO t VALUES (1)")
        await env.query("b", "BEGIN; INSERT INTO t VALUES (1)")
        assert await env.query("s", "ALTER TABLE t ADD PRIMARY KEY (k)") == "ALTER TABLE"
        answer = await env.query("b", "COMMIT")
        assert answer == "ERROR 40001: could not serialize access: a table was altered meanwhile"
        await env.query("s", "CREATE MATERIALIZED VIEW m AS SELECT k, count(*) FROM t GROUP BY k")
        answer = await env.query("s", "ALTER TABLE t DROP CONSTRAINT t_pkey")
        assert answer.splitlines()[:2] == [
            "ERROR 2BP01: cannot drop constraint t_pkey on table t because other objects depend on"
            " it",
            "DETAIL: materialized view m depends on constraint t_pkey on table t",
        ]
        await env.query("b", "BEGIN; ALTER TABLE t DROP COLUMN nothing")
        await env.query("b", "ROLLBACK")
        block = "BEGIN; CREATE TABLE n (i int); INSERT INTO n VALUES (1), (1)"
        await env.query("b", block)
        answer = await env.query("b", "ALTER TABLE n ADD UNIQUE (i)")
        assert answer.splitlines()[1] == "DETAIL: Key (i)=(1) is duplicated."
        await env.query("b", "ROLLBACK")
        await env.query(
            "b", f"{block}; DELETE FROM n; INSERT INTO n VALUES (2); ALTER TABLE n ADD UNIQUE (i)"
        )
        assert "ERROR 23505" in await env.query("b", "INSERT INTO n VALUES (2)")
        await env.query("b", "ROLLBACK")
        await env.query(
            "b", f"{block}; DELETE FROM n; INSERT INTO n VALUES (2); ALTER TABLE n ADD UNIQUE (i)"
        )
        assert (await env.query("b", "COMMIT")) == "COMMIT"
        assert "ERROR 23505" in await env.query("s", "INSERT INTO n VALUES (2)")
        await env.query(
            "s", "BEGIN; ALTER TABLE n DROP CONSTRAINT n_i_key; INSERT INTO n VALUES (2)"
        )
        assert await env.query("s", "COMMIT") == "COMMIT"
        assert await env.query("s", "SELECT * FROM n") == "2\n2\nSELECT 2"

    in_environment(tmp_path, play)
