"""The server lock in PostgreSQL."""

import asyncio
import os
from collections.abc import Coroutine
from itertools import count
from typing import Any

import asyncpg
import pytest

from foreshore.storage import postgres_lock
from foreshore.storage.fault import Determinate
from foreshore.storage.postgres_lock import PostgresLock

_names = count(1)


@pytest.fixture
def url(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the URL of a database of its own, which waits for no machine that has vanished."""
    monkeypatch.setattr(postgres_lock, "VANISHED_SECONDS", 0.3)
    monkeypatch.setattr(postgres_lock, "CHECK_SECONDS", 0.05)
    return f"{postgres_url}?schema=locked{next(_names)}"


def run(work: Coroutine[Any, Any, None]) -> None:
    async def main() -> None:
        async with asyncio.timeout(30):
            await work

    asyncio.run(main())


def test_second_acquire_names_the_holder(url: str, postgres_url: str) -> None:
    async def main() -> None:
        first, second, other = PostgresLock(url), PostgresLock(url), PostgresLock(f"{url}x")
        assert await first.acquire(asyncio.Event(), patient=True) is None
        holder = await second.acquire(asyncio.Event(), patient=True)
        assert holder is not None
        assert holder.startswith(f"process {os.getpid()} on host ")
        assert " (127.0.0.1) since 20" in holder
        assert await other.acquire(asyncio.Event(), patient=False) is None
        for lock in (first, second, other):
            await lock.close()

    run(main())


def test_acquire_after_holder_has_ended_waits_for_nothing(url: str) -> None:
    async def main() -> None:
        first, second = PostgresLock(url), PostgresLock(url)
        assert await first.acquire(asyncio.Event(), patient=True) is None
        first._connection.terminate()  # as SIGKILL of its process does
        first._task.cancel()  # type: ignore[union-attr]
        assert await second.acquire(asyncio.Event(), patient=True) is None
        await second.close()

    run(main())


def test_waiting_server_gets_the_lock_before_one_that_starts(url: str) -> None:
    async def main() -> None:
        first, second, third = (PostgresLock(url) for _ in range(3))
        assert await first.acquire(asyncio.Event(), patient=True) is None
        assert await second.acquire(asyncio.Event(), patient=False) is not None
        waiting = asyncio.create_task(second.wait())
        await asyncio.wait([waiting], timeout=0.2)
        assert not waiting.done()
        starting = asyncio.create_task(third.acquire(asyncio.Event(), patient=True))
        await first.close()
        await waiting
        assert await starting is not None
        for lock in (second, third):
            await lock.close()

    run(main())


def test_lock_lost_with_its_connection_is_acquired_again(url: str, postgres_url: str) -> None:
    async def main() -> None:
        first, second = PostgresLock(url), PostgresLock(url)
        assert await first.acquire(asyncio.Event(), patient=True) is None
        operator = await asyncpg.connect(postgres_url)
        await operator.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
        )
        await operator.close()
        before = first._connection
        while first._connection is before or not first._held.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        assert await second.acquire(asyncio.Event(), patient=False) is not None
        for lock in (first, second):
            await lock.close()

    run(main())


def test_acquire_that_is_stopped_waits_no_longer(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_lock, "VANISHED_SECONDS", 600.0)

    async def main() -> None:
        first, second, stop = PostgresLock(url), PostgresLock(url), asyncio.Event()
        assert await first.acquire(stop, patient=True) is None
        acquiring = asyncio.create_task(second.acquire(stop, patient=True))
        await asyncio.wait([acquiring], timeout=0.2)
        assert not acquiring.done()
        stop.set()
        assert await acquiring is not None
        for lock in (first, second):
            await lock.close()

    run(main())


def test_server_that_cannot_be_reached_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_lock, "PAUSE_SECONDS", 0.001)

    async def main() -> None:
        lock = PostgresLock("postgresql://u:secret@127.0.0.1:1/d")
        with pytest.raises(Determinate, match="could not connect to consensus"):
            await lock.acquire(asyncio.Event(), patient=True)
        await lock.close()

    run(main())
