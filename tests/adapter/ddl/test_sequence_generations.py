"""Generations of sequences: concurrent restarts, and commits with unknown outcome."""

import asyncio
import errno
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
import pytest

from foreshore.catalog.sequence_numbers import KEY, Generation, Positions
from foreshore.storage import segment
from tests.adapter.harness import Gate, TestEnvironment
from tests.storage.test_no_room import Disk

BEFORE = """CREATE SEQUENCE s; CREATE SEQUENCE r; SELECT nextval('s');
    CREATE TABLE t (k serial, v int); INSERT INTO t (v) VALUES (0)"""
BEGUN = [("2", "BEGIN", "BEGIN\nT"), ("2", "CREATE TEMP TABLE z (a int)", "CREATE TABLE\nT")]


def restarting(block: str, number: int) -> list[tuple[str, str, str]]:
    restart = f"ALTER SEQUENCE s RESTART WITH {number}"
    return [(block, "BEGIN", "BEGIN\nT"), (block, restart, "ALTER SEQUENCE\nT")]


def drawing(who: str, number: int, state: str = "") -> tuple[str, str, str]:
    return who, "SELECT nextval('s')", f"{number}\nSELECT 1{state}"


@pytest.mark.parametrize(
    ("steps", "after"),
    [
        pytest.param(
            [
                *BEGUN,
                ("1", "ALTER SEQUENCE s RESTART WITH 100", "ALTER SEQUENCE"),
                drawing("3", 100),
                ("2", "ALTER SEQUENCE s RESTART WITH 100", "ALTER SEQUENCE\nT"),
                drawing("3", 101),
                ("2", "ROLLBACK", "ROLLBACK"),
                drawing("3", 102),
                ("3", "SELECT nextval('r')", "1\nSELECT 1"),
            ],
            103,
            id="after another, and rolled back",
        ),
        pytest.param(
            [
                *restarting("1", 100),
                ("1", "SAVEPOINT a", "SAVEPOINT\nT"),
                ("1", "ALTER SEQUENCE s RESTART WITH 200", "ALTER SEQUENCE\nT"),
                ("1", "ROLLBACK TO a", "ROLLBACK\nT"),
                drawing("1", 100, "\nT"),
                ("1", "ALTER SEQUENCE s RESTART WITH 300", "ALTER SEQUENCE\nT"),
                drawing("3", 2),
                ("1", "COMMIT", "COMMIT"),
                drawing("3", 300),
            ],
            301,
            id="again behind a savepoint",
        ),
    ],
)
def test_concurrent_restarts_of_a_sequence_use_different_generations(
    tmp_path: Path, steps: list[tuple[str, str, str]], after: int
) -> None:
    async def scenario() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query("0", BEFORE)
        for who, sql, told in steps:
            assert await env.query(who, sql, alone=False) == told, sql
        for number in (after, after + 1):
            await env.close()
            env = TestEnvironment(tmp_path)
            await env.open()
            assert await env.query("0", "SELECT nextval('s')") == f"{number}\nSELECT 1"
        await env.close()

    asyncio.run(scenario())


def test_concurrent_restart_identity_keeps_each_tables_sequences(tmp_path: Path) -> None:
    async def scenario() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query("0", BEFORE)
        for who, sql, told in [
            ("1", "BEGIN; TRUNCATE t RESTART IDENTITY", "BEGIN\nTRUNCATE TABLE\nT"),
            *BEGUN,
            ("1", "COMMIT", "COMMIT"),
            ("3", "INSERT INTO t (v) VALUES (1) RETURNING k", "1\nINSERT 0 1"),
            ("2", "TRUNCATE t RESTART IDENTITY", "TRUNCATE TABLE\nT"),
            ("2", "ROLLBACK", "ROLLBACK"),
            ("3", "INSERT INTO t (v) VALUES (2) RETURNING k", "2\nINSERT 0 1"),
        ]:
            assert await env.query(who, sql, alone=False) == told, sql
        await env.close()
        env = TestEnvironment(tmp_path)
        await env.open()
        insert = "INSERT INTO t (v) VALUES (3) RETURNING k"
        assert await env.query("3", insert) == "3\nINSERT 0 1"
        await env.close()

    asyncio.run(scenario())


def test_block_takes_numbers_from_live_generation(tmp_path: Path) -> None:
    async def scenario() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query("0", BEFORE)
        for who, sql, told in [
            *BEGUN,
            ("1", "ALTER SEQUENCE s RESTART WITH 100", "ALTER SEQUENCE"),
            ("2", "SELECT last_value, is_called FROM s", "100|f\nSELECT 1\nT"),
            ("2", "SELECT nextval('s')", "100\nSELECT 1\nT"),
            ("2", "SELECT setval('s', 110)", "110\nSELECT 1\nT"),
            (
                "2",
                "SELECT last_value FROM pg_sequences WHERE sequencename = 's'",
                "110\nSELECT 1\nT",
            ),
            ("1", "SELECT nextval('s')", "111\nSELECT 1"),
            ("1", "TRUNCATE t RESTART IDENTITY", "TRUNCATE TABLE"),
            ("2", "INSERT INTO t (v) VALUES (1) RETURNING k", "1\nINSERT 0 1\nT"),
            ("1", "SELECT nextval('r')", "1\nSELECT 1"),
            ("1", "DROP SEQUENCE r", "DROP SEQUENCE"),
            (
                "2",
                "SELECT setval('r', 120)",
                'ERROR 42P01: relation "r" does not exist\nE',
            ),
            ("2", "ROLLBACK", "ROLLBACK"),
        ]:
            assert await env.query(who, sql, alone=False) == told, sql
        await env.close()

    asyncio.run(scenario())


