"""Statements about one row say and do the same by tuples as by columns, whatever they are mixed with."""

import asyncio
import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from foreshore.adapter import session_planner
from foreshore.adapter.peek_plan import PeekPlan
from foreshore.adapter.point_plan import PointPlan, RowRules, plan_point, rules_of
from foreshore.catalog.catalog import Planned
from foreshore.ids import GlobalId
from tests.adapter.harness import House

TABLE = """CREATE TABLE {t} (id int PRIMARY KEY, code text, n int CHECK (n < 50),
    w numeric(6, 2) NOT NULL DEFAULT 0.5, f float8, CONSTRAINT {t}_code UNIQUE (code),
    CONSTRAINT {t}_w CHECK (10 / (w - 3) <> 5))"""

STATEMENTS = """INSERT INTO {t} (id, code, n, w) VALUES ({k}, {c}, {n}, {w})
INSERT INTO {t} (id, code, n) VALUES ({k}, {c}, {n}) RETURNING *, n + 1
INSERT INTO {t} VALUES ({k}, {c}, {n}, {w}, -0.0), ({n}, 'z', {k}, 1.005, 'NaN')
INSERT INTO {t} (id) VALUES (NULL)
INSERT INTO {t} (id, n) SELECT g, g FROM generate_series({k}, {n}) g
INSERT INTO {t} (id, code) VALUES ({k}, {c}) ON CONFLICT (id) DO UPDATE SET n = {t}.n + 1
INSERT INTO {t} (id, code) VALUES ({k}, {c}) ON CONFLICT DO NOTHING
UPDATE {t} SET n = n + {n} WHERE id = {k}
UPDATE {t} SET n = n * 2147483647 WHERE id = {k}
UPDATE {t} SET n = NULL, f = 0.1 WHERE id = {k} RETURNING id, n, f
UPDATE {t} SET w = w + {w}, code = {c} WHERE id = {k}
UPDATE {t} SET w = w / {n} WHERE id = {k} AND n > 1
UPDATE {t} SET w = NULL WHERE code = {c}
UPDATE {t} SET id = id + 1 WHERE id = {k}
UPDATE {t} SET id = id + 1, code = code || 'x' WHERE code = {c}
UPDATE {t} SET id = NULL WHERE id = {k}
UPDATE {t} SET id = id + 1
UPDATE {t} SET n = n + 1 WHERE n < {n}
UPDATE {t} SET n = 1 WHERE id IN ({k}, {n})
DELETE FROM {t} WHERE id = {k}
DELETE FROM {t} WHERE code = {c} AND n / {n} > 0 RETURNING *
DELETE FROM {t} WHERE n = {n}
SELECT * FROM {t} WHERE id = {k}
SELECT n + {n}, w, code FROM {t} WHERE id = {k} ORDER BY 1
SELECT count(*) FROM {t} WHERE id = {k}
SELECT FROM {t} WHERE id = {k}
SELECT id, n / {n} FROM {t} WHERE code = {c} LIMIT 1
SELECT id FROM {t} WHERE id = {k} AND n / {n} > 0
SELECT f, f + 1 FROM {t} WHERE id = 99999999999
SELECT sum(n), count(f) FROM {t}
BEGIN
SAVEPOINT s
ROLLBACK TO SAVEPOINT s
COMMIT
ROLLBACK""".splitlines()


def statement(rng: random.Random) -> str:
    """Return one that is about few keys, so that it often meets others' rows."""
    return rng.choice(STATEMENTS).format(
        t="{t}",
        k=rng.randrange(6),
        n=rng.randrange(6),
        c=rng.choice(["'a'", "'b'", "'ax'", "NULL"]),
        w=rng.choice(["0.5", "-0.5", "3", "4.99", "2.504", "9999.99"]),
    )


def test_tuples_and_columns_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_tuples: list[str] = []  # the statements that were planned so
    by_columns: set[GlobalId] = set()  # the tables that are always looked at by columns

    def plan(peek: PeekPlan, planned: Mapping[GlobalId, Planned]) -> PointPlan | None:
        if peek.key is None or peek.key.table in by_columns:
            return None
        found = plan_point(peek, planned)
        by_tuples.extend(["point"] if found is not None else [])
        return found

    def rules(planned: Planned) -> RowRules | None:
        if any(each.name.startswith("c") for each in planned.constraints):
            return None
        by_tuples.append("rules")
        return rules_of(planned)

    async def main() -> None:
        house = House(tmp_path)
        await house.open()
        for seed in range(12):
            rng = random.Random(seed)
            t, c = f"t{seed}", f"c{seed}"
            for each in (t, c):
                assert await house.query("a", TABLE.format(t=each)) == "CREATE TABLE"
            by_columns.add(
                next(i.id for i in house.environment.coordinator.state.items() if i.name == c)
            )
            done = []
            for _ in range(30):
                sql = statement(rng)
                done.append(sql)
                one = await house.query("t", sql.format(t=t))
                other = await house.query("c", sql.format(t=c))
                assert one == other.replace(c, t), (seed, done)
                if rng.random() < 0.2:  # somebody else writes between the statements of a block
                    sql = f"INSERT INTO {{t}} (id) VALUES ({rng.randrange(6, 9)})"
                    done.append(sql)
                    one = await house.query("x", sql.format(t=t))
                    other = await house.query("x", sql.format(t=c))
                    assert one == other.replace(c, t), (seed, done)
            for each in ("t", "c"):
                await house.query(each, "ROLLBACK")
            rows = [await house.query("a", f"SELECT * FROM {each} ORDER BY id") for each in (t, c)]
            assert rows[0] == rows[1], (seed, done)
            for each in (t, c):
                assert await house.query("a", f"DROP TABLE {each}") == "DROP TABLE"
        await house.close()

    monkeypatch.setattr(session_planner, "plan_point", plan)
    monkeypatch.setattr(session_planner, "rules_of", rules)
    asyncio.run(main())
    assert by_tuples.count("point") > 30
    assert by_tuples.count("rules") > 30


def test_who_waited_for_a_key_sees_what_was_done_to_it(tmp_path: Path) -> None:
    """By columns, too: what was changed by tuples meanwhile is not in the arrangement yet."""

    async def main() -> None:
        house = House(tmp_path)
        await house.open()
        await house.query("a", "CREATE TABLE t (id int PRIMARY KEY, v int)")
        await house.query("a", "INSERT INTO t VALUES (1, 0)")
        for waiting in (
            "INSERT INTO t VALUES (1, 0) ON CONFLICT (id) DO UPDATE SET v = t.v + 10",
            "UPDATE t SET v = v + 10 WHERE id IN (1, 2)",
            "UPDATE t SET v = v + 10 WHERE id = 1",
        ):
            assert await house.query("a", "BEGIN; UPDATE t SET v = 1 WHERE id = 1")
            task = asyncio.create_task(house.query("b", waiting, alone=False))
            await asyncio.sleep(0.1)
            assert not task.done()
            assert await house.query("a", "COMMIT", alone=False) == "COMMIT"
            assert not (await task).startswith("ERROR")
            assert (await house.query("a", "SELECT sum(v) FROM t")).startswith("11\n")
        await house.close()

    asyncio.run(main())
