"""Changes begin in the callback that receives them: they give what they give message by message."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from foreshore.errors import AdminShutdown
from tests.adapter.harness import Gate, TestEnvironment
from tests.memory_client import DESCRIBE, FLUSH, SYNC, MemoryClient, bind, execute, parse, query

TABLES = (
    "DROP TABLE IF EXISTS t, parent, numbered CASCADE",
    "CREATE TABLE numbered (id serial PRIMARY KEY, v int CHECK (v >= 0), w int UNIQUE)",
    "CREATE TABLE t (k int PRIMARY KEY, v int CHECK (v >= 0), s text DEFAULT 'none')",
    "CREATE TABLE parent (k int PRIMARY KEY)",
    "INSERT INTO t SELECT i, i, 's' FROM generate_series(1, 9) AS i",
)
AGAIN = (
    "DELETE FROM t",
    "DELETE FROM numbered",
    "ALTER SEQUENCE numbered_id_seq RESTART",
    TABLES[-1],
)
STATEMENTS = {
    "insert": "INSERT INTO t VALUES ($1, $2)",
    "both": "INSERT INTO t (v, k) VALUES ($2, $1), ($2, $1 + 100)",
    "add": "UPDATE t SET v = v + $2 WHERE k = $1",
    "delete": "DELETE FROM t WHERE k = $1",
    "leave": "DELETE FROM parent WHERE k = $1",
    "look": "SELECT v, s FROM t WHERE k = $1",
    "begin": "BEGIN",
    "serial": "BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY",
    "commit": "COMMIT",
    "rollback": "ROLLBACK",
    "savepoint": "SAVEPOINT a",
    "back": "ROLLBACK TO a",
    "returning": "UPDATE t SET v = v + 1 WHERE k = $1 RETURNING v",
    "number": "INSERT INTO numbered (v, w) VALUES ($1, $2) RETURNING id, v + 1 AS next, $1 AS v",
    "numbers": "INSERT INTO numbered (v, w) VALUES ($1, $2), ($1, $3)",
    "one": "INSERT INTO numbered (v) VALUES (1) RETURNING id",
    "last": "SELECT lastval(), currval('numbered_id_seq')",
    "gone": "DELETE FROM t WHERE k = $1 RETURNING *",
    "upsert": "INSERT INTO t VALUES ($1, $2) ON CONFLICT (k) DO UPDATE SET v = t.v + excluded.v",
    "unless": "INSERT INTO t VALUES ($1, $2) ON CONFLICT DO NOTHING",
    "upserted": "INSERT INTO t VALUES ($1, $2) ON CONFLICT (k) DO UPDATE SET v = 1 RETURNING k",
}


def run(name: str, *args: int | None, describe: bool = False) -> bytes:
    """Return the messages that run a statement in a transaction of its own."""
    given = [None if arg is None else str(arg).encode() for arg in args]
    return bind(name, given) + (DESCRIBE if describe else b"") + execute() + SYNC


def unnamed(name: str, *args: int | None) -> bytes:
    """Return the messages that parse a statement's text and run it, described."""
    return parse("", STATEMENTS[name]) + run("", *args, describe=True)


def block(*texts: str) -> bytes:
    """Return a block of Query messages."""
    return b"".join(map(query, ("BEGIN", *texts, "END;")))


@asynccontextmanager
async def clients(env: TestEnvironment, *names: str) -> AsyncIterator[list[MemoryClient]]:
    """Connect clients that have prepared the statements."""
    found = []
    for name in names:
        client = await MemoryClient.connect(await env.session(name))
        for statement, sql in STATEMENTS.items():
            await client.send(parse(statement, sql) + SYNC)
        found.append(client)
    try:
        yield found
    finally:
        for name, client in zip(names, found, strict=True):
            await client.close()
            env.sessions.pop(name, None)


async def contents(env: TestEnvironment) -> str:
    return await env.ran("s", "SELECT * FROM t ORDER BY k")


