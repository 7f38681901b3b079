"""Executions of one statement in a row say and do the same together as one by one."""

import asyncio
import random
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from foreshore.adapter.client import Completed
from foreshore.adapter.session.session import Session
from foreshore.errors import DatabaseError
from foreshore.types import Datum
from tests.adapter.harness import TestEnvironment, told

TABLE = """CREATE TABLE {t} (id int PRIMARY KEY, code text, n int CHECK (n < 40), w numeric(6, 2)
    NOT NULL DEFAULT 0.5, s serial, g int GENERATED ALWAYS AS (n * 2) STORED,
    CONSTRAINT {t}_code UNIQUE (code))"""

# Of other tables, to which a table refers, or that refer to it.
FOREIGN = (
    (),
    (
        "CREATE TABLE {t}_c (i int, r int REFERENCES {t} ON DELETE CASCADE ON UPDATE CASCADE)",
        "CREATE TABLE {t}_d (i int, r text REFERENCES {t} (code) ON DELETE SET NULL)",
    ),
    ("CREATE TABLE {t}_c (i int, r int REFERENCES {t}, s int REFERENCES {t} ON DELETE CASCADE)",),
    ("CREATE TABLE {t}_c (i int, r int REFERENCES {t} ON DELETE SET DEFAULT, d int DEFAULT 3)",),
    ("ALTER TABLE {t} ADD FOREIGN KEY (n) REFERENCES {t}",),
    (
        "CREATE TABLE {t}_p (k int PRIMARY KEY)",
        "INSERT INTO {t}_p SELECT generate_series(0, 7)",
        "ALTER TABLE {t} ADD FOREIGN KEY (n) REFERENCES {t}_p ON DELETE CASCADE",
        "CREATE TABLE {t}_c (i int, r int REFERENCES {t} ON UPDATE CASCADE DEFERRABLE)",
    ),
)
CHILDREN = (
    "INSERT INTO {t}_c SELECT i, i % 6 FROM generate_series(1, 5) i",
    "INSERT INTO {t}_d SELECT i, 'c' || i % 6 FROM generate_series(1, 5) i",
    "DELETE FROM {t}_c WHERE i > 2",
)

STATEMENTS = """INSERT INTO {t} (id, n) VALUES ($1, $2)
INSERT INTO {t} (id, code, n) VALUES ($1, $3, 10 / $2)
INSERT INTO {t} (id, n) VALUES ($1, $2), ($1 + 100, $2)
INSERT INTO {t} (id, n) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET n = {t}.n + excluded.n
INSERT INTO {t} (id, n) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET n = 1 WHERE {t}.n > $2
INSERT INTO {t} (id, code) VALUES ($1, $3) ON CONFLICT (code) DO UPDATE SET id = excluded.id
INSERT INTO {t} (id, n) VALUES ($1, $2), ($1 + 1, $2) ON CONFLICT DO NOTHING
INSERT INTO {t} (id, code) VALUES ($1, $3) ON CONFLICT DO NOTHING
UPDATE {t} SET n = n + $2 WHERE id = $1
UPDATE {t} SET n = n + 1, w = w / $2 WHERE id = $1 AND n < 30
UPDATE {t} SET id = id + $2 WHERE id = $1
UPDATE {t} SET code = $3 WHERE id = $1
UPDATE {t} SET n = 3 WHERE code = $3 AND n > $2
DELETE FROM {t} WHERE id = $1
DELETE FROM {t} WHERE id = $1 AND n > $2
DELETE FROM {t} WHERE code = $3
INSERT INTO {t} (id, n) VALUES ($1, $2) RETURNING id, g, $2::int + 1
INSERT INTO {t} (id, n) VALUES ($1, $2) RETURNING 10 / n
INSERT INTO {t} (id, n) VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET n = $2 RETURNING id, n
INSERT INTO {t} (id, code) VALUES ($1, $3) ON CONFLICT (id) DO UPDATE SET code = $3
INSERT INTO {t} (id, n) VALUES ($1, $2), ($1 + 6, 2) ON CONFLICT (id) DO UPDATE SET n = 6 / $2
UPDATE {t} SET n = $2 WHERE id IN ($1, $1 + 20) RETURNING id, w, n
DELETE FROM {t} WHERE id = $1 RETURNING n, code""".splitlines()

SERIAL = re.compile(r"\((.*), \d+, (\S+)\)\.")  # in a row with an error; what failed leaves gaps