def test_nextval_waiting_during_restart_returns_new_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query("0", BEFORE)
        sequences = env.environment.coordinator.sequences
        publish = sequences.publish
        waiting: list[asyncio.Task[str]] = []

        async def publish_first(generations: Iterable[Generation]) -> None:
            await publish(generations)
            gate = Gate(monkeypatch, env.storage.consensus, "compare_and_set")
            nextval = env.query("2", "SELECT nextval('r')", alone=False)
            waiting.append(asyncio.create_task(nextval))
            await gate.reached.wait()
            monkeypatch.undo()
            asyncio.get_running_loop().call_later(0.5, gate.open)

        monkeypatch.setattr(sequences, "publish", publish_first)
        restart = "ALTER SEQUENCE r RESTART WITH 100"
        assert await env.query("1", restart, alone=False) == "ALTER SEQUENCE"
        assert not waiting[0].done()
        assert await waiting[0] == "100\nSELECT 1"
        await env.close()

    asyncio.run(scenario())


def when_published(
    env: TestEnvironment, monkeypatch: pytest.MonkeyPatch, do: Callable[[], None]
) -> None:
    """Have `do` called between what is written of a generation and the catalog's record."""
    sequences = env.environment.coordinator.sequences
    publish = sequences.publish

    async def published(generations: Iterable[Generation]) -> None:
        await publish(generations)
        do()

    monkeypatch.setattr(sequences, "publish", published)


@pytest.mark.parametrize(
    ("statement", "then"),
    [
        ("CREATE SEQUENCE q", "SELECT nextval('q')"),
        ("ALTER SEQUENCE s RESTART WITH 1", "SELECT nextval('s')"),
        ("TRUNCATE t RESTART IDENTITY", "SELECT nextval('t_k_seq')"),
        ("CREATE TABLE i (k int GENERATED ALWAYS AS IDENTITY)", "SELECT nextval('i_k_seq')"),
    ],
)
def test_generation_with_unknown_begin_stays_in_register(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str, then: str
) -> None:
    async def scenario() -> None:
        disk = Disk()
        monkeypatch.setattr(segment, "os", disk)
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query("0", BEFORE)
        when_published(env, monkeypatch, lambda: setattr(disk, "sync_fails", errno.EIO))
        told = await env.query("1", statement, alone=False)
        assert told == "ERROR 58030: could not write to the log: Input/output error"
        await env.query("0", "SELECT nextval('r')", alone=False)
        await env.environment.close()
        await env.storage.close()
        env = TestEnvironment(tmp_path)
        await env.open()
        assert await env.query("0", then) == "1\nSELECT 1"
        await env.close()

    asyncio.run(scenario())


def test_generation_of_failed_commit_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        disk = Disk()
        monkeypatch.setattr(segment, "os", disk)
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query("0", BEFORE)
        when_published(env, monkeypatch, lambda: setattr(disk, "room", 0))
        for statement in ("CREATE SEQUENCE q", "ALTER SEQUENCE s RESTART"):
            told = await env.query("1", statement, alone=False)
            assert told.startswith("ERROR 53100"), told
            disk.room = None
        assert await env.query("0", "SELECT nextval('r')") == "1\nSELECT 1"
        head = await env.storage.consensus.head(KEY)
        assert head is not None
        reserved = msgspec.json.decode(head.data, type=Positions).reserved
        assert len(reserved) == 3, reserved
        assert {key.partition("/")[2] for key in reserved} == {"0"}
        await env.close()

    asyncio.run(scenario())


@pytest.mark.parametrize("key", ["", " PRIMARY KEY"])
async def test_insert_after_restart_identity_uses_new_generation(
    own_env: TestEnvironment, key: str
) -> None:
    insert = "INSERT INTO t (v) VALUES (1) RETURNING k"
    truncate = "TRUNCATE t RESTART IDENTITY"
    await own_env.query("1", f"CREATE TABLE t (k serial{key}, v int)")
    await own_env.query("1", "BEGIN")
    told = await own_env.query("1", truncate)
    waiting = asyncio.create_task(own_env.query("2", insert, alone=False))
    assert told == "TRUNCATE TABLE\nT"
    assert await own_env.query("1", insert, alone=False) == "1\nINSERT 0 1\nT"
    await asyncio.sleep(0.05)
    assert await own_env.query("1", "COMMIT", alone=False) == "COMMIT"
    assert await waiting == "2\nINSERT 0 1"


async def test_setval_during_restart_does_not_revive_old_generation(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    sequences = own_env.environment.coordinator.sequences
    await own_env.query("1", BEFORE)
    for _, sql, _ in BEGUN:
        await own_env.query("2", sql)
    group = Gate(monkeypatch, own_env.environment.coordinator.group, "write")
    restarting = asyncio.create_task(
        own_env.query("1", "ALTER SEQUENCE s RESTART WITH 100", alone=False)
    )
    await group.reached.wait()  # published, and not yet committed
    writing = Gate(monkeypatch, sequences._register, "change_with_retry")
    setting = asyncio.create_task(own_env.query("3", "SELECT setval('s', 50)", alone=False))
    await writing.reached.wait()
    group.open()
    await restarting
    writing.open()
    await setting
    assert await own_env.query("2", "SELECT nextval('s')") == "100\nSELECT 1\nT"