REQUESTS = (
    run("insert", 10, 1),
    run("insert", 10, 2),  # the key is there
    run("insert", 11, -1),  # breaks the CHECK
    run("insert", None, 1),
    run("both", 12, 5, describe=True),
    run("add", 3, 4, describe=True),
    run("add", 3, -99),
    run("add", 99, 1),  # no such row
    run("add", 2, 2**31),  # not an int
    run("add", 2, 2**31 - 1),  # the sum is none
    run("delete", 4),
    run("delete", 4),
    run("insert", 4, 4) + run("look", 4) + run("add", 4, 1) + run("look", 4),
    run("returning", 5),
    bind("add", [b"6", b"1"]) + execute() + bind("add", [b"7", b"-99"]) + execute() + SYNC,
    run("number", 1, 1, describe=True) + run("last") + run("one"),
    run("number", 1, 1) + run("last"),  # a number is lost, and only one
    run("number", -1, 2) + run("last") + run("number", 3, 3) + run("last"),
    run("numbers", 4, 4, 5) + run("numbers", 4, 6, 6) + run("number", 7, 7) + run("last"),
    run("begin") + run("number", 8, 8) + run("rollback") + run("number", 9, 9) + run("last"),
    *(run("number", v, v) for v in range(100, 140)),  # more than the first range of numbers
    run("last"),
    run("gone", 8, describe=True) + run("gone", 8),
    run("upsert", 50, 1) + run("upsert", 50, 2) + run("upsert", 50, -9) + run("look", 50),
    run("unless", 50, 7) + run("unless", 51, 7) + run("look", 51),
    run("upserted", 52, 7) + run("upserted", 52, 7) + run("look", 52),
    query("INSERT INTO numbered (v) VALUES (1) RETURNING id, v"),
    run("look", 6),
    run("begin") + run("add", 6, 1) + run("look", 6) + run("insert", 60, 60) + run("commit"),
    run("begin") + run("add", 6, 1) + run("add", 60, -99) + run("look", 6) + run("commit"),
    run("begin") + run("add", 7, 1) + run("begin") + run("rollback") + run("look", 7),
    run("begin") + run("commit") + run("commit"),
    run("begin") + run("insert", 61, 1) + run("savepoint") + run("add", 61, 1) + run("back"),
    run("insert", 61, 1) + run("commit") + run("look", 61),
    run("begin") + run("insert", 62, 1) + run("add", 62, 1) + run("delete", 62) + run("commit"),
    run("serial") + run("add", 7, 1) + run("commit"),
    unnamed("insert", 70, 1) + unnamed("add", 70, 1) + unnamed("look", 70),
    unnamed("insert", 70, 1) + unnamed("insert", 71, -1) + unnamed("look", 71),
    unnamed("begin") + unnamed("add", 70, 1) + unnamed("look", 70) + unnamed("commit"),
    unnamed("begin") + unnamed("look", 70) + unnamed("look", 2**31) + unnamed("commit"),
    parse("", "SELECT 7") + unnamed("insert", 70, 1) + bind("") + execute() + SYNC,
    *(query(f"INSERT INTO t VALUES ({k}, {k - 81})") for k in range(80, 84)),
    *(query(f"UPDATE t SET v = v - {k}, s = 'it''s {k}' WHERE k = 83;") for k in (1, 1, 9, 1)),
    *(block(f"SELECT v, s FROM t WHERE k = {k}", "SELECT 1") for k in (1, 2, 3, 99)),
    *(block(f"UPDATE t SET v = v + {k} WHERE k = 5", "DELETE FROM t WHERE k = 6") for k in (1, -1)),
    block("UPDATE t SET v = -1 WHERE k = 5", "SELECT v FROM t WHERE k = 5"),
    run("begin") + run("look", 5) + run("rollback") + run("rollback"),
    query("BEGIN") + query("UPDATE t SET v = 7 WHERE k = 5") + query("ABORT") + run("look", 5),
    query("BEGIN; SELECT v, s FROM t WHERE k = 1; COMMIT") + query("SELECT v FROM t WHERE k = 1"),
)


def split(request: bytes) -> bytes:
    """Return a request with a Flush after each Bind, so that its messages are handled singly."""
    parts, at = [], 0
    while at < len(request):
        end = at + 1 + int.from_bytes(request[at + 1 : at + 5])
        parts.append(request[at:end])
        if request[at : at + 1] == b"B":
            parts.append(FLUSH)
        at = end
    return b"".join(parts)


async def test_answers_and_rows_are_those_of_single_messages(env: TestEnvironment) -> None:
    outcomes = []
    await env.ran("s", *TABLES)
    for form in (bytes, split):
        async with clients(env, "one") as (client,):
            answers = []
            for request in REQUESTS:
                client.receive(form(request))
                answers.append(await client.ready(request.count(SYNC) + request.count(b"Q\0\0")))
                env.environment.coordinator.check_consistency()
        outcomes.append((answers, await contents(env)))
        await env.ran("s", *AGAIN)
    (answers, rows), (single_answers, single_rows) = outcomes
    for request, ours, theirs in zip(REQUESTS, answers, single_answers, strict=True):
        assert ours == theirs, request
    assert rows == single_rows


