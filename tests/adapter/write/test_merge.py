"""MERGE by key waits for the keys of its source and conflicts with nothing else."""

import asyncio

import pytest

from tests.adapter.harness import TestEnvironment, until

TABLE = """
DROP TABLE IF EXISTS t, other;
CREATE TABLE t (k int PRIMARY KEY, u text UNIQUE, n bigint DEFAULT 0);
CREATE TABLE other (k int, v int);
INSERT INTO t VALUES (1, 'a', 0), (2, 'b', 0), (3, 'c', 0);
INSERT INTO other VALUES (1, 10), (9, 90)
"""
MATCHED = "WHEN MATCHED THEN UPDATE SET n = t.n + s.v"
BOTH = MATCHED + " WHEN NOT MATCHED THEN INSERT (k, n) VALUES (s.k, s.v)"
CONFLICT = "ERROR 40001: could not serialize access due to concurrent update"


def merge(source: str, on: str = "t.k = s.k", does: str = BOTH) -> str:
    return f"MERGE INTO t USING ({source}) AS s (k, v) ON {on} {does}"


async def rows(env: TestEnvironment) -> list[str]:
    return (await env.ran("r", "SELECT k, u, n FROM t ORDER BY k")).splitlines()[:-1]


def waits(env: TestEnvironment) -> int:
    return len(env.environment.coordinator.locks._waiting)


BY_KEY = {
    "values": ("VALUES (1, 5)", "VALUES (7, 5)", "t.k = s.k"),
    "several": ("VALUES (1, 5), (8, 1)", "VALUES (2, 5), (7, 5)", "s.k = t.k AND s.v > 0"),
    "wider": ("SELECT 1::bigint, 5", "SELECT 7::bigint, 5", "t.k = s.k"),
    "beyond": ("VALUES (1, 5), (3000000000, 1)", "VALUES (2, 1)", "t.k = s.k AND s.k < 9"),
    "computed": ("SELECT x + 1, 5 FROM (VALUES (0)) AS y (x)", "VALUES (2, 5)", "t.k = s.k"),
    "series": ("SELECT i, 1 FROM generate_series(1, 2) AS i", "VALUES (3, 1)", "t.k = s.k"),
    "by the other key": ("VALUES ('a', 5)", "VALUES ('b', 5)", "t.u = s.k"),
}


@pytest.mark.parametrize("case", BY_KEY)
async def test_changes_of_different_keys_both_commit(env: TestEnvironment, case: str) -> None:
    one, another, on = BY_KEY[case]
    does = MATCHED if "beyond" in case or "other" in case else BOTH
    await env.ran("w", TABLE)
    for session, source in (("a", one), ("b", another)):
        await env.ran(session, "BEGIN")
        await env.ran(session, merge(source, on, does))
    assert [await env.query(each, "COMMIT") for each in "ab"] == ["COMMIT"] * 2
    once = await rows(env)
    await env.ran(
        "w",
        "DELETE FROM t; INSERT INTO t VALUES (1, 'a', 0), (2, 'b', 0), (3, 'c', 0)",
    )
    for source in (one, another):
        await env.ran("w", merge(f"SELECT * FROM ({source}) AS z", on, does))
    assert once == await rows(env) != []


async def test_second_merge_of_key_waits_and_sees_first(env: TestEnvironment) -> None:
    await env.ran("w", TABLE)
    for key in (1, 7):  # one that is there, and one that is not
        for session in "ab":
            await env.ran(session, "BEGIN")
        await env.ran("a", merge(f"VALUES ({key}, 5)"))
        second = asyncio.create_task(env.query("b", merge(f"VALUES ({key}, 7)"), alone=False))
        await until(lambda: waits(env) == 1)
        await env.ran("a", "COMMIT")
        assert await second == "MERGE 1\nT"
        await env.ran("b", "COMMIT")
        found = await env.ran("r", f"SELECT n FROM t WHERE k = {key}")
        assert found.splitlines()[0] == "12"


async def test_merge_after_stale_read_conflicts(env: TestEnvironment) -> None:
    await env.ran("w", TABLE)
    await env.ran("a", "BEGIN; SELECT n FROM t WHERE k = 1")
    await env.ran("w", merge("VALUES (1, 5)"))
    await env.ran("a", merge("VALUES (2, 1)"))
    assert await env.query("a", "COMMIT") == CONFLICT
    assert (await rows(env))[1] == "2|b|0"


@pytest.mark.parametrize(
    ("source", "on"),
    [
        ("SELECT k, v FROM other", "t.k = s.k"),
        ("VALUES (1, 5)", "t.k >= s.k AND t.k <= s.k"),
        ("VALUES (1, 5)", "t.k = s.k + (SELECT min(v) FROM other) - 10"),
    ],
)
async def test_unknown_keys_conflict_by_table(env: TestEnvironment, source: str, on: str) -> None:
    await env.ran("w", TABLE)
    await env.ran("a", "BEGIN; " + merge(source, on))
    await env.ran("b", "UPDATE t SET n = n + 1 WHERE k = 2")
    assert await env.query("a", "COMMIT") == CONFLICT
    assert await rows(env) == ["1|a|0", "2|b|1", "3|c|0"]


