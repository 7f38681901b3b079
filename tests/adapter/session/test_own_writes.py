"""A transaction sees its own writes through views and indexes."""

import asyncio
from collections.abc import Sequence
from itertools import pairwise

import pytest

from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Filter, Get, Relation, Union
from foreshore.expr.share import put_in, share
from foreshore.expr.traversal import walk_relations
from foreshore.ids import GlobalId
from foreshore.types import INT4, ColumnType
from tests.adapter.harness import TestEnvironment, until

BASE = """
CREATE TABLE base (a int PRIMARY KEY, v int);
CREATE TABLE other (a int, v int);
INSERT INTO base VALUES (1, 1), (2, 2);
INSERT INTO other VALUES (1, 5), (2, 5);
CREATE INDEX base_v ON base (v);
CREATE MATERIALIZED VIEW one AS SELECT sum(v) s FROM base;
CREATE MATERIALIZED VIEW two AS SELECT s * 10 t FROM one;
CREATE MATERIALIZED VIEW diamond AS SELECT l.t + r.t u, one.s FROM two l, two r, one;
CREATE VIEW plain AS SELECT * FROM diamond;
CREATE INDEX plain_u ON plain (u);
CREATE MATERIALIZED VIEW aside AS SELECT sum(v) x FROM other;
CREATE MATERIALIZED VIEW wrong AS SELECT 1 / (v - 5) q FROM other
"""


@pytest.fixture(scope="module")
def filled(runner: asyncio.Runner, env: TestEnvironment) -> TestEnvironment:
    async def fill() -> None:
        for statement in BASE.split(";"):
            await env.ran("own", statement)
        coordinator = env.environment.coordinator
        indexes = [item.id for item in coordinator.state.items() if item.on is not None]
        assert len(indexes) == 2
        await until(lambda: all(map(coordinator.is_hydrated, indexes)))

    runner.run(fill())
    return env


def said(runner: asyncio.Runner, env: TestEnvironment, statements: Sequence[str]) -> list[str]:
    """Return what each statement gives, of rows what comes before the tag; then roll back."""

    async def say() -> list[str]:
        answers = [await env.query("own", each) for each in statements]
        await env.query("own", "ROLLBACK")
        return [each.split("\nSELECT")[0] for each in answers]

    return runner.run(say())


READS = (
    "SELECT s FROM one",
    "SELECT t FROM two",
    "SELECT u, s FROM diamond",
    "SELECT * FROM plain",
)


def test_own_writes_are_visible_through_chains_and_diamonds(
    runner: asyncio.Runner, filled: TestEnvironment
) -> None:
    assert said(runner, filled, READS) == ["3", "30", "60|3", "60|3"]
    written = ["BEGIN", "INSERT INTO base VALUES (3, 100)", *READS]
    assert said(runner, filled, written)[2:] == ["103", "1030", "2060|103", "2060|103"]


def test_own_writes_after_truncate_and_rollback_to_savepoint(
    runner: asyncio.Runner, filled: TestEnvironment
) -> None:
    first = ["BEGIN", "INSERT INTO base VALUES (3, 100)", "SAVEPOINT x", "TRUNCATE base"]
    answers = said(runner, filled, [*first, *READS, "ROLLBACK TO x", *READS])
    assert answers[4:8] == ["NULL", "NULL", "NULL|NULL", "NULL|NULL"]
    assert answers[9:] == ["103", "1030", "2060|103", "2060|103"]


def test_own_writes_are_visible_through_indexed_view(
    runner: asyncio.Runner, filled: TestEnvironment
) -> None:
    by_key = ["SELECT * FROM plain WHERE u = 60", "SELECT * FROM plain WHERE u = 2060"]
    answers = said(runner, filled, ["BEGIN", "INSERT INTO base VALUES (3, 100)", *by_key])
    assert answers[2:] == ["SELECT 0\nT", "2060|103"]


def test_own_writes_are_visible_by_index_key(
    runner: asyncio.Runner, filled: TestEnvironment
) -> None:
    answers = said(
        runner,
        filled,
        [
            "BEGIN",
            "INSERT INTO base VALUES (3, 100)",
            "SELECT a FROM base WHERE v = 2",
            "UPDATE base SET v = 7 WHERE v = 2",
            "SELECT * FROM base ORDER BY a",
            "DELETE FROM base WHERE v = 7",
            "SELECT * FROM base ORDER BY a",
        ],
    )
    assert answers[2:] == ["2", "UPDATE 1\nT", "1|1\n2|7\n3|100", "DELETE 1\nT", "1|1\n3|100"]


