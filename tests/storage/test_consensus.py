"""One contract for every consensus service."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from foreshore.storage.consensus import (
    Committed,
    Consensus,
    MemoryConsensus,
    Mismatch,
    SqliteConsensus,
    Versioned,
)

Test = Callable[[Consensus], Awaitable[None]]
Run = Callable[[Test], None]


@pytest.fixture(params=["memory", "sqlite"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Consensus]:
        consensus: Consensus = (
            MemoryConsensus()
            if request.param == "memory"
            else SqliteConsensus(tmp_path / "consensus.sqlite")
        )
        yield consensus
        await consensus.close()

    def run(test: Test) -> None:
        async def main() -> None:
            async with opened() as consensus:
                await test(consensus)

        asyncio.run(main())

    return run


def test_the_head_is_what_was_committed_last(run: Run) -> None:
    async def test(consensus: Consensus) -> None:
        assert await consensus.head("k") is None
        first = await consensus.compare_and_set("k", None, b"a")
        assert isinstance(first, Committed)
        second = await consensus.compare_and_set("k", first.seqno, b"b")
        assert isinstance(second, Committed)
        assert second.seqno > first.seqno
        assert await consensus.head("k") == Versioned(second.seqno, b"b")
        assert await consensus.head("other") is None

    run(test)


def test_a_mismatch_changes_nothing_and_tells_the_head(run: Run) -> None:
    async def test(consensus: Consensus) -> None:
        assert await consensus.compare_and_set("k", 1, b"x") == Mismatch(None)
        first = await consensus.compare_and_set("k", None, b"a")
        assert isinstance(first, Committed)
        head = Versioned(first.seqno, b"a")
        assert await consensus.compare_and_set("k", None, b"x") == Mismatch(head)
        assert await consensus.compare_and_set("k", first.seqno + 1, b"x") == Mismatch(head)
        assert await consensus.scan("k", 0) == [head]

    run(test)


def test_of_concurrent_sets_one_wins(run: Run) -> None:
    async def test(consensus: Consensus) -> None:
        outcomes = await asyncio.gather(
            *(consensus.compare_and_set("k", None, bytes([i])) for i in range(10))
        )
        assert sum(isinstance(outcome, Committed) for outcome in outcomes) == 1

    run(test)


def test_truncating_keeps_the_head(run: Run) -> None:
    async def test(consensus: Consensus) -> None:
        seqno = None
        for i in range(5):
            outcome = await consensus.compare_and_set("k", seqno, bytes([i]))
            assert isinstance(outcome, Committed)
            seqno = outcome.seqno
        assert seqno is not None
        versions = await consensus.scan("k", 0)
        assert [v.data for v in versions] == [bytes([i]) for i in range(5)]
        await consensus.truncate("k", versions[3].seqno)
        assert await consensus.scan("k", 0) == versions[3:]
        await consensus.truncate("k", seqno + 10)
        assert await consensus.scan("k", 0) == versions[4:]

    run(test)


def test_keys_are_listed_by_prefix(run: Run) -> None:
    async def test(consensus: Consensus) -> None:
        for key in ("shard/u2", "shard/u1", "log", "shard%"):
            await consensus.compare_and_set(key, None, b"")
        assert await consensus.keys("shard/") == ["shard/u1", "shard/u2"]

    run(test)


def test_sqlite_is_shared_by_connections_and_survives_closing(tmp_path: Path) -> None:
    async def main() -> None:
        one = SqliteConsensus(tmp_path / "c.sqlite")
        two = SqliteConsensus(tmp_path / "c.sqlite")
        assert isinstance(await one.compare_and_set("k", None, b"a"), Committed)
        assert isinstance(await two.compare_and_set("k", None, b"b"), Mismatch)
        await one.close()
        await two.close()
        three = SqliteConsensus(tmp_path / "c.sqlite")
        head = await three.head("k")
        assert head is not None
        assert head.data == b"a"
        await three.close()

    asyncio.run(main())
