"""Writes during ALTER TABLE: which wait, are planned again, or fail."""

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from foreshore.adapter.client import CopyIn
from foreshore.adapter.write.source import changing_rows
from foreshore.errors import DatabaseError
from foreshore.types import Datum
from tests.adapter.harness import Gate, TestEnvironment, in_environment, told, until

REFUSED = "ERROR 40001: could not serialize access: a table was altered meanwhile"
GONE = 'ERROR 42P01: relation "t" does not exist'


async def extended(env: TestEnvironment, name: str, statement: str, *args: Datum) -> str:
    """Return what a prepared statement says when nothing but a Sync follows it."""
    session = await env.session(name)
    try:
        await session.bind("", statement, args, ())
        answer = await told(await session.execute("", 0, last=True))
        await session.sync()
    except DatabaseError as error:
        await session.fail()
        await session.sync()
        return f"ERROR {error.sqlstate}: {error.message}"
    return "\n".join(answer)


async def waiting(env: TestEnvironment, count: int) -> None:
    """Wait until so many statements wait for a lock."""
    locks = env.environment.coordinator.locks
    await until(lambda: len(locks._waiting) == count)


def test_write_waiting_for_alter_is_planned_again(
    tmp_path: Path,
) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.query("s", "CREATE TABLE t (id int PRIMARY KEY, a int, b int)")
        for name, sql in (
            ("named", "INSERT INTO t (id, a) VALUES ($1, $2)"),
            ("all", "INSERT INTO t (id, a) VALUES ($1, $2) RETURNING *"),
            ("once", "INSERT INTO t (id, a) VALUES ($1, $2) RETURNING *"),
            ("gone", "INSERT INTO t (id, b) VALUES ($1, $2)"),
        ):
            session = await env.session(name)
            await session.parse(name, sql, ())
            if name != "once":
                session.told()
        changed = "BEGIN; ALTER TABLE t DROP COLUMN b; ALTER TABLE t ADD COLUMN c int DEFAULT 9"
        await env.query("s", changed)
        writes = [
            asyncio.ensure_future(each)
            for each in (
                extended(env, "named", "named", 1, 10),
                extended(env, "all", "all", 2, 10),
                extended(env, "once", "once", 7, 10),
                extended(env, "gone", "gone", 3, 10),
                env.query("simple", "INSERT INTO t VALUES (4, 10) RETURNING *", alone=False),
                env.query("short", "INSERT INTO t VALUES (5, 1, 2)", alone=False),
                env.query("block", "BEGIN; INSERT INTO t VALUES (6, 10)", alone=False),
            )
        ]
        await waiting(env, len(writes))
        await env.query("s", "COMMIT", alone=False)
        assert await asyncio.gather(*writes) == [
            "INSERT 0 1",
            "ERROR 0A000: cached plan must not change result type",
            "7|10|9\nINSERT 0 1",
            'ERROR 42703: column "b" of relation "t" does not exist',
            "4|10|9\nINSERT 0 1",
            "INSERT 0 1",
            "BEGIN\nINSERT 0 1\nT",
        ]
        assert await env.query("block", "COMMIT") == "COMMIT"
        rows = await env.query("s", "SELECT * FROM t ORDER BY id")
        assert rows == "1|10|9\n4|10|9\n5|1|2\n6|10|9\n7|10|9\nSELECT 5"

    in_environment(tmp_path, scenario)