DO_NOTHING = " ON CONFLICT DO NOTHING"

Arguments = Sequence[Sequence[Datum]]


def drawn(rng: random.Random, sql: str) -> Arguments:
    """Return arguments of some executions; sometimes no key is there twice."""
    keys = [rng.randrange(12) for _ in range(rng.randrange(2, 14))]
    keys = keys if rng.random() < 0.5 else list(dict.fromkeys(keys))
    used = max(int(digit) for digit in "123" if f"${digit}" in sql)
    zero = 0 if rng.random() < 0.3 else 1
    return [
        (key if rng.random() < 0.98 else None, rng.randrange(zero, 5), f"c{key % 7}")[:used]
        for key in keys
    ]


async def piped(
    session: Session, sql: str, many: Arguments, ran: Counter[str], *, by_one: bool
) -> list[str]:
    """Return what executions between two Syncs say, as a connection runs them."""
    lines: list[str] = []
    try:
        prepared = await session.extended.parse("", sql, (23, 23, 25)[: len(many[0])])
        left, most = list(many), 1 if by_one else len(many)
        while left:
            await session.extended.ready(prepared)
            done = await session.extended.run(prepared, left[:most], (), 0, last=len(left) <= most)
            for each in done:
                lines += await told(each)
            ran["as one"] += len(done) if len(done) > 1 else 0
            ran["RETURNING"] += len(done) > 1 and "RETURNING" in sql
            left, most = left[len(done) :], 1 if by_one else 2 * len(done)
        await session.extended.sync()
    except DatabaseError as error:
        await session.fail()
        await session.extended.sync()
        ran["error"] += 1
        lines += [f"ERROR {error.sqlstate}: {error.message}", error.detail or ""]
    return [*lines, session.transaction_status]


def test_executions_agree_as_one_and_one_by_one(tmp_path: Path) -> None:
    ran: Counter[str] = Counter()

    async def contents(env: TestEnvironment, table: str) -> list[str]:
        return [
            await env.query("a", f"SELECT {columns} FROM {table}{of} ORDER BY {columns}")
            for of, columns in (("", "id, code, n, w, g"), ("_c", "i, r"), ("_d", "i, r"))
        ]

    async def main() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        for seed in range(18):
            rng = random.Random(seed)
            tables = f"one{seed}", f"two{seed}"
            for each in tables:
                made = (TABLE, *FOREIGN[seed % len(FOREIGN)])
                await env.ran("a", *(sql.format(t=each) for sql in made))
            done: list[object] = []
            for _ in range(25):
                sql = rng.choice(STATEMENTS)
                if rng.random() < 0.25:
                    sql = rng.choice(["BEGIN", "SAVEPOINT s", "ROLLBACK TO s", "COMMIT"])
                    told_each = [await env.query(t, sql) for t in ("one", "two")]
                elif rng.random() < 0.2:
                    sql = rng.choice(CHILDREN)
                    told_each = [
                        (await env.query(name[:3], sql.format(t=name))).replace("two", "one")
                        for name in tables
                    ]
                else:
                    many = drawn(rng, sql)
                    done.append(many)
                    told_each = []
                    for t, name in zip(("one", "two"), tables, strict=True):
                        session = await env.session(t)
                        said = await piped(
                            session, sql.format(t=name), many, ran, by_one=t == "one"
                        )
                        text = "\n".join(said).replace("two", "one")
                        told_each.append(SERIAL.sub(r"(\1, _, \2).", text))
                done.append(sql)
                assert told_each[0] == told_each[1], (seed, done)
                if rng.random() < 0.2:  # somebody else writes meanwhile, but waits for no lock
                    key = rng.randrange(200, 400)
                    for name in tables:
                        await env.ran("x", f"INSERT INTO {name} (id) VALUES ({key})" + DO_NOTHING)
            for each in ("one", "two"):
                await env.query(each, "ROLLBACK")
            one, two = [await contents(env, name) for name in tables]
            assert [each.replace("two", "one") for each in two] == one, (seed, done)
        await env.close()

    asyncio.run(main())
    assert ran["as one"] > 300
    assert ran["RETURNING"] > 20
    assert ran["error"] > 100