async def test_changes_of_one_group_conflict_as_ever(env: TestEnvironment) -> None:
    await env.ran("s", *TABLES)
    async with clients(env, "one", "two") as (one, two):
        one.receive(run("insert", 20, 1))
        two.receive(run("insert", 20, 2))
        answers = [await one.ready(), await two.ready()]
        assert [b"INSERT 0 1" in each for each in answers] == [True, False]
        assert b"C23505\0" in answers[1]
        one.receive(run("add", 1, 1))
        two.receive(run("add", 1, 1))  # waits for the row, so in its task
        assert [await one.ready(), await two.ready()] == [bind_complete(b"UPDATE 1")] * 2
    assert "1|3|s" in await contents(env)


async def test_transactions_are_counted_once(env: TestEnvironment) -> None:
    await env.ran("s", *TABLES)
    async with clients(env, "one") as (client,):
        await client.send(run("look", 1))
        activity = env.environment.coordinator.activity

        async def counted(request: bytes) -> tuple[int, int]:
            before = activity.commits.total(), activity.rollbacks.total()
            await client.send(request)
            return activity.commits.total() - before[0], activity.rollbacks.total() - before[1]

        assert await counted(run("look", 1)) == (1, 0)
        assert await counted(run("insert", 50, 1)) == (1, 0)
        assert await counted(run("insert", 50, 1)) == (0, 1)  # at once, then in the task


def bind_complete(tag: bytes) -> bytes:
    """Return the whole answer to a change."""
    size = (len(tag) + 5).to_bytes(4)
    return b"2\0\0\0\x04C" + size + tag + b"\0Z\0\0\0\x05I"


async def test_block_that_lost_a_race_fails_at_commit(env: TestEnvironment) -> None:
    await env.ran("s", *TABLES)
    async with clients(env, "one", "two") as (one, two):
        for client in (one, two):
            await client.send(run("begin"))
        await one.send(run("insert", 40, 1))
        await two.send(run("insert", 40, 2))
        one.receive(run("commit"))
        two.receive(run("commit"))
        answers = [await one.ready(), await two.ready()]
        assert answers[0] == bind_complete(b"COMMIT")
        assert b"C23505\0" in answers[1]
        assert answers[1].endswith(b"Z\0\0\0\x05I")
    assert "40|1|none" in await contents(env)


async def test_change_waits_for_lock_of_a_block(env: TestEnvironment) -> None:
    await env.ran("s", *TABLES, "INSERT INTO parent VALUES (1), (2)")
    await env.ran("s", "DELETE FROM parent WHERE k = 2")  # its keys are read now
    async with clients(env, "one", "two") as (client, other):
        await env.ran("s", "BEGIN", "UPDATE t SET v = 50 WHERE k = 1")
        client.receive(run("add", 1, 1))
        await asyncio.sleep(0.01)
        assert not client.transport.written
        # Others do not wait: of the same table in their tasks, of another one at once.
        other.receive(run("add", 2, 1))
        assert await other.ready() == bind_complete(b"UPDATE 1")
        other.receive(run("leave", 1))
        assert await other.ready() == bind_complete(b"DELETE 1")
        await env.ran("s", "COMMIT")
        assert await client.ready() == bind_complete(b"UPDATE 1")
    assert "1|51|s" in await contents(env)


@pytest.mark.parametrize("then", ["gone", "terminated", "cancelled"])
async def test_change_in_flight_happens_once(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    await env.ran("s", *TABLES)
    storage = env.environment.coordinator.storage
    async with clients(env, "one") as (client,):
        gate = Gate(monkeypatch, storage, "begin_append")
        client.receive(run("add", 1, 1) + run("add", 2, 1))
        await gate.reached.wait()
        ended: list[object] = []
        client.session.interrupts.when_terminated(ended.append)
        match then:
            case "gone":
                client.wire.eof_received()
            case "terminated":
                client.session.interrupts.terminate(AdminShutdown())
            case "cancelled":
                client.session.interrupts.request(AdminShutdown())
        await asyncio.sleep(0.01)
        assert not ended
        assert not client.transport.written
        gate.open()
        answered = await client.ready(2)
        assert answered == bind_complete(b"UPDATE 1") * 2
        assert len(ended) == (then == "terminated")
    rows = await contents(env)
    assert "1|2|s\n2|3|s" in rows


async def test_table_of_foreign_keys_is_left_to_the_task(env: TestEnvironment) -> None:
    await env.ran("s", *TABLES)
    async with clients(env, "one") as (client,):
        await env.ran("s", "ALTER TABLE t ADD FOREIGN KEY (v) REFERENCES parent NOT VALID")
        client.receive(run("insert", 30, 30))
        assert b"C23503\0" in await client.ready()