def test_rolled_back_alter_has_no_effect_on_waiting_write(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.query("s", "CREATE TABLE t (a int, b int)")
        await env.query("s", "BEGIN; ALTER TABLE t DROP COLUMN b")
        write = asyncio.ensure_future(env.query("w", "INSERT INTO t VALUES (1, 2)", alone=False))
        await waiting(env, 1)
        await env.query("s", "ROLLBACK", alone=False)
        assert await write == "INSERT 0 1"
        assert await env.query("s", "SELECT * FROM t") == "1|2\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_block_is_retried_only_at_first_statement(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.query("s", "CREATE TABLE t (a int); CREATE TABLE o (a int)")
        await env.query("reader", "BEGIN; SELECT * FROM o")
        await env.query("before", "BEGIN; INSERT INTO t VALUES (1)")
        await env.query("set", "BEGIN; SET LOCAL search_path = public; SAVEPOINT p")
        await env.query("s", "BEGIN; ALTER TABLE t ADD COLUMN b int DEFAULT 5")
        writes = [
            asyncio.ensure_future(env.query(name, f"INSERT INTO t VALUES ({n})", alone=False))
            for n, name in enumerate(("reader", "set"), 2)
        ]
        await waiting(env, 2)
        await env.query("s", "COMMIT", alone=False)
        assert await asyncio.gather(*writes) == [f"{REFUSED}\nE", "INSERT 0 1\nT"]
        assert await env.query("before", "COMMIT") == REFUSED
        # Who has waited once stands in the way of the next.
        again = asyncio.ensure_future(env.query("s", "ALTER TABLE t DROP COLUMN b", alone=False))
        await waiting(env, 1)
        shown = "SHOW search_path; ROLLBACK TO p; INSERT INTO t VALUES (4); COMMIT"
        assert await env.query("set", shown, alone=False) == (
            "public\nSHOW\nROLLBACK\nINSERT 0 1\nCOMMIT"
        )
        assert await again == "ALTER TABLE"
        assert await env.query("s", "SELECT * FROM t") == "4\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_retries_end_however_often_table_is_altered(tmp_path: Path) -> None:
    """Each time the write has been planned, the next ALTER TABLE has the table already."""

    async def scenario(env: TestEnvironment) -> None:
        await env.query("s", "CREATE TABLE t (a int PRIMARY KEY)")
        names = [f"alter{i}" for i in range(30)]
        await env.query("s", "BEGIN; ALTER TABLE t ADD COLUMN first int")
        altered = [
            asyncio.ensure_future(
                env.query(name, f"ALTER TABLE t ADD COLUMN {name} int", alone=False)
            )
            for name in names
        ]
        await waiting(env, len(names))
        write = asyncio.ensure_future(env.query("w", "INSERT INTO t VALUES (1)", alone=False))
        await waiting(env, len(names) + 1)
        await env.query("s", "COMMIT", alone=False)
        assert await asyncio.gather(*altered) == ["ALTER TABLE"] * len(names)
        assert await write == "INSERT 0 1"
        found = await env.query("s", "SELECT count(*) FROM t")
        assert found == "1\nSELECT 1"

    in_environment(tmp_path, scenario)


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
def test_write_waiting_for_new_check_must_satisfy_it(
    tmp_path: Path, action: str, refused: str
) -> None:
    """The table goes on in the same shard, so that nothing else tells that it is another."""

    async def scenario(env: TestEnvironment) -> None:
        await env.query("s", "CREATE TABLE t (a int, b int)")
        await env.query("s", "INSERT INTO t VALUES (7, 0)")
        a = None if "NULL" in action else 7 if "UNIQUE" in action else -1
        values = f"{'NULL' if a is None else a}, 1"
        await env.query("s", f"BEGIN; ALTER TABLE t {action}")
        writes = [
            asyncio.ensure_future(each)
            for each in (
                copied(env, "copy", "t", {"a": a, "b": 1}),
                env.query("alone", f"INSERT INTO t VALUES ({values})", alone=False),
                env.query("block", f"BEGIN; INSERT INTO t VALUES ({values})", alone=False),
                env.query("rows", f"INSERT INTO t SELECT {values} FROM t", alone=False),
            )
        ]
        await waiting(env, len(writes))
        assert await env.query("s", "COMMIT", alone=False) == "COMMIT"
        for answer in await asyncio.gather(*writes):
            assert answer.removeprefix("BEGIN\n").startswith(refused), answer
        await env.query("block", "ROLLBACK")
        assert await env.query("s", "SELECT * FROM t") == "7|0\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_write_waiting_for_key_must_satisfy_new_constraint(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.query("s", "CREATE TABLE t (id int PRIMARY KEY, a int)")
        await env.query("s", "INSERT INTO t VALUES (1, 1)")
        await env.query("first", "BEGIN; DELETE FROM t WHERE id = 1")
        alter = asyncio.ensure_future(
            env.query("s", "ALTER TABLE t ADD CHECK (a > 0)", alone=False)
        )
        await waiting(env, 1)
        inserted = "INSERT INTO t VALUES (1, -1) ON CONFLICT (id) DO NOTHING"
        write = asyncio.ensure_future(env.query("w", inserted, alone=False))
        await waiting(env, 2)
        assert await env.query("first", "COMMIT", alone=False) == "COMMIT"
        assert await alter == "ALTER TABLE"
        said = await write
        assert said.startswith("ERROR 23514"), said
        assert await env.query("s", "SELECT * FROM t") == "SELECT 0"

    in_environment(tmp_path, scenario)


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        ("ALTER TABLE t ADD COLUMN b int", "INSERT 0 1"),
        ("DROP TABLE t", GONE),
    ],
)
def test_rewrite_during_check_of_new_rows_is_handled(
    tmp_path: Path, change: str, answer: str
) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.query("s", "CREATE TABLE t (a int); CREATE TABLE o (a int)")
        await env.query("s", "INSERT INTO o VALUES (1)")
        await env.query("other", "BEGIN; TRUNCATE o")
        write = asyncio.ensure_future(env.query("w", "INSERT INTO t SELECT a FROM o", alone=False))
        await waiting(env, 1)
        await env.query("s", change, alone=False)
        await env.query("other", "ROLLBACK", alone=False)
        assert await write == answer

    in_environment(tmp_path, scenario)


