"""Statements that name keys: their rows are those of a scan, and nothing is scanned for them.

Table `t` has keys and indexes; `scanned` has the same columns without any, so each statement about
it reads all rows.
"""

import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from foreshore.adapter.read.keys import key_lookup
from foreshore.catalog.item import Item
from foreshore.compute.arrange.run import Updates
from foreshore.compute.controller.controller import ComputeController
from foreshore.compute.keys.layout import KeyLayout
from foreshore.compute.keys.secondary import SecondaryView
from foreshore.sql.optimize import restrict
from foreshore.storage.capability import ReadCapability
from foreshore.storage.controller import StorageController
from foreshore.storage.snapshot import Snapshot
from foreshore.types import Datum
from tests.adapter.harness import TestEnvironment, told, until

COLUMNS = "a int NOT NULL, b bigint NOT NULL, c text, d varchar(5), e char(3), f numeric(6, 2)"
TABLES = (
    "DROP TABLE IF EXISTS t, scanned, long, small",
    f"CREATE TABLE t ({COLUMNS}, PRIMARY KEY (a, b), UNIQUE (c, d))",
    # An index that is behind skips times, unless it keeps its history.
    "CREATE INDEX by_d ON t (d) WITH (RETAIN HISTORY FOR '1 hour')",
    "CREATE INDEX by_e_f ON t (e, f) WITH (RETAIN HISTORY FOR '1 hour')",
    f"CREATE TABLE scanned ({COLUMNS})",
)
SHOWN = "a, b, c, d, e, f"


def row(number: int) -> str:
    """Return the row that has this number, as values."""
    a, b = number % 5, number // 5
    c = "NULL" if number % 3 == 0 else f"'c{number}'"
    d = "NULL" if number % 4 == 0 else f"'d{number % 3}'"
    e = "NULL" if number % 7 == 0 else f"'{'xyz'[: number % 3 + 1]}'"
    f = "NULL" if number % 6 == 0 else f"{number % 4}.50"
    return f"({a}, {b}, {c}, {d}, {e}, {f})"


def a_value(dice: random.Random, column: str) -> str:
    return {
        "a": lambda: dice.choice(["0", "1", "2", "3", "9", "NULL", "2::bigint", "3.0", "1.5"]),
        "b": lambda: dice.choice(["0", "1", "2", "7", "1::smallint", "99999999999", "2.0"]),
        "c": lambda: dice.choice(["'c1'", "'c2'", "'c4'", "'none'", "'c5'::varchar"]),
        "d": lambda: dice.choice(["'d0'", "'d1'", "'d2'", "NULL", "'d1'::text", "'d1     '"]),
        "e": lambda: dice.choice(["'x'", "'xy '", "'xyz'", "'x  '::char(3)", "'q'"]),
        "f": lambda: dice.choice(["0.5", "1.50", "2.500", "3", "1.505"]),
    }[column]()


def a_condition(dice: random.Random, depth: int = 2) -> str:
    """Return a condition, which may name keys or not."""

    def values(column: str, most: int = 4) -> str:
        return ", ".join(a_value(dice, column) for _ in range(dice.randint(1, most)))

    def conjunction() -> str:
        parts = dice.sample(["a", "b", "c", "d", "e", "f"], dice.randint(1, 2))
        return " AND ".join(f"{column} = {a_value(dice, column)}" for column in parts)

    def array(column: str) -> str:
        type = {"a": "int", "b": "bigint", "c": "text", "d": "varchar", "e": "char(3)"}[column]
        return f"{column} = ANY(ARRAY[{values(column)}]::{type}[])"

    def rows() -> str:
        pairs = (f"({a_value(dice, 'a')}, {a_value(dice, 'b')})" for _ in range(dice.randint(1, 3)))
        return f"(a, b) IN ({', '.join(pairs)})"

    forms: list[Callable[[], str]] = [
        conjunction,
        lambda: f"a IN ({values('a')})",
        lambda: f"d IN ({values('d')}) AND c IS NOT NULL",
        lambda: f"e = {a_value(dice, 'e')} AND f IN ({values('f')})",
        lambda: array(dice.choice("abcde")),
        rows,
        lambda: f"a = {a_value(dice, 'a')} AND b > 1",
        lambda: f"a = {a_value(dice, 'a')} AND a = {a_value(dice, 'a')}",
        lambda: f"b = {a_value(dice, 'b')}",
        lambda: f"NOT a = {a_value(dice, 'a')}",
    ]
    if depth:
        forms += [
            lambda: f"({a_condition(dice, 0)}) OR ({a_condition(dice, 0)})",
            lambda: f"({a_condition(dice, depth - 1)}) AND ({a_condition(dice, 0)})",
        ]
    return dice.choice(forms)()


