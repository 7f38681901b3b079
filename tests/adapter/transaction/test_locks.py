"""Key locks: changes by key wait for locks on their keys only."""

import asyncio
import random
from pathlib import Path

import pytest

from foreshore.adapter.transaction import locks as locks_module
from tests.adapter.harness import TestEnvironment, until


async def test_transactions_like_tpcb_never_abort(env: TestEnvironment) -> None:
    clients, rounds = 8, 6

    async def client(name: str, seed: int) -> int:
        choose = random.Random(seed)
        given = 0
        for _ in range(rounds):
            account, teller, delta = (
                choose.randint(1, 20),
                choose.randint(1, 4),
                choose.randint(-9, 9),
            )
            for sql in (
                "BEGIN",
                f"UPDATE account SET n = n + {delta} WHERE id = {account}",
                f"SELECT n FROM account WHERE id = {account}",
                f"UPDATE teller SET n = n + {delta} WHERE id = {teller}",
                f"UPDATE branch SET n = n + {delta} WHERE id = 1",
                f"INSERT INTO history VALUES ({teller}, {account}, {delta})",
                "END",
            ):
                answer = await env.query(name, sql, alone=False)
                assert "ERROR" not in answer, (sql, answer)
            given += delta
        return given

    for table, size in (("account", 20), ("teller", 4), ("branch", 1)):
        await env.query(
            "s0",
            f"CREATE TABLE {table} (id int PRIMARY KEY, n int);"
            f" INSERT INTO {table} SELECT i, 0 FROM generate_series(1, {size}) AS g(i)",
        )
    await env.query("s0", "CREATE TABLE history (t int, a int, n int)")
    given = sum(await asyncio.gather(*(client(f"c{i}", i) for i in range(clients))))
    for table in ("account", "teller", "branch", "history"):
        answer = await env.query("s0", f"SELECT sum(n) FROM {table}")
        assert answer == f"{given}\nSELECT 1", table
    answer = await env.query("s0", "SELECT count(*) FROM history")
    assert answer == f"{clients * rounds}\nSELECT 1"


@pytest.mark.parametrize("action", ["NOTHING", "UPDATE SET n = t.n + excluded.n"])
@pytest.mark.parametrize("first", ["SELECT * FROM t WHERE k = 1", "SELECT count(*) FROM v"])
@pytest.mark.parametrize("rows", ["(1, 10)", "(1, 10), (2, 10)"])
async def test_on_conflict_with_newer_row_gives_40001(
    env: TestEnvironment, first: str, action: str, rows: str
) -> None:
    """As PostgreSQL says it of a block that goes on at the time of its first query."""
    await env.query("a", "CREATE TABLE t (k int PRIMARY KEY, n int)")
    await env.query("a", "CREATE VIEW v AS TABLE t")
    upsert = f"INSERT INTO t VALUES {rows} ON CONFLICT (k) DO {action}"
    for meets in (True, False):
        await env.query("b", "BEGIN ISOLATION LEVEL REPEATABLE READ")
        await env.query("b", first)
        key = 1 if meets else 3
        assert await env.query("a", f"INSERT INTO t VALUES ({key}, 1)") == "INSERT 0 1"
        answer = await env.query("b", upsert)
        if meets:
            assert answer.splitlines()[0] == (
                "ERROR 40001: could not serialize access due to concurrent update"
            )
        else:
            assert answer.startswith("INSERT 0 ")
        await env.query("b", "ROLLBACK")
        await env.query("a", "DELETE FROM t")


async def test_upserted_counters_lose_no_increment(env: TestEnvironment) -> None:
    async def client(name: str) -> None:
        for i in range(8):
            answer = await env.query(
                name,
                f"INSERT INTO counter VALUES ('k{i % 3}', 1)"
                " ON CONFLICT (k) DO UPDATE SET n = counter.n + excluded.n",
            )
            assert answer == "INSERT 0 1"

    await env.query("s0", "CREATE TABLE counter (k text PRIMARY KEY, n int)")
    await asyncio.gather(*(client(f"c{i}") for i in range(8)))
    answer = await env.query("s0", "SELECT * FROM counter ORDER BY k")
    assert answer == "k0|24\nk1|24\nk2|16\nSELECT 3"