@pytest.mark.parametrize(
    ("change", "before", "reader", "others"),
    [
        ("DROP TABLE t", GONE, GONE + "\nE", GONE),
        ("ALTER TABLE t RENAME TO n", "COMMIT", REFUSED + "\nE", GONE),
    ],
)
def test_write_waiting_for_drop_names_the_table(
    tmp_path: Path, change: str, before: str, reader: str, others: str
) -> None:
    """Who has written to it before, who cannot be planned again, and who can."""

    async def scenario(env: TestEnvironment) -> None:
        await env.query("s", "CREATE TABLE t (a int); CREATE TABLE o (a int)")
        for name in ("early", "late"):
            await env.query(name, "BEGIN; INSERT INTO t VALUES (1)")
        await env.query("reader", "BEGIN; SELECT * FROM o")
        await (await env.session("w")).parse("", "INSERT INTO t VALUES ($1)", ())
        await env.query("s", f"BEGIN; {change}")
        waits = [
            asyncio.ensure_future(each)
            for each in (
                env.query("early", "COMMIT", alone=False),
                env.query("reader", "INSERT INTO t VALUES (2)", alone=False),
                extended(env, "w", "", 3),
                copied(env, "c", "t", {"a": 4}),
            )
        ]
        await waiting(env, len(waits))
        await env.query("s", "COMMIT", alone=False)
        assert await asyncio.gather(*waits) == [before, reader, others, others]
        assert await env.query("late", "COMMIT") == before

    in_environment(tmp_path, scenario)


def test_commit_keeps_lock_after_client_disconnects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.query("s", "CREATE TABLE t (a int)")
        gate = Gate(monkeypatch, env.storage, "create")
        alter = asyncio.create_task(
            env.query("s", "ALTER TABLE t ADD COLUMN b int DEFAULT 5", alone=False)
        )
        await gate.reached.wait()
        alter.cancel()
        write = asyncio.create_task(env.query("w", "INSERT INTO t VALUES (1)", alone=False))
        await waiting(env, 1)
        gate.open()
        async with asyncio.timeout(30):
            with pytest.raises(asyncio.CancelledError):
                await alter
            await (await env.session("s")).close()
            assert await write == "INSERT 0 1"
        assert await env.query("w", "SELECT * FROM t") == "1|5\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_commit_after_default_changed_uses_new_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.query("s", "CREATE TABLE t (id int PRIMARY KEY, v int DEFAULT 1)")
        await env.query("s", "CREATE TABLE u (id int); INSERT INTO u VALUES (1), (2), (3)")
        computed, go_on = asyncio.Event(), asyncio.Event()

        async def slow(*args: Any) -> pa.Table:
            rows = await changing_rows(*args)
            computed.set()
            await go_on.wait()
            return rows

        monkeypatch.setattr("foreshore.adapter.write.merge.changing_rows", slow)
        await env.query("block", "BEGIN; INSERT INTO u VALUES (4)", alone=False)
        merge = "MERGE INTO t USING u ON t.id = u.id WHEN NOT MATCHED THEN INSERT (id)"
        merging = asyncio.ensure_future(env.query("block", f"{merge} VALUES (u.id)", alone=False))
        await computed.wait()
        await env.query("s", "ALTER TABLE t ALTER COLUMN v SET DEFAULT 5")
        go_on.set()
        assert await merging == f"{REFUSED}\nE"
        assert await env.query("s", "SELECT count(*) FROM t") == "0\nSELECT 1"

    in_environment(tmp_path, scenario)