def a_statement(dice: random.Random, table: str) -> str:
    condition = a_condition(dice)
    return dice.choice(
        [
            f"SELECT {SHOWN} FROM {table} WHERE {condition} ORDER BY a, b",
            f"SELECT {SHOWN} FROM {table} WHERE {condition} ORDER BY a, b",
            f"SELECT {SHOWN} FROM {table} WHERE {condition} ORDER BY b, a LIMIT 2",
            f"SELECT count(*), max(c) FROM {table} WHERE {condition}",
            f"SELECT d, count(*) FROM {table} WHERE {condition} GROUP BY d ORDER BY d",
            f"UPDATE {table} SET f = f + 1 WHERE {condition}",
            f"UPDATE {table} SET d = 'd2', c = NULL WHERE {condition}",
            f"UPDATE {table} SET b = b + 100 WHERE {condition} AND b < 100",
            f"DELETE FROM {table} WHERE ({condition}) AND b > 2",
            f"INSERT INTO {table} VALUES {row(dice.randint(100, 999))}",
        ]
    )


@pytest.mark.parametrize("seed", range(6))
async def test_answers_are_those_of_scan(env: TestEnvironment, seed: int) -> None:
    dice = random.Random(seed)
    rows = ", ".join(row(number) for number in range(40))
    await env.ran("x", *TABLES, f"INSERT INTO t VALUES {rows}", "INSERT INTO scanned TABLE t")
    await env.ran("y", "SELECT 1")
    times: list[str] = []
    for _ in range(50):
        match dice.random():
            case chance if chance < 0.08:
                status = env.sessions["x"].transaction_status
                await env.query("x", "BEGIN" if status == "I" else dice.choice(["COMMIT", "ABORT"]))
                continue
            case chance if chance < 0.16 and env.sessions["x"].transaction_status == "I":
                times.append((await env.ran("y", "SELECT mz_now()")).split("\n")[0])
                condition = a_condition(dice)
                of = f"WHERE {condition} ORDER BY a, b AS OF {dice.choice(times)}"
                found = await env.query("y", f"SELECT {SHOWN} FROM t {of}")
                assert found == await env.query("y", f"SELECT {SHOWN} FROM scanned {of}"), of
                continue
        statement = a_statement(dice, "t")
        found = await env.query("x", statement)
        if "23505" in found:
            await env.query("x", "ABORT")
            continue
        assert found == await env.query("x", statement.replace(" t ", " scanned ")), statement
        assert "ERROR" not in found, statement
    await env.query("x", "ABORT")
    everything = f"SELECT {SHOWN} FROM t ORDER BY a, b"
    assert await env.ran("x", everything) == await env.ran(
        "x", everything.replace("t O", "scanned O")
    )


NAMED = (
    "(a, b) IN ((1, 2), (3, 4))",
    "a = 2 AND b = 1 OR a = 3 AND b = 1",
    "a IN (1, 2)",
    "a = 4",
    "a = ANY('{1, 3}'::bigint[])",
    "d = 'd1'",
    "e = 'x' AND f = 0.5",
    "c = 'c7'",
    "a = 1 AND f > 1",
    "a = 99999999999",
    "a = 3.0",
)


