"""Writes during ALTER TABLE: which wait, are planned again, or fail."""

import asyncio
from typing import Any

import pyarrow as pa
import pytest

from foreshore.adapter.client import CopyIn
from foreshore.adapter.write.source import rows_to_write
from foreshore.errors import DatabaseError
from foreshore.types import Datum
from tests.adapter.harness import Gate, TestEnvironment, told, until

REFUSED = "ERROR 40001: could not serialize access: a table was altered meanwhile"
GONE = 'ERROR 42P01: relation "t" does not exist'


async def extended(env: TestEnvironment, name: str, statement: str, *args: Datum) -> str:
    """Return what a prepared statement says when nothing but a Sync follows it."""
    session = await env.session(name)
    try:
        await session.extended.bind("", statement, args, ())
        answer = await told(await session.extended.execute("", 0, last=True))
        await session.extended.sync()
    except DatabaseError as error:
        await session.fail()
        await session.extended.sync()
        return f"ERROR {error.sqlstate}: {error.message}"
    return "\n".join(answer)


async def waiting(env: TestEnvironment, count: int) -> None:
    """Wait until so many statements wait for a lock."""
    locks = env.environment.coordinator.locks
    await until(lambda: len(locks._waiting) == count)


async def test_write_waiting_for_alter_is_planned_again(own_env: TestEnvironment) -> None:
    await own_env.query("s", "CREATE TABLE t (id int PRIMARY KEY, a int, b int)")
    for name, sql in (
        ("named", "INSERT INTO t (id, a) VALUES ($1, $2)"),
        ("all", "INSERT INTO t (id, a) VALUES ($1, $2) RETURNING *"),
        ("once", "INSERT INTO t (id, a) VALUES ($1, $2) RETURNING *"),
        ("gone", "INSERT INTO t (id, b) VALUES ($1, $2)"),
    ):
        session = await own_env.session(name)
        await session.extended.parse(name, sql, ())
        if name != "once":
            session.extended.told()
    changed = "BEGIN; ALTER TABLE t DROP COLUMN b; ALTER TABLE t ADD COLUMN c int DEFAULT 9"
    await own_env.query("s", changed)
    writes = [
        asyncio.ensure_future(each)
        for each in (
            extended(own_env, "named", "named", 1, 10),
            extended(own_env, "all", "all", 2, 10),
            extended(own_env, "once", "once", 7, 10),
            extended(own_env, "gone", "gone", 3, 10),
            own_env.query("simple", "INSERT INTO t VALUES (4, 10) RETURNING *", alone=False),
            own_env.query("short", "INSERT INTO t VALUES (5, 1, 2)", alone=False),
            own_env.query("block", "BEGIN; INSERT INTO t VALUES (6, 10)", alone=False),
        )
    ]
    await waiting(own_env, len(writes))
    await own_env.query("s", "COMMIT", alone=False)
    assert await asyncio.gather(*writes) == [
        "INSERT 0 1",
        "ERROR 0A000: cached plan must not change result type",
        "7|10|9\nINSERT 0 1",
        'ERROR 42703: column "b" of relation "t" does not exist',
        "4|10|9\nINSERT 0 1",
        "INSERT 0 1",
        "BEGIN\nINSERT 0 1\nT",
    ]
    assert await own_env.query("block", "COMMIT") == "COMMIT"
    rows = await own_env.query("s", "SELECT * FROM t ORDER BY id")
    assert rows == "1|10|9\n4|10|9\n5|1|2\n6|10|9\n7|10|9\nSELECT 5"


async def test_rolled_back_alter_has_no_effect_on_waiting_write(own_env: TestEnvironment) -> None:
    await own_env.query("s", "CREATE TABLE t (a int, b int)")
    await own_env.query("s", "BEGIN; ALTER TABLE t DROP COLUMN b")
    write = asyncio.ensure_future(own_env.query("w", "INSERT INTO t VALUES (1, 2)", alone=False))
    await waiting(own_env, 1)
    await own_env.query("s", "ROLLBACK", alone=False)
    assert await write == "INSERT 0 1"
    assert await own_env.query("s", "SELECT * FROM t") == "1|2\nSELECT 1"


