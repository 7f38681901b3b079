"""An environment shuts down, also while what it waits for does not come."""

import asyncio
from functools import partial
from pathlib import Path

import pytest

from foreshore.storage import controller
from foreshore.storage.blob import FileBlob
from foreshore.storage.fault import Indeterminate
from tests.adapter.harness import TestEnvironment


def unavailable(self: FileBlob, key: str, file: Path) -> None:
    """Answer as a blob store does that is out."""
    raise Indeterminate(f"cannot store {key}: timed out")


@pytest.mark.parametrize("statement", ["INSERT INTO t VALUES (1)", "CREATE TABLE u (a int)"])
def test_shutdown_does_not_wait_for_blob_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, statement: str
) -> None:
    monkeypatch.setattr(controller, "SEGMENTS_BEHIND", 1)

    async def main() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query("a", "CREATE TABLE t (a int)")
        with monkeypatch.context() as patch:
            patch.setattr(FileBlob, "put_file", unavailable)
            compacter = env.storage._compacter
            while compacter.segments_behind <= 1:
                await env.query("a", "INSERT INTO t VALUES (0)")
                await env.storage._wal.seal()
            waiting = asyncio.create_task(env.query("a", statement, alone=False))
            assert not (await asyncio.wait([waiting], timeout=0.5))[0]
            async with asyncio.timeout(20):
                await env.environment.close()
                assert "57P01" in await waiting
                await env.storage.close()
        env.sessions.clear()
        await env.open()
        assert await env.query("b", "SELECT DISTINCT a FROM t") == "0\nSELECT 1"
        await env.close()

    asyncio.run(main())


@pytest.mark.parametrize("fault", ["another has taken over", "consensus is out"])
def test_shutdown_completes_without_saving_sequence_positions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    async def main() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        await env.query("a", "CREATE SEQUENCE s")
        await env.query("a", "SELECT nextval('s')")
        other = TestEnvironment(tmp_path)
        if fault == "another has taken over":
            await other.open()
        else:
            sequences = env.environment.coordinator.sequences
            monkeypatch.setattr(sequences, "close", partial(failing, Indeterminate("no answer")))
        async with asyncio.timeout(20):
            await env.environment.close()
        assert all(task.done() for task in env.environment._tasks)
        await env.storage.close()
        if fault == "consensus is out":
            await other.open()
        await other.query("a", "SELECT nextval('s')")
        await other.close()

    asyncio.run(main())


async def failing(error: Exception) -> None:
    """Do nothing but fail."""
    raise error