@pytest.mark.parametrize("where", NAMED)
async def test_nothing_is_scanned_for_named_keys(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    rows = ", ".join(row(number) for number in range(40))
    await env.ran("x", *TABLES, f"INSERT INTO t VALUES {rows}")

    monkeypatch.setattr(ComputeController, "peek", _scanned)
    monkeypatch.setattr(StorageController, "snapshot", _scanned)

    async def count() -> int:
        found = re.search(r"^SELECT (\d+)$", await env.ran("x", read), re.MULTILINE)
        assert found is not None
        return int(found[1])

    read = f"SELECT {SHOWN} FROM t WHERE {where}"
    found = await env.ran("x", read)
    locked = await env.ran("x", f"{read} FOR UPDATE")
    assert sorted(locked.splitlines()) == sorted(found.splitlines())
    assert (
        await env.ran("x", f"SELECT count(*) FROM t WHERE {where}") == f"{await count()}\nSELECT 1"
    )
    assert "Used key" in await env.ran("x", f"EXPLAIN {read}")
    await env.ran("x", "BEGIN", "UPDATE t SET f = 0.5 WHERE a = 1 AND b = 2")
    assert f"SELECT {await count()}" in await env.ran("x", f"{read} FOR UPDATE")
    tag = f"UPDATE {await count()}"
    assert (await env.ran("x", f"UPDATE t SET f = f + 0 WHERE {where}")).startswith(tag)
    await env.ran("x", "COMMIT")
    tag = f"UPDATE {await count()}"
    assert await env.ran("x", f"UPDATE t SET f = 0.5 WHERE {where}") == tag
    deleted = await count()
    assert f"DELETE {deleted}" in await env.ran("x", f"DELETE FROM t WHERE {where} RETURNING a")
    assert await count() == 0


async def with_arguments(env: TestEnvironment, sql: str, *args: Datum) -> list[str]:
    """Return what a statement with arguments gives, by the extended protocol."""
    session = await env.session("x")
    await session.extended.parse("", sql, ())
    await session.extended.bind("", "", args, [])
    lines = await told(await session.extended.execute("", 0, last=True))
    await session.extended.sync()
    return lines


LONG = 200_000


async def test_long_array_is_looked_up(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment's guard fails if one holds up the event loop."""
    await env.ran("x", *TABLES, "CREATE TABLE long (k int PRIMARY KEY, a int NOT NULL, v text)")
    await env.ran(
        "x", f"INSERT INTO long SELECT i, i / 2, 'v' FROM generate_series(1, {LONG}) AS i"
    )
    await env.ran("x", "CREATE INDEX by_a ON long (a)")
    monkeypatch.setattr(ComputeController, "peek", _scanned)
    ids = (None, *range(0, 2 * LONG, 2))
    of_keys = "FROM long WHERE k = ANY($1)"
    assert await with_arguments(env, f"SELECT count(*), max(k) {of_keys}", ids) == [
        f"{LONG // 2}|{LONG}",
        "SELECT 1",
    ]
    few = f"SELECT k {of_keys} AND a = 3 AND v = 'v'"
    assert await with_arguments(env, few, ids) == ["6", "SELECT 1"]
    halves = tuple(range(0, 8000, 2))
    counted = await with_arguments(env, "SELECT count(*) FROM long WHERE a = ANY($1)", halves)
    assert counted == ["7999", "SELECT 1"]
    update = "UPDATE long SET v = 'w' WHERE k = ANY($1)"
    assert await with_arguments(env, update, ids) == [f"UPDATE {LONG // 2}"]
    assert await with_arguments(env, f"SELECT count(*) {of_keys} AND v = 'w'", ids[:11]) == [
        "9",
        "SELECT 1",
    ]
    await env.ran("x", "BEGIN", "UPDATE long SET v = 'x' WHERE k = 4")
    assert await with_arguments(env, f"DELETE {of_keys} AND v = 'w'", ids) == [
        f"DELETE {LONG // 2 - 1}",
    ]
    await env.ran("x", "ROLLBACK")


async def test_index_of_view_is_looked_up_by_array(env: TestEnvironment) -> None:
    await env.ran("x", "DROP TABLE IF EXISTS base CASCADE", "CREATE TABLE base (k int, v text)")
    await env.ran("x", "INSERT INTO base SELECT i, 'v' || i FROM generate_series(1, 3000) AS i")
    await env.ran("x", "CREATE VIEW doubled AS SELECT 2 * k AS k, v FROM base")
    await env.ran("x", "CREATE INDEX by_k ON doubled (k)")
    coordinator = env.environment.coordinator
    await until(lambda: all(map(coordinator.is_hydrated, coordinator.as_ofs)))
    few = "SELECT v FROM doubled WHERE k = ANY($1) AND v <> 'v3' ORDER BY v"
    assert await with_arguments(env, few, (4, None, 6, 4, 7)) == ["v2", "SELECT 1"]
    ids = tuple(range(0, 20_000, 4))
    many = await with_arguments(env, few.replace("ORDER BY v", ""), ids)
    assert many[-1] == "SELECT 1500"


async def test_long_list_of_constants_is_looked_up(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = ", ".join(row(number) for number in range(40))
    await env.ran("x", *TABLES, f"INSERT INTO t VALUES {rows}", "INSERT INTO scanned TABLE t")
    numbers = ", ".join(map(str, range(3, 600)))
    texts = ", ".join(f"'d{number}'" for number in range(1, 300))
    conditions = [
        f"{column} {negated} IN ({items}{null})"
        for column, items in (("a", numbers), ("d", texts), ("f", numbers))
        for negated in ("", "NOT")
        for null in ("", ", NULL")
    ]
    shown = [
        await env.ran("x", f"SELECT {SHOWN} FROM scanned WHERE {where} ORDER BY a, b")
        for where in conditions
    ]
    for where, wanted in zip(conditions, shown, strict=True):
        if " IN" in where and not where.startswith("f") and "NOT" not in where:
            monkeypatch.setattr(ComputeController, "peek", _scanned)
        found = await env.ran("x", f"SELECT {SHOWN} FROM t WHERE {where} ORDER BY a, b")
        assert found == wanted, where[:40]
        monkeypatch.undo()
    with_values = (
        f"SELECT a IN ({numbers}), b NOT IN ({numbers}, NULL) FROM t ORDER BY a, b LIMIT 3"
    )
    assert await env.ran("x", with_values) == "f|NULL\nf|NULL\nf|NULL\nSELECT 3"


COMBINED = (
    "a = ANY($1) AND b = ANY($2)",
    "a IN (1, 2, 3, 4, 5) AND b = ANY($2) AND 1 = ANY($1)",
    f"a IN ({', '.join(map(str, range(2000)))}) AND b = ANY($2) AND 1 = ANY($1)",
)


@pytest.mark.parametrize("where", COMBINED)
async def test_arrays_that_multiply_hold_up_nothing(env: TestEnvironment, where: str) -> None:
    """The environment's guard fails if the event loop is held."""
    await env.ran("x", "DROP TABLE IF EXISTS pairs CASCADE")
    await env.ran("x", "CREATE TABLE pairs (a int, b int, n int, PRIMARY KEY (a, b))")
    await env.ran("x", "INSERT INTO pairs SELECT i % 50, i / 50, 0 FROM generate_series(0, 999) i")
    await env.ran("x", "CREATE VIEW of_pairs AS SELECT a, b, n + 1 AS n FROM pairs")
    await env.ran("x", "CREATE INDEX by_a_b ON of_pairs (a, b)")
    coordinator = env.environment.coordinator
    await until(lambda: all(map(coordinator.is_hydrated, coordinator.as_ofs)))
    wide, narrow = tuple(range(3000)), (1, 2, 7)
    for values in (wide, narrow):
        args = (wide if "1 = ANY" in where else values, values)
        plain = where.replace("a ", "a + 0 ").replace("b ", "b + 0 ")
        counted = await with_arguments(env, f"SELECT count(*) FROM pairs WHERE {plain}", *args)
        for table in ("pairs", "of_pairs"):
            found = await with_arguments(env, f"SELECT n FROM {table} WHERE {where}", *args)
            assert found[-1] == f"SELECT {counted[0]}"
        update = await with_arguments(env, f"UPDATE pairs SET n = n WHERE {where}", *args)
        assert update == [f"UPDATE {counted[0]}"]


LINES = (
    "SELECT n FROM lines WHERE (k, l) IN ((2, 1), (3, 1))",
    "SELECT n FROM lines WHERE k IN (4, 5)",
    "UPDATE lines SET n = n + 1 WHERE k = 7",
    "UPDATE lines SET n = x FROM (VALUES (8, 1), (9, 2)) AS v (i, x) WHERE k = i",
    "DELETE FROM lines WHERE k = ANY('{1, 3}'::int[]) AND l > 2",
    "SELECT sum(n) FROM lines WHERE k = 2 OR k = 3 AND l = 1",
)


async def test_work_is_that_of_keys_whatever_size_of_table(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    examined: list[int] = []
    take, under = Updates.take, SecondaryView.under

    def counting(self: Updates, indices: Any, diffs: Any = None) -> Updates:
        examined[-1] += len(indices)
        return take(self, indices, diffs)

    def counting_places(self: SecondaryView, hashes: Sequence[int], layout: KeyLayout) -> Any:
        found = under(self, hashes, layout)
        examined[-1] += sum(len(places) for _, places in found)
        return found

    costs = []
    for count in (400, 40_000):
        await env.ran("x", "DROP TABLE IF EXISTS lines")
        await env.ran("x", "CREATE TABLE lines (k int, l int, n int NOT NULL, PRIMARY KEY (k, l))")
        made = f"SELECT i / 4, i % 4, 0 FROM generate_series(1, {count}) AS i"
        await env.ran("x", f"INSERT INTO lines {made}")
        await env.ran("x", "BEGIN", *LINES, "ROLLBACK")  # rows are hashed by their prefix
        examined.clear()
        with monkeypatch.context() as patched:
            patched.setattr(Updates, "take", counting)
            patched.setattr(SecondaryView, "under", counting_places)
            patched.setattr(StorageController, "snapshot", _scanned)
            patched.setattr(ComputeController, "peek", _scanned)
            for sql in LINES:
                examined.append(0)
                await env.ran("x", "BEGIN", sql, "ROLLBACK")
        costs.append(list(examined))
    assert costs[0] == costs[1]
    assert all(cost < 50 for cost in costs[0])
    assert any(costs[0])


def _scanned(*args: object, **kwargs: object) -> None:
    raise AssertionError("a table is scanned")


OF_SOURCES = (
    "SELECT t.a, t.b, x FROM t, (VALUES (1, 'p'), (3, 'q'), (1, 'r')) AS v (k, x) WHERE a = k",
    "SELECT t.a, t.b FROM t WHERE (a, b) IN (VALUES (1, 2), (3, 4), (9, 9))",
    "SELECT t.a, t.b FROM t JOIN unnest('{0, 4, NULL}'::bigint[]) AS u (k) ON t.a = k AND b < 3",
    "SELECT t.a, t.b, k FROM (VALUES (1), (7)) AS v (k) LEFT JOIN t ON t.a = k",
    "SELECT t.a, t.b, w FROM t JOIN small ON t.a = k AND t.b = 1",
    "SELECT t.a, t.b FROM t WHERE d IN (SELECT w FROM small)",
    "SELECT k, n FROM small JOIN (SELECT a, count(*) AS n FROM t GROUP BY a) AS g ON a = k",
    "SELECT t.a, t.b FROM t WHERE EXISTS (SELECT FROM small WHERE k = t.a AND w = t.d)",
    "SELECT t.a, t.b FROM t WHERE a = (SELECT max(k) FROM small)",
    "SELECT x.a, y.b FROM t AS x JOIN t AS y USING (a) WHERE x.a = 2 AND x.b = 1",
    "UPDATE t SET f = x FROM (VALUES (1, 5), (2, 6)) AS v (k, x) WHERE a = k RETURNING a, b, f, x",
    "UPDATE t SET f = k FROM small WHERE a = k AND b = 2 RETURNING t.a, t.b, f",
    "UPDATE t SET f = 8 WHERE d IN (SELECT w FROM small) RETURNING a, b",
    "DELETE FROM t USING small WHERE a = k AND w = d RETURNING a, b, w",
    "DELETE FROM t WHERE a IN (SELECT unnest('{1, 2}'::int[])) RETURNING a, b",
    "MERGE INTO t USING (VALUES (1, 2), (1, 99)) AS v (k, l) ON a = k AND b = l WHEN MATCHED THEN"
    " DELETE WHEN NOT MATCHED THEN INSERT VALUES (k, l, 'new', 'n', NULL, 1)",
    "MERGE INTO t USING small ON a = k WHEN MATCHED AND b > 3 THEN DELETE WHEN MATCHED THEN"
    " UPDATE SET f = 2",
)


@pytest.mark.parametrize("key", ["PRIMARY KEY", ""])
@pytest.mark.parametrize("sql", OF_SOURCES)
async def test_rows_of_sources_are_looked_up(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, sql: str, key: str
) -> None:
    for module in (restrict, key_lookup):
        monkeypatch.setattr(module, "SMALL", 5)
    rows = ", ".join(row(number) for number in range(40))
    await env.ran("x", *TABLES, f"INSERT INTO t VALUES {rows}", "INSERT INTO scanned TABLE t")
    await env.ran("x", f"CREATE TABLE small (k int {key}, w text NOT NULL)")
    await env.ran("x", "INSERT INTO small VALUES (1, 'd1'), (3, 'd2'), (8, 'd9')")
    other = re.sub(r"\bt\b", "scanned", sql).replace("AS scanned", "AS t")
    everything = f"SELECT {SHOWN} FROM scanned ORDER BY a, b"

    def ordered(answer: str) -> list[str]:
        return sorted(answer.splitlines())

    wanted = ordered(await env.ran("x", "BEGIN", other))
    left = await env.ran("x", everything)
    await env.ran("x", "ROLLBACK")
    monkeypatch.setattr(ComputeController, "peek", _scanned)
    snapshot, state = StorageController.snapshot, env.environment.coordinator.state
    small = next(item.id for item in state.all(Item) if item.name == "small")

    def of_small(storage: StorageController, read: ReadCapability, as_of: int) -> Snapshot:
        if key or read.id != small:
            _scanned()
        return snapshot(storage, read, as_of)

    monkeypatch.setattr(StorageController, "snapshot", of_small)
    await env.ran("x", "BEGIN")
    assert ordered(await env.ran("x", sql)) == wanted
    await env.ran("x", "COMMIT")
    monkeypatch.undo()
    assert (await env.ran("x", everything.replace("scanned", "t"))) == left.removesuffix("\nT")


async def test_table_without_key_that_gives_keys_counts_as_read(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (restrict, key_lookup):
        monkeypatch.setattr(module, "SMALL", 5)
    rows = ", ".join(row(number) for number in range(40))
    await env.ran("x", *TABLES, f"INSERT INTO t VALUES {rows}", "CREATE TABLE small (k int)")
    await env.ran("x", "INSERT INTO small SELECT 1 FROM generate_series(1, 3)")
    joined = "SELECT count(*) FROM t JOIN small ON a = k AND b = 0"
    assert "read whole" in await env.ran("x", f"EXPLAIN {joined}")
    await env.ran("x", "BEGIN")
    assert await env.query("x", joined, alone=False) == "3\nSELECT 1\nT"
    await env.ran("y", "INSERT INTO small VALUES (1)")
    assert await env.query("x", joined, alone=False) == "3\nSELECT 1\nT"
    await env.query("x", "INSERT INTO small VALUES (1)", alone=False)
    assert await env.query("x", joined, alone=False) == "4\nSELECT 1\nT"
    assert "40001" in await env.query("x", "COMMIT")
    assert await env.ran("x", joined) == "4\nSELECT 1"
    await env.ran("x", "DELETE FROM small")
    assert await env.ran("x", joined) == "0\nSELECT 1"