async def test_block_is_retried_only_at_first_statement(own_env: TestEnvironment) -> None:
    await own_env.query("s", "CREATE TABLE t (a int); CREATE TABLE o (a int)")
    await own_env.query("reader", "BEGIN; SELECT * FROM o")
    await own_env.query("before", "BEGIN; INSERT INTO t VALUES (1)")
    await own_env.query("set", "BEGIN; SET LOCAL search_path = public; SAVEPOINT p")
    await own_env.query("s", "BEGIN; ALTER TABLE t ADD COLUMN b int DEFAULT 5")
    writes = [
        asyncio.ensure_future(own_env.query(name, f"INSERT INTO t VALUES ({n})", alone=False))
        for n, name in enumerate(("reader", "set"), 2)
    ]
    await waiting(own_env, 2)
    await own_env.query("s", "COMMIT", alone=False)
    assert await asyncio.gather(*writes) == [f"{REFUSED}\nE", "INSERT 0 1\nT"]
    assert await own_env.query("before", "COMMIT") == REFUSED
    # Who has waited once stands in the way of the next.
    again = asyncio.ensure_future(own_env.query("s", "ALTER TABLE t DROP COLUMN b", alone=False))
    await waiting(own_env, 1)
    shown = "SHOW search_path; ROLLBACK TO p; INSERT INTO t VALUES (4); COMMIT"
    assert await own_env.query("set", shown, alone=False) == (
        "public\nSHOW\nROLLBACK\nINSERT 0 1\nCOMMIT"
    )
    assert await again == "ALTER TABLE"
    assert await own_env.query("s", "SELECT * FROM t") == "4\nSELECT 1"


async def test_retries_end_however_often_table_is_altered(own_env: TestEnvironment) -> None:
    """Each time the write has been planned, the next ALTER TABLE has the table already."""
    await own_env.query("s", "CREATE TABLE t (a int PRIMARY KEY)")
    names = [f"alter{i}" for i in range(30)]
    await own_env.query("s", "BEGIN; ALTER TABLE t ADD COLUMN first int")
    altered = [
        asyncio.ensure_future(
            own_env.query(name, f"ALTER TABLE t ADD COLUMN {name} int", alone=False)
        )
        for name in names
    ]
    await waiting(own_env, len(names))
    write = asyncio.ensure_future(own_env.query("w", "INSERT INTO t VALUES (1)", alone=False))
    await waiting(own_env, len(names) + 1)
    await own_env.query("s", "COMMIT", alone=False)
    assert await asyncio.gather(*altered) == ["ALTER TABLE"] * len(names)
    assert await write == "INSERT 0 1"
    found = await own_env.query("s", "SELECT count(*) FROM t")
    assert found == "1\nSELECT 1"


async def copied(env: TestEnvironment, name: str, table: str, row: dict[str, Datum]) -> str:
    """Return what a COPY of one row into a table says."""
    session = await env.session(name)
    try:
        async for execution in session.simple(f"COPY {table} FROM STDIN"):
            assert isinstance(execution, CopyIn), execution
            fields = [each.with_nullable(True) for each in execution.desc.arrow_schema()]
            await execution.target.write(pa.RecordBatch.from_pylist([row], pa.schema(fields)))
            said = await execution.target.finish(last=True)
    except DatabaseError as error:
        await session.fail()
        return f"ERROR {error.sqlstate}: {error.message}"
    return said


@pytest.mark.parametrize(
    ("action", "refused"),
    [
        ("ADD CHECK (a > 0)", 'ERROR 23514: new row for relation "t" violates check constraint'),
        ("ALTER a SET NOT NULL", 'ERROR 23502: null value in column "a" of relation "t" violates'),
        ("ADD UNIQUE (a)", "ERROR 23505: duplicate key value violates unique constraint"),
    ],
)
async def test_write_waiting_for_new_check_must_satisfy_it(
    own_env: TestEnvironment, action: str, refused: str
) -> None:
    """The table goes on in the same shard, so that nothing else tells that it is another."""
    await own_env.query("s", "CREATE TABLE t (a int, b int)")
    await own_env.query("s", "INSERT INTO t VALUES (7, 0)")
    a = None if "NULL" in action else 7 if "UNIQUE" in action else -1
    values = f"{'NULL' if a is None else a}, 1"
    await own_env.query("s", f"BEGIN; ALTER TABLE t {action}")
    writes = [
        asyncio.ensure_future(each)
        for each in (
            copied(own_env, "copy", "t", {"a": a, "b": 1}),
            own_env.query("alone", f"INSERT INTO t VALUES ({values})", alone=False),
            own_env.query("block", f"BEGIN; INSERT INTO t VALUES ({values})", alone=False),
            own_env.query("rows", f"INSERT INTO t SELECT {values} FROM t", alone=False),
        )
    ]
    await waiting(own_env, len(writes))
    assert await own_env.query("s", "COMMIT", alone=False) == "COMMIT"
    for answer in await asyncio.gather(*writes):
        assert answer.removeprefix("BEGIN\n").startswith(refused), answer
    await own_env.query("block", "ROLLBACK")
    assert await own_env.query("s", "SELECT * FROM t") == "7|0\nSELECT 1"


