"""Sequence numbers while statements are cancelled and sequences dropped."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from foreshore.catalog.sequence_numbers import KEY, Positions
from foreshore.errors import QueryCanceled
from foreshore.storage import epoch
from foreshore.storage.consensus import Committed, Mismatch
from foreshore.storage.fault import Determinate, Indeterminate
from tests.adapter.harness import TestEnvironment, until


@pytest.mark.parametrize("call", ["nextval('q')", "setval('q', 5)"])
def test_cancelled_nextval_does_not_disturb_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    async def scenario() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query("s", "CREATE SEQUENCE q; CREATE SEQUENCE r")
        consensus = env.storage.consensus
        change, asked, gate = consensus.compare_and_set, asyncio.Event(), asyncio.Event()

        async def slow(key: str, expected: int | None, new: bytes) -> Committed | Mismatch:
            outcome = await change(key, expected, new)
            if key == "sequences":
                asked.set()
                await gate.wait()
            return outcome

        monkeypatch.setattr(consensus, "compare_and_set", slow)
        cancelled = asyncio.create_task(env.query("s", f"SELECT {call}", alone=False))
        await asked.wait()
        (await env.session("s")).interrupts.request(QueryCanceled())
        assert await cancelled == "ERROR 57014: canceling statement due to user request"
        other = asyncio.create_task(env.query("o", "SELECT nextval('r')", alone=False))
        gate.set()
        async with asyncio.timeout(30):
            assert await other == "1\nSELECT 1"
            number = "1" if call == "nextval('q')" else "6"
            assert await env.query("s", "SELECT nextval('q')") == f"{number}\nSELECT 1"
        await env.close()
        env = TestEnvironment(tmp_path)
        await env.open()
        assert await env.query("s", "SELECT nextval('q')") == f"{int(number) + 1}\nSELECT 1"
        await env.close()

    asyncio.run(scenario())


async def test_range_reserved_during_alter_uses_old_increment(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def reserved() -> int:
        head = await consensus.head(KEY)
        assert head is not None
        ((last, _),) = msgspec.json.decode(head.data, type=Positions).reserved.values()
        return last

    await own_env.query("s", "CREATE SEQUENCE q")
    consensus = own_env.storage.consensus
    change, asked, gate = consensus.compare_and_set, asyncio.Event(), asyncio.Event()

    async def slow(key: str, expected: int | None, new: bytes) -> Committed | Mismatch:
        if key == KEY:
            asked.set()
            await gate.wait()
        return await change(key, expected, new)

    monkeypatch.setattr(consensus, "compare_and_set", slow)
    call = asyncio.create_task(own_env.query("o", "SELECT nextval('q')", alone=False))
    await asked.wait()
    alter = "ALTER SEQUENCE q INCREMENT BY 10"
    assert await own_env.query("s", alter, alone=False) == "ALTER SEQUENCE"
    gate.set()
    assert await call == "1\nSELECT 1"
    for number in range(11, 1000, 10):
        assert await own_env.query("s", "SELECT nextval('q')") == f"{number}\nSELECT 1"
        assert await reserved() >= number


async def test_nextval_waiting_during_drop_fails(own_env: TestEnvironment) -> None:
    await own_env.query("s", "CREATE SEQUENCE q")
    writing = own_env.environment.coordinator.sequences._writing
    async with writing:
        call = asyncio.create_task(own_env.query("o", "SELECT nextval('q')", alone=False))
        await until(lambda: bool(writing._waiters))
        assert await own_env.query("s", "DROP SEQUENCE q", alone=False) == "DROP SEQUENCE"
    assert await call == 'ERROR 42P01: relation "q" does not exist'


@pytest.mark.parametrize("happened", [True, False])
def test_nextval_works_after_consensus_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, happened: bool
) -> None:
    async def scenario() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query("s", "CREATE SEQUENCE q; CREATE SEQUENCE r MAXVALUE 32")
        assert await env.query("s", "SELECT nextval('r')") == "1\nSELECT 1"  # all are reserved
        consensus = env.storage.consensus
        change, asked = consensus.compare_and_set, 0

        async def out(key: str, expected: int | None, new: bytes) -> Committed | Mismatch:
            nonlocal asked
            if key != KEY:
                return await change(key, expected, new)
            asked += 1
            if asked > 1:
                raise Determinate("could not connect")
            if happened:
                await change(key, expected, new)
            raise Indeterminate("no answer")

        with monkeypatch.context() as outage:
            outage.setattr(epoch, "PATIENCE_SECONDS", 0.1)
            outage.setattr(consensus, "compare_and_set", out)
            told = await env.query("s", "SELECT setval('r', 1)", alone=False)
            assert told == "ERROR 58030: could not connect"
            told = await env.query("s", "SELECT nextval('q')", alone=False)
            assert told.startswith("ERROR 58030"), told
        assert await env.query("s", "SELECT nextval('q')") == "1\nSELECT 1"
        assert await env.query("s", "SELECT nextval('r')") == "2\nSELECT 1"
        head = await consensus.head(KEY)
        assert head is not None
        reserved = msgspec.json.decode(head.data, type=Positions).reserved
        assert all(last > 1 for last, _ in reserved.values()), reserved
        await env.close()
        env = TestEnvironment(tmp_path)
        await env.open()
        assert await env.query("s", "SELECT nextval('r')") == "3\nSELECT 1"
        await env.close()

    asyncio.run(scenario())