async def test_deadlock_is_detected_at_once(env: TestEnvironment) -> None:
    await env.query("s0", "CREATE TABLE d (id int PRIMARY KEY, n int)")
    await env.query("s0", "INSERT INTO d VALUES (1, 0), (2, 0), (3, 0)")
    await env.query("a", "BEGIN; UPDATE d SET n = n + 1 WHERE id = 1")
    await env.query("b", "BEGIN; UPDATE d SET n = n + 1 WHERE id = 2")
    waiting = asyncio.create_task(env.query("a", "UPDATE d SET n = n + 1 WHERE id = 2"))
    locks = env.environment.coordinator.locks
    await until(lambda: bool(locks._waiting))
    third = await env.query("s0", "UPDATE d SET n = n + 1 WHERE id = 3", alone=False)
    assert third == "UPDATE 1"
    answer = await env.query("b", "UPDATE d SET n = n + 1 WHERE id = 1", alone=False)
    assert answer == "ERROR 40P01: deadlock detected\nE"
    assert await waiting == "UPDATE 1\nT"
    assert await env.query("a", "COMMIT") == "COMMIT"
    await env.query("b", "ROLLBACK")
    answer = await env.query("s0", "SELECT n FROM d ORDER BY id")
    assert answer == "1\n1\n1\nSELECT 3"
    assert not locks._keys
    assert not locks.tables


async def test_table_update_and_key_update_wait_for_each_other(env: TestEnvironment) -> None:
    await env.query("s0", "CREATE TABLE w (id int PRIMARY KEY, n int)")
    await env.query("s0", "INSERT INTO w VALUES (1, 0), (2, 0)")
    await env.query("a", "BEGIN; UPDATE w SET n = n + 1 WHERE id = 1")
    whole = asyncio.create_task(env.query("b", "UPDATE w SET n = n * 10", alone=False))
    locks = env.environment.coordinator.locks
    await until(lambda: len(locks._waiting) == 1)
    other = asyncio.create_task(env.query("c", "UPDATE w SET n = n + 1 WHERE id = 2", alone=False))
    await until(lambda: len(locks._waiting) == 2)
    assert await env.query("a", "UPDATE w SET n = n + 1 WHERE id = 1", alone=False) == "UPDATE 1\nT"
    assert await env.query("a", "COMMIT", alone=False) == "COMMIT"
    assert await whole == "UPDATE 2"
    assert await other == "UPDATE 1"
    answer = await env.query("s0", "SELECT n FROM w ORDER BY id")
    assert answer == "20\n1\nSELECT 2"


async def test_reads_without_locks_are_checked_at_commit(env: TestEnvironment) -> None:
    await env.query("s0", "CREATE TABLE r (id int PRIMARY KEY, n int)")
    await env.query("s0", "INSERT INTO r VALUES (1, 0), (2, 0), (3, 0)")
    # a key that was only read, and then changed by another
    await env.query("a", "BEGIN; SELECT n FROM r WHERE id = 1")
    await env.query("b", "UPDATE r SET n = 5 WHERE id = 1")
    await env.query("a", "UPDATE r SET n = 7 WHERE id = 2")
    assert (await env.query("a", "SELECT n FROM r WHERE id = 1")).startswith("0\n")
    answer = await env.query("a", "COMMIT")
    assert answer == "ERROR 40001: could not serialize access due to concurrent update"
    # one that nobody has changed
    await env.query("a", "BEGIN; SELECT n FROM r WHERE id = 1")
    await env.query("b", "UPDATE r SET n = 5 WHERE id = 3")
    await env.query("a", "UPDATE r SET n = 7 WHERE id = 2")
    assert await env.query("a", "COMMIT") == "COMMIT"
    # a key that was not there
    await env.query("a", "BEGIN; SELECT n FROM r WHERE id = 9")
    await env.query("b", "INSERT INTO r VALUES (9, 9)")
    await env.query("a", "INSERT INTO r VALUES (10, 1)")
    assert (await env.query("a", "COMMIT")).startswith("ERROR 40001")
    # the whole table
    await env.query("a", "BEGIN; SELECT sum(n) FROM r")
    await env.query("b", "UPDATE r SET n = 5 WHERE id = 3")
    await env.query("a", "UPDATE r SET n = 7 WHERE id = 2")
    assert (await env.query("a", "COMMIT")).startswith("ERROR 40001")