def test_own_writes_join_with_unwritten_tables(
    runner: asyncio.Runner, filled: TestEnvironment
) -> None:
    read = "SELECT two.t, aside.x FROM two, aside"
    first = ["BEGIN", "INSERT INTO base VALUES (3, 100)", read]
    more = ["INSERT INTO other SELECT 3, t FROM two", read]
    answers = said(runner, filled, [*first, *more])
    assert [answers[2], answers[4]] == ["1030|10", "1030|1040"]


def test_own_writes_are_visible_through_own_views(
    runner: asyncio.Runner, filled: TestEnvironment
) -> None:
    mine = "CREATE MATERIALIZED VIEW mine AS SELECT t + 1 w FROM two"
    answers = said(runner, filled, ["BEGIN", mine, "SELECT w FROM mine"])
    assert answers[2] == "31"


def test_error_of_view_over_own_writes_is_raised(
    runner: asyncio.Runner, filled: TestEnvironment
) -> None:
    """Such a view's shard has only the rows that could be computed."""
    error = "ERROR 22012: division by zero"
    beside_own = ["BEGIN", "INSERT INTO base VALUES (3, 100)", "SELECT q, s FROM wrong, one"]
    assert said(runner, filled, beside_own)[2] == f"{error}\nE"
    beside_system = "SELECT q FROM wrong WHERE EXISTS (SELECT 1 FROM mz_catalog.mz_tables)"
    assert said(runner, filled, [beside_system]) == [error]


def test_plan_over_stacked_diamonds_grows_linearly() -> None:
    column = ColumnType(INT4)
    floors = [GlobalId(f"f{floor}") for floor in range(40)]
    definitions: dict[GlobalId, Relation] = {floors[0]: Get(GlobalId("u1"), (column,))}
    for lower, floor in pairwise(floors):
        below = Get(lower, (column,))
        both = share(Union((Filter(below, ()), below)))
        definitions[floor] = share(put_in(both, definitions))
    top = definitions[floors[-1]]
    assert columns_of(top) == (column,)
    assert sum(1 for _ in walk_relations(top)) < 400


@pytest.mark.parametrize("write", ["VALUES (3, 300)", "SELECT 3, 300"])
def test_own_writes_are_not_visible_as_of_past(
    runner: asyncio.Runner, filled: TestEnvironment, write: str
) -> None:
    """By key as by a scan, by rows that were written one by one and by columns."""
    ways = ("a = 1", "a + 0 = 1", "a IN (1, 2, 3)", "a + 0 IN (1, 2, 3)")
    past = filled.environment.coordinator.oracle.read_ts()
    reads = []
    for as_of in (f"AS OF {past}", "AS OF AT LEAST 0"):
        for way in ways:
            reads.append(f"SELECT v FROM base WHERE {way} ORDER BY a {as_of}")
            reads.append(f"SELECT count(*) FROM base WHERE {way} {as_of}")
            reads.append(
                f"DECLARE c{len(reads)} CURSOR FOR SELECT v FROM base WHERE {way} ORDER BY a {as_of}"
            )
            reads.append(f"FETCH ALL c{len(reads) - 1}")
        reads += [
            f"SELECT v FROM base WHERE a = 1 UNION ALL SELECT 0 ORDER BY v {as_of}",
            "WITH RECURSIVE r (v) AS (SELECT v FROM base WHERE a = 1 UNION TABLE r)"
            f" SELECT v FROM r {as_of}",
            f"INSERT INTO other SELECT * FROM base WHERE a IN (1, 3) {as_of}",
            "SELECT v FROM other WHERE a IN (1, 3) ORDER BY v",
            f"CREATE TABLE made AS SELECT v FROM base WHERE a IN (1, 3) {as_of}",
            "SELECT v FROM made",
            "DROP TABLE made",
            f"SELECT s FROM one {as_of}",
        ]
    mine = ["UPDATE base SET v = 100 WHERE a = 1", f"INSERT INTO base {write}"]
    mine.append("DELETE FROM base WHERE a = 2")
    answers = said(runner, filled, ["BEGIN", *mine, *reads])[4:]
    assert answers == said(runner, filled, ["BEGIN", *reads])[1:]
    assert not any("ERROR" in each or "00" in each for each in answers), answers
