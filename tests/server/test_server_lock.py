"""The server lock: one server after the other, also after one that stands still."""

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from foreshore.errors import LockFileExists
from foreshore.server import server_lock
from foreshore.server.server_lock import POLL_SECONDS, ServerLock
from foreshore.storage.consensus_services import open_shared_lock


@asynccontextmanager
async def locking(data_dir: Path, consensus: str | None = None) -> AsyncIterator[ServerLock]:
    lock = ServerLock(data_dir, open_shared_lock(consensus))
    try:
        yield lock
    finally:
        await lock.close()


def stop_after(work: Coroutine[Any, Any, None]) -> None:
    async def main() -> None:
        async with asyncio.timeout(server_lock.PATIENCE_SECONDS / 2):
            await work

    asyncio.run(main())


async def still_waits(task: "asyncio.Task[None]") -> bool:
    await asyncio.wait([task], timeout=5 * POLL_SECONDS)
    return not task.done()


def test_acquire_while_another_holds_is_refused_naming_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_lock, "GRACE_SECONDS", 0.1)

    async def main() -> None:
        stop = asyncio.Event()
        async with locking(tmp_path) as first, locking(tmp_path) as second:
            await first.acquire(stop)
            assert first.held
            with pytest.raises(LockFileExists, match="is in use by another server") as raised:
                await second.acquire(stop)
            assert raised.value.detail is not None
            assert raised.value.detail.startswith(f"It is process {os.getpid()} on ")
            assert raised.value.hint is not None
            assert "--take-over" in raised.value.hint

    stop_after(main())


def test_copies_of_a_directory_with_one_consensus_are_not_served_together(tmp_path: Path) -> None:
    consensus = f"sqlite://{tmp_path}/elsewhere/consensus.sqlite"
    one, copy = tmp_path / "one", tmp_path / "copy"
    one.mkdir()
    copy.mkdir()

    async def main() -> None:
        stop = asyncio.Event()
        async with locking(copy, consensus) as second:
            async with locking(one, consensus) as first:
                await first.acquire(stop)
                with pytest.raises(LockFileExists, match="is in use by another server") as raised:
                    await second.acquire(stop)
                assert raised.value.detail is not None
                assert raised.value.detail.startswith(f"It is process {os.getpid()} on ")
            await second.acquire(stop)
            assert second.held

    stop_after(main())


def test_acquire_after_holder_closed_succeeds(tmp_path: Path) -> None:
    async def main() -> None:
        stop = asyncio.Event()
        async with locking(tmp_path) as second:
            async with locking(tmp_path) as first:
                await first.acquire(stop)
                waiting = asyncio.create_task(second.acquire(stop))
                assert await still_waits(waiting)
            await waiting
            assert second.held

    stop_after(main())


def test_acquire_while_holder_is_ending_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_lock, "GRACE_SECONDS", 0.0)

    async def main() -> None:
        stop = asyncio.Event()
        async with locking(tmp_path) as second:
            async with locking(tmp_path) as first:
                await first.acquire(stop)
                first.announce_end()
                waiting = asyncio.create_task(second.acquire(stop))
                assert await still_waits(waiting)
            await waiting
            assert second.held
            async with locking(tmp_path) as third:
                with pytest.raises(LockFileExists):  # the second has not announced its end
                    await third.acquire(stop)

    stop_after(main())


def test_server_taken_over_from_does_not_announce_its_end_for_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_lock, "GRACE_SECONDS", 0.0)
    monkeypatch.setattr(server_lock, "PATIENCE_SECONDS", 0.1)

    async def main() -> None:
        stop = asyncio.Event()
        async with locking(tmp_path) as first, locking(tmp_path) as second:
            await first.acquire(stop)
            await second.acquire(stop, take_over=True)
            await second.wait_for_others(stop)  # the first stands still
            first.announce_end()
            async with locking(tmp_path) as third:
                with pytest.raises(LockFileExists):
                    await third.acquire(stop)

    asyncio.run(main())


def test_many_acquire_at_once_and_one_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_lock, "GRACE_SECONDS", 0.2)

    async def main() -> None:
        locks = [ServerLock(tmp_path) for _ in range(8)]
        outcomes = await asyncio.gather(
            *(lock.acquire(asyncio.Event()) for lock in locks), return_exceptions=True
        )
        assert sum(lock.held for lock in locks) == 1
        assert sum(isinstance(outcome, LockFileExists) for outcome in outcomes) == 7
        for lock in locks:
            await lock.close()

    stop_after(main())


def test_acquire_during_a_take_over_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_lock, "GRACE_SECONDS", 0.1)

    async def main() -> None:
        stop = asyncio.Event()
        async with locking(tmp_path) as second, locking(tmp_path) as third:
            async with locking(tmp_path) as first:
                await first.acquire(stop)
                await second.acquire(stop, take_over=True)
                waiting = asyncio.create_task(second.wait_for_others(stop))
                assert await still_waits(waiting)
            with pytest.raises(LockFileExists):
                await third.acquire(stop)
            await waiting
            assert second.held

    stop_after(main())


def test_take_over_waits_for_every_server_that_stood_still_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        stop = asyncio.Event()
        async with locking(tmp_path) as third:
            async with locking(tmp_path) as second:
                async with locking(tmp_path) as first:
                    await first.acquire(stop)
                    await second.acquire(stop, take_over=True)
                    with monkeypatch.context() as patched:
                        patched.setattr(server_lock, "PATIENCE_SECONDS", 0.0)
                        await second.wait_for_others(stop)
                    assert first.held
                    assert second.held
                    await third.acquire(stop, take_over=True)
                    waiting = asyncio.create_task(third.wait_for_others(stop))
                    assert await still_waits(waiting)
                assert await still_waits(waiting)
            await waiting
            assert third.held

    stop_after(main())


def test_take_over_that_is_stopped_waits_no_longer(tmp_path: Path) -> None:
    async def main() -> None:
        stop = asyncio.Event()
        async with locking(tmp_path) as second, locking(tmp_path) as first:
            await first.acquire(stop)
            await second.acquire(stop, take_over=True)
            waiting = asyncio.create_task(second.wait_for_others(stop))
            assert await still_waits(waiting)
            stop.set()
            await waiting
            assert not second.held

    stop_after(main())


class Shared:
    """A shared lock with a given holder."""

    def __init__(self, holder: str | None) -> None:
        self.holder = holder
        self.free = asyncio.Event()

    async def acquire(self, stop: asyncio.Event, *, patient: bool) -> str | None:
        return self.holder

    async def wait(self) -> None:
        await self.free.wait()

    async def close(self) -> None:
        self.free.set()


def test_shared_lock_held_on_another_machine_refuses_and_delays_a_take_over(tmp_path: Path) -> None:
    async def main() -> None:
        stop, shared = asyncio.Event(), Shared("process 7 on host h")
        refused = ServerLock(tmp_path, shared)
        with pytest.raises(LockFileExists, match="the database of data directory ") as raised:
            await refused.acquire(stop)
        assert raised.value.detail == "It is process 7 on host h."
        await refused.close()

        shared = Shared("process 7 on host h")
        lock = ServerLock(tmp_path, shared)
        await lock.acquire(stop, take_over=True)
        waiting = asyncio.create_task(lock.wait_for_others(stop))
        assert await still_waits(waiting)
        shared.free.set()
        await waiting
        assert lock.held
        await lock.close()

    stop_after(main())