async def test_update_locks_all_keys_of_its_row(env: TestEnvironment) -> None:
    async def client(name: str, where: str) -> None:
        for _ in range(8):
            answer = await env.query(name, f"UPDATE two SET n = n + 1 WHERE {where}", alone=False)
            assert answer == "UPDATE 1"

    await env.query("s0", "CREATE TABLE two (id int PRIMARY KEY, e text UNIQUE, n int)")
    await env.query("s0", "INSERT INTO two VALUES (1, 'a', 0)")
    await asyncio.gather(client("a", "id = 1"), client("b", "e = 'a'"), client("c", "id = 1"))
    assert await env.query("s0", "SELECT n FROM two") == "24\nSELECT 1"


def test_lock_timeout_ends_wait(tmp_path: Path) -> None:
    """For keys, for whole tables, and at the commit for whoever blocks the table."""
    late = "ERROR 55P03: canceling statement due to lock timeout"

    async def play() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        try:
            for table in ("t", "u"):
                await env.query("s", f"CREATE TABLE {table} (id int PRIMARY KEY, n int)")
                await env.query("s", f"INSERT INTO {table} VALUES (1, 0), (2, 0)")
            await env.query("a", "BEGIN; UPDATE t SET n = 1 WHERE id = 1; TRUNCATE u")
            await env.query("s", "SET lock_timeout = '50ms'")
            for statement in (
                "UPDATE t SET n = 2 WHERE id = 1",
                "UPDATE t SET n = 2",
                "ALTER TABLE u ADD COLUMN m int",
                "INSERT INTO u VALUES (3, 0)",
            ):
                assert await env.query("s", statement) == late, statement
            first = "BEGIN; UPDATE t SET n = 2 WHERE id = 2; SAVEPOINT p"
            await env.ran("s", first)
            assert await env.query("s", "DELETE FROM t WHERE id = 1") == f"{late}\nE"
            assert await env.query("s", "ROLLBACK TO p; COMMIT") == "ROLLBACK\nCOMMIT"
            await env.query("s", "SET lock_timeout = 0")
            waiting = asyncio.create_task(
                env.query("s", "INSERT INTO u VALUES (3, 0)", alone=False)
            )
            await asyncio.sleep(0.2)
            assert not waiting.done()
            await env.query("a", "COMMIT", alone=False)
            assert await waiting == "INSERT 0 1"
            found = await env.query("s", "SELECT id, n FROM t ORDER BY id")
            assert found == "1|1\n2|2\nSELECT 2"
            assert await env.query("s", "SELECT id FROM u") == "3\nSELECT 1"
        finally:
            await env.close()

    asyncio.run(play())


def test_cost_of_waiting_does_not_grow_with_waiters(
    runner: asyncio.Runner, env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a row that a thousand clients want would hold up the loop."""
    compared = 0
    conflicts = locks_module._Request.conflicts

    def counted(one: locks_module._Request, other: locks_module._Request) -> bool:
        nonlocal compared
        compared += 1
        return conflicts(one, other)

    async def play() -> None:
        await env.query("s0", "CREATE TABLE wanted (id int PRIMARY KEY, n int)")
        await env.query("s0", "INSERT INTO wanted VALUES (1, 0)")
        update = "UPDATE wanted SET n = n + 1 WHERE id = 1"
        await env.query("a", f"BEGIN; {update}")
        names = [f"w{i}" for i in range(60)]
        waits = [asyncio.create_task(env.query(name, update, alone=False)) for name in names]
        locks = env.environment.coordinator.locks
        await until(lambda: len(locks._waiting) == len(names))
        assert compared <= len(names)
        await env.query("a", "COMMIT", alone=False)
        assert set(await asyncio.gather(*waits)) == {"UPDATE 1"}
        assert await env.query("s0", "SELECT n FROM wanted") == "61\nSELECT 1"

    monkeypatch.setattr(locks_module._Request, "conflicts", counted)
    runner.run(play())