async def test_concurrent_merges_lose_no_increment(env: TestEnvironment) -> None:
    await env.ran("w", TABLE)

    async def count(client: int) -> None:
        for turn in range(10):
            sql = merge(f"VALUES (7, 1), ({100 + turn % 3}, {client})")
            answer = await env.query(f"c{client}", sql, alone=False)
            assert answer == "MERGE 2", answer

    await asyncio.gather(*(count(client) for client in range(5)))
    found = await env.ran("r", "SELECT n FROM t WHERE k = 7")
    assert found.splitlines()[0] == "50"


async def test_merge_matches_own_writes(env: TestEnvironment) -> None:
    await env.ran("w", TABLE)
    await env.ran(
        "a",
        "BEGIN; INSERT INTO t VALUES (5, 'e', 1); DELETE FROM t WHERE k = 1;"
        " UPDATE t SET n = 3 WHERE k = 2",
    )
    sql = merge("VALUES (1, 10), (2, 10), (5, 10), (NULL, 10)", does=MATCHED)
    assert (await env.ran("a", sql)).startswith("MERGE 2")
    deleting = merge(
        "VALUES (3, 0), (1, 4)",
        does="WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT VALUES (s.k, 'new', s.v)",
    )
    assert (await env.ran("a", deleting)).startswith("MERGE 2")
    twice = merge("VALUES (2, 1), (2, 2)", does=MATCHED)
    await env.ran("a", "SAVEPOINT x")
    refused = await env.query("a", twice)
    assert refused.startswith("ERROR 21000: MERGE command cannot affect row a second time")
    await env.ran("a", "ROLLBACK TO x; COMMIT")
    assert await rows(env) == ["1|new|4", "2|b|13", "5|e|11"]


# PostgreSQL has it from 17 on, as it is here.
RETURNING = {
    "all, the source first": (
        "VALUES (1, 5), (7, 6)",
        BOTH,
        "*",
        ["1|5|1|a|5", "7|6|7|NULL|6"],
    ),
    "actions": (
        "VALUES (1, 5), (2, NULL), (7, 6), (8, NULL)",
        "WHEN MATCHED AND s.v IS NULL THEN DELETE " + MATCHED + " WHEN NOT MATCHED AND s.v > 0"
        " THEN INSERT (k, n) VALUES (s.k, s.v)",
        "merge_action(), lower(merge_action()) || t.k AS did, s.k, t.u, n + 1",
        ["DELETE|delete2|2|b|1", "INSERT|insert7|7|NULL|7", "UPDATE|update1|1|a|6"],
    ),
    "a table": (
        "SELECT k, v FROM other",
        BOTH,
        "merge_action(), t.*, s.v",
        ["INSERT|9|NULL|90|90", "UPDATE|1|a|10|10"],
    ),
    "nothing": ("VALUES (7, 7)", MATCHED, "t.k, merge_action()", []),
}


@pytest.mark.parametrize("case", RETURNING)
async def test_merge_returning_gives_old_and_new_rows(env: TestEnvironment, case: str) -> None:
    source, does, targets, expected = RETURNING[case]
    await env.ran("w", TABLE)
    told = await env.query("w", f"{merge(source, does=does)} RETURNING {targets}")
    *rows, tag = told.splitlines()
    assert (sorted(rows), tag) == (expected, f"MERGE {len(expected)}")


async def test_merge_returning_gives_each_equal_row(env: TestEnvironment) -> None:
    await env.ran("w", "DROP TABLE IF EXISTS w; CREATE TABLE w (i int, x char(3))")
    await env.ran("w", "INSERT INTO w VALUES (1, 'a'), (1, 'a'), (2, 'b'), (2, 'b')")
    told = await env.query(
        "w",
        "MERGE INTO w USING (VALUES (1), (2)) AS s (i) ON w.i = s.i WHEN MATCHED AND s.i = 1"
        " THEN UPDATE SET x = 'z' WHEN MATCHED THEN DELETE RETURNING merge_action(), w.*",
    )
    assert sorted(told.splitlines()) == [
        *["DELETE|2|b  "] * 2,
        "MERGE 4",
        *["UPDATE|1|z  "] * 2,
    ]


@pytest.mark.parametrize(
    "text", ["SELECT merge_action()", "UPDATE t SET n = 1 RETURNING merge_action()"]
)
async def test_merge_action_is_only_for_merge(env: TestEnvironment, text: str) -> None:
    await env.ran("w", TABLE)
    assert await env.query("w", text) == (
        "ERROR 42601: MERGE_ACTION() can only be used in the RETURNING list of a MERGE command"
    )