async def test_executions_wait_for_locked_key(own_env: TestEnvironment) -> None:
    await own_env.ran("a", "CREATE TABLE t (id int PRIMARY KEY, v int)")
    await own_env.ran("a", "INSERT INTO t SELECT i, 0 FROM generate_series(1, 50) i")
    await own_env.ran("a", "BEGIN; UPDATE t SET v = 7 WHERE id = 30")
    session = await own_env.session("b")
    prepared = await session.extended.parse("s", "UPDATE t SET v = v + 1 WHERE id = $1", ())
    many = [(i,) for i in range(1, 51)]
    running = asyncio.create_task(session.extended.run(prepared, many, (), 0, last=False))
    await asyncio.sleep(0.05)
    assert not running.done()
    assert await own_env.query("a", "COMMIT", alone=False) == "COMMIT"
    assert await running == [Completed("UPDATE 1")] * 50
    await session.extended.sync()
    assert await own_env.query("a", "SELECT sum(v), max(v) FROM t") == "57|8\nSELECT 1"


async def test_executions_wait_for_a_lock_once_until_its_timeout(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    await own_env.ran("a", "CREATE TABLE t (id int PRIMARY KEY, v int)")
    await own_env.ran("a", "INSERT INTO t SELECT i, 0 FROM generate_series(1, 50) i")
    await own_env.ran("b", "SET lock_timeout = 20")
    await own_env.ran("a", "BEGIN; UPDATE t SET v = 7 WHERE id = 3")
    locks, waits = own_env.environment.coordinator.locks, list[object]()
    acquire = locks.acquire_keys

    async def counted(*args: Any) -> None:
        waits.append(args)
        await acquire(*args)

    monkeypatch.setattr(locks, "acquire_keys", counted)
    session = await own_env.session("b")
    many = [(i,) for i in range(1, 51)]
    update = "UPDATE t SET v = v + 1 WHERE id = $1"
    said = await piped(session, update, many, Counter(), by_one=False)
    assert [line[:11] for line in said[:1]] == ["ERROR 55P03"]
    assert len(waits) == 1
    await own_env.ran("a", "COMMIT")
    assert await own_env.query("a", "SELECT sum(v) FROM t") == "7\nSELECT 1"


@pytest.mark.parametrize(
    ("action", "many"),
    [
        ("(a) DO UPDATE SET b = excluded.b", [(i, 51 - i) for i in range(1, 51)]),
        ("(a) DO UPDATE SET a = t.a + 1", [(i, i) for i in range(1, 51)]),
        (
            "(a) DO UPDATE SET b = excluded.b",  # new rows have what others give up later
            [(100 + i, i) for i in range(1, 26)] + [(i, 200 + i) for i in range(1, 26)],
        ),
    ],
)
async def test_updated_row_takes_no_key_that_is_given_up_later(
    own_env: TestEnvironment, action: str, many: Arguments
) -> None:
    await own_env.ran("a", "CREATE TABLE t (a int PRIMARY KEY, b int UNIQUE)")
    await own_env.ran("a", "INSERT INTO t SELECT i, i FROM generate_series(1, 50) i")
    session = await own_env.session("b")
    sql = f"INSERT INTO t VALUES ($1, $2) ON CONFLICT {action}"
    said = await piped(session, sql, many, Counter(), by_one=False)
    assert [line for line in said if line.startswith("ERROR 23505")], said
    assert await own_env.query("a", "SELECT sum(a), sum(b) FROM t") == "1275|1275\nSELECT 1"


@pytest.mark.parametrize("begin", ["SELECT 1", "BEGIN"])
async def test_executions_that_run_in_parts_are_counted_once(
    own_env: TestEnvironment, begin: str
) -> None:
    await own_env.ran("a", "CREATE TABLE t (a int PRIMARY KEY, b int UNIQUE)")
    await own_env.ran("a", "INSERT INTO t SELECT i, i FROM generate_series(1, 50) i", begin)
    session = await own_env.session("a")
    sql = "INSERT INTO t VALUES ($1, $2) ON CONFLICT (a) DO UPDATE SET b = excluded.b"
    many = [(i % 30, 100 + i) for i in range(1, 61)]  # all keys come twice
    ran: Counter[str] = Counter()
    rolled_back = "SELECT xact_rollback FROM pg_stat_database WHERE datname = current_database()"
    before = await own_env.query("b", rolled_back)
    await piped(session, sql, many, ran, by_one=False)
    assert ran["as one"] == 60
    updated = "SELECT n_tup_ins, n_tup_upd FROM pg_stat_user_tables WHERE relname = 't'"
    assert await own_env.query("b", updated) == "51|59\nSELECT 1"
    assert await own_env.query("b", rolled_back) == before