async def test_write_waiting_for_key_must_satisfy_new_constraint(own_env: TestEnvironment) -> None:
    await own_env.query("s", "CREATE TABLE t (id int PRIMARY KEY, a int)")
    await own_env.query("s", "INSERT INTO t VALUES (1, 1)")
    await own_env.query("first", "BEGIN; DELETE FROM t WHERE id = 1")
    alter = asyncio.ensure_future(
        own_env.query("s", "ALTER TABLE t ADD CHECK (a > 0)", alone=False)
    )
    await waiting(own_env, 1)
    inserted = "INSERT INTO t VALUES (1, -1) ON CONFLICT (id) DO NOTHING"
    write = asyncio.ensure_future(own_env.query("w", inserted, alone=False))
    await waiting(own_env, 2)
    assert await own_env.query("first", "COMMIT", alone=False) == "COMMIT"
    assert await alter == "ALTER TABLE"
    said = await write
    assert said.startswith("ERROR 23514"), said
    assert await own_env.query("s", "SELECT * FROM t") == "SELECT 0"


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        ("ALTER TABLE t ADD COLUMN b int", "INSERT 0 1"),
        ("DROP TABLE t", GONE),
    ],
)
async def test_rewrite_during_check_of_new_rows_is_handled(
    own_env: TestEnvironment, change: str, answer: str
) -> None:
    await own_env.query("s", "CREATE TABLE t (a int); CREATE TABLE o (a int)")
    await own_env.query("s", "INSERT INTO o VALUES (1)")
    await own_env.query("other", "BEGIN; TRUNCATE o")
    write = asyncio.ensure_future(own_env.query("w", "INSERT INTO t SELECT a FROM o", alone=False))
    await waiting(own_env, 1)
    await own_env.query("s", change, alone=False)
    await own_env.query("other", "ROLLBACK", alone=False)
    assert await write == answer


@pytest.mark.parametrize(
    ("change", "before", "reader", "others"),
    [
        ("DROP TABLE t", GONE, GONE + "\nE", GONE),
        ("ALTER TABLE t RENAME TO n", "COMMIT", REFUSED + "\nE", GONE),
    ],
)
async def test_write_waiting_for_drop_names_the_table(
    own_env: TestEnvironment, change: str, before: str, reader: str, others: str
) -> None:
    """Who has written to it before, who cannot be planned again, and who can."""
    await own_env.query("s", "CREATE TABLE t (a int); CREATE TABLE o (a int)")
    for name in ("early", "late"):
        await own_env.query(name, "BEGIN; INSERT INTO t VALUES (1)")
    await own_env.query("reader", "BEGIN; SELECT * FROM o")
    await (await own_env.session("w")).extended.parse("", "INSERT INTO t VALUES ($1)", ())
    await own_env.query("s", f"BEGIN; {change}")
    waits = [
        asyncio.ensure_future(each)
        for each in (
            own_env.query("early", "COMMIT", alone=False),
            own_env.query("reader", "INSERT INTO t VALUES (2)", alone=False),
            extended(own_env, "w", "", 3),
            copied(own_env, "c", "t", {"a": 4}),
        )
    ]
    await waiting(own_env, len(waits))
    await own_env.query("s", "COMMIT", alone=False)
    assert await asyncio.gather(*waits) == [before, reader, others, others]
    assert await own_env.query("late", "COMMIT") == before


async def test_commit_keeps_lock_after_client_disconnects(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    await own_env.query("s", "CREATE TABLE t (a int)")
    gate = Gate(monkeypatch, own_env.storage, "create")
    alter = asyncio.create_task(
        own_env.query("s", "ALTER TABLE t ADD COLUMN b int DEFAULT 5", alone=False)
    )
    await gate.reached.wait()
    alter.cancel()
    write = asyncio.create_task(own_env.query("w", "INSERT INTO t VALUES (1)", alone=False))
    await waiting(own_env, 1)
    gate.open()
    async with asyncio.timeout(30):
        with pytest.raises(asyncio.CancelledError):
            await alter
        await (await own_env.session("s")).close()
        assert await write == "INSERT 0 1"
    assert await own_env.query("w", "SELECT * FROM t") == "1|5\nSELECT 1"


async def test_commit_after_default_changed_uses_new_default(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    await own_env.query("s", "CREATE TABLE t (id int PRIMARY KEY, v int DEFAULT 1)")
    await own_env.query("s", "CREATE TABLE u (id int); INSERT INTO u VALUES (1), (2), (3)")
    computed, go_on = asyncio.Event(), asyncio.Event()

    async def slow(*args: Any, **options: Any) -> pa.Table:
        rows = await rows_to_write(*args, **options)
        computed.set()
        await go_on.wait()
        return rows

    monkeypatch.setattr("foreshore.adapter.write.change.rows_to_write", slow)
    await own_env.query("block", "BEGIN; INSERT INTO u VALUES (4)", alone=False)
    merge = "MERGE INTO t USING u ON t.id = u.id WHEN NOT MATCHED THEN INSERT (id)"
    merging = asyncio.ensure_future(own_env.query("block", f"{merge} VALUES (u.id)", alone=False))
    await computed.wait()
    await own_env.query("s", "ALTER TABLE t ALTER COLUMN v SET DEFAULT 5")
    go_on.set()
    assert await merging == f"{REFUSED}\nE"
    assert await own_env.query("s", "SELECT count(*) FROM t") == "0\nSELECT 1"
