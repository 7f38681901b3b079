"""Ranges and first rows of a table in the order of its key, beside scans of the same rows."""

import asyncio
import random
from pathlib import Path

import pytest

from foreshore.adapter.read.keys import key_lookup
from foreshore.compute.keys import per_run
from tests.adapter.harness import TestEnvironment

TABLE = "CREATE TABLE {t} (a int, b text, c timestamp, n int, {key})"
KEYS = ("PRIMARY KEY (a, b, c)", "PRIMARY KEY (b, c, a)")
# Conditions and orders, of which those with LIMIT determine all rows.
QUERIES = """WHERE a > {a} AND b <> 'q'
WHERE a BETWEEN {a} AND {a} + 2
WHERE a >= {a}.5 OR false
WHERE a = {a} AND b > '{b}'
WHERE b = '{b}' AND c <= '2026-01-0{d}'
WHERE b >= '{b}' AND b < 'f'
WHERE (a, b) > ({a}, '{b}')
WHERE (b, c) <= ('{b}', '2026-01-0{d}')
WHERE a < 'NaN'::numeric AND a > {a}
WHERE a > NULL::int
ORDER BY a, b, c LIMIT {d}
ORDER BY b DESC, c DESC, a DESC LIMIT {d} OFFSET 2
ORDER BY a, b DESC, c LIMIT {d}
WHERE a = {a} ORDER BY b, c LIMIT {d}
WHERE n % 3 = 1 ORDER BY a, b, c LIMIT {d}
WHERE n = 99 ORDER BY b, c, a LIMIT 1
WHERE (a, b, c) > ({a}, '{b}', '2026-01-0{d}') ORDER BY a, b, c LIMIT {d}
WHERE b > '{b}' ORDER BY b, c, a""".splitlines()
SHOWN = ("a, b, c, n", "n", "count(*), sum(n)")
CHANGES = """INSERT INTO {t} SELECT i % 9, chr(97 + i * 7 % 9), timestamp '2026-01-01' + i % 11 * interval '1 day', i
    FROM generate_series({a}, {a} * 7) i WHERE NOT EXISTS (SELECT FROM {t} o WHERE o.a = i % 9
    AND o.b = chr(97 + i * 7 % 9) AND o.c = timestamp '2026-01-01' + i % 11 * interval '1 day')
DELETE FROM {t} WHERE a = {a} AND n % 2 = 0
UPDATE {t} SET n = n + 1 WHERE a <= {a} AND b > '{b}'
UPDATE {t} SET a = a + 20 WHERE n = {d}
DELETE FROM {t} WHERE b BETWEEN '{b}' AND 'c' AND a > 6""".split("\n")
STATEMENTS = ["\n".join(CHANGES[:3]), *CHANGES[3:]]


@pytest.mark.parametrize("under_prefix", [0, key_lookup.PREFIX_ROWS])
def test_ranges_answer_as_scans_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, under_prefix: int
) -> None:
    monkeypatch.setattr(per_run, "LARGE", 40)  # larger runs are sorted on a thread
    monkeypatch.setattr(key_lookup, "PREFIX_ROWS", under_prefix)

    async def main() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        explained = 0
        for seed, key in enumerate(KEYS):
            rng = random.Random(seed)
            keyed, scanned = f"keyed{seed}", f"scanned{seed}"
            await env.ran("s", TABLE.format(t=keyed, key=key))
            await env.ran("s", TABLE.format(t=scanned, key="UNIQUE (n, a, b, c)"))
            for _ in range(20):
                values = {
                    "a": rng.randrange(9),
                    "b": rng.choice("abcdefgh"),
                    "d": rng.randrange(1, 9),
                }
                if rng.random() < 0.35:
                    sql = rng.choice([*STATEMENTS, STATEMENTS[0], "BEGIN", "COMMIT"])
                    told = [
                        await env.query(t[0], sql.format(t=t, **values)) for t in (keyed, scanned)
                    ]
                    assert told[0] == told[1], sql
                rest = rng.choice(QUERIES).format(**values)
                shown = rng.choice(SHOWN if "ORDER" not in rest else SHOWN[:2])
                one, other = [
                    (await env.query(t[0], f"SELECT {shown} FROM {t} {rest}")).splitlines()
                    for t in (keyed, scanned)
                ]
                if "LIMIT" not in rest:
                    one, other = sorted(one), sorted(other)
                assert one == other, (seed, shown, rest)
                plan = await env.query("k", f"EXPLAIN SELECT {shown} FROM {keyed} {rest}")
                explained += "Used key" in plan
            for each in "ks":
                await env.query(each, "COMMIT")
        assert explained > 15
        await env.close()

    asyncio.run(main())


async def test_only_a_range_of_many_rows_under_a_prefix_is_read(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_lookup, "SCANNED_ROWS", 100)
    monkeypatch.setattr(key_lookup, "PREFIX_ROWS", 100)
    await own_env.ran("a", "CREATE TABLE t (a int, b int, PRIMARY KEY (a, b))")
    await own_env.ran("a", "INSERT INTO t SELECT i % 2, i FROM generate_series(1, 1000) i")
    query = "SELECT count(*) FROM t WHERE a = 1 AND b BETWEEN 100 AND {}"
    assert await own_env.query("a", query.format(110)) == "5\nSELECT 1"
    explained = await own_env.ran("a", "EXPLAIN " + query.format(110))
    assert "look-up of (a) = (1)" in explained
    assert "(a, b) <= (1, 110)" in explained
    analyzed = await own_env.ran("a", "EXPLAIN ANALYZE " + query.format(110))
    assert "Key look-up, in this process, of 5 rows" in analyzed
    await own_env.ran("a", "BEGIN", "INSERT INTO t VALUES (1, 102)")
    await own_env.ran("a", "DELETE FROM t WHERE b = 105")
    assert await own_env.query("a", query.format(110)) == "5\nSELECT 1\nT"
    await own_env.ran("a", "ROLLBACK")
    both = "SELECT count(*) FROM t WHERE a = 1 AND a = 0 AND b > 100"
    assert await own_env.query("a", both) == "0\nSELECT 1"


async def test_many_rows_are_scanned_and_first_rows_read_alone(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_lookup, "SCANNED_ROWS", 100)
    await own_env.ran("a", "CREATE TABLE t (id int PRIMARY KEY, v int)")
    await own_env.ran("a", "INSERT INTO t SELECT i, -i FROM generate_series(1, 5000) i")
    analyzed = "EXPLAIN ANALYZE SELECT * FROM t WHERE id > {} {}"
    few = await own_env.ran("a", analyzed.format(4990, ""))
    assert "Key look-up, in this process, of 10 rows" in few
    many = await own_env.ran("a", analyzed.format(2000, ""))
    assert "given up because it finds too many rows" in many
    first = await own_env.ran("a", analyzed.format(2000, "ORDER BY id LIMIT 3"))
    assert "of 64 rows" in first
    assert await own_env.query("a", "SELECT v FROM t ORDER BY id DESC LIMIT 2") == (
        "-5000\n-4999\nSELECT 2"
    )
    await own_env.ran("a", "DELETE FROM t WHERE id > 10")
    assert await own_env.query("a", "SELECT id FROM t ORDER BY id DESC LIMIT 1") == "10\nSELECT 1"
