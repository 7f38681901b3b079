"""An index that is behind takes its commits together, and is read at none of the times between."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from foreshore.adapter.coordinator.coordinator import Coordinator
from foreshore.compute.controller import skipped_times
from foreshore.compute.merged_times import at_or_after
from foreshore.compute.replica.dataflow import DataflowState
from tests.adapter.harness import Gate, TestEnvironment, in_environment, until

CREATED = (
    "CREATE TABLE t (g int, k int)",
    "CREATE VIEW numbered AS SELECT g, k, row_number() OVER (PARTITION BY g ORDER BY k) AS n FROM t",
    "CREATE INDEX by_n ON numbered (n)",
    "INSERT INTO t SELECT 1, k FROM generate_series(1, 5) AS k",
)
COMMITS = 12


class Held:
    """Holds back the steps of all dataflows of a replica while it is closed; counts their times."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.open = threading.Event()
        self.open.set()
        self.times: list[int | None] = []
        self.ranges: list[tuple[int, int]] = []  # that a replica was told
        step, merge_times = DataflowState.step, DataflowState.merge_times

        def held(state: DataflowState) -> Any:
            assert self.open.wait(60)
            assert state._window is not None
            self.times.append(state._window.times)
            return step(state)

        def told(state: DataflowState, lower: int, upper: int) -> None:
            self.ranges.append((lower, upper))
            merge_times(state, lower, upper)

        # The test alone says when times are skipped, however slow the machine is.
        self.skip = Coordinator.skip_late_times
        monkeypatch.setattr(Coordinator, "skip_late_times", lambda _coordinator: None)
        monkeypatch.setattr(DataflowState, "step", held)
        monkeypatch.setattr(DataflowState, "merge_times", told)
        monkeypatch.setattr(DataflowState, "is_small_step", False)  # none on the event loop

    @contextmanager
    def closed(self) -> Iterator[None]:
        self.open.clear()
        self.times.clear()
        try:
            yield
        finally:
            self.open.set()


async def begin(env: TestEnvironment) -> None:
    """Create an index, and wait until it is up to date."""
    await env.ran("a", *CREATED)
    coordinator = env.environment.coordinator
    time = await time_of(env)
    (index,) = coordinator.as_ofs
    await coordinator.group.advance()
    await until(lambda: coordinator.compute.skipped.reached(index) > time)


async def time_of(env: TestEnvironment) -> int:
    return int((await env.query("a", "SELECT mz_now() FROM t LIMIT 1")).split("\n")[0])


async def behind(env: TestEnvironment, held: Held) -> list[int]:
    """Let an index fall behind by `COMMITS` commits, and skip; return the time of each."""
    times = []
    with held.closed():
        for k in range(COMMITS):
            await env.ran("a", f"INSERT INTO t VALUES (1, {-k})")
            times.append(await time_of(env))
        held.skip(env.environment.coordinator)
        await until(lambda: bool(held.ranges))
    return times


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    """Return what holds steps back; the test alone says when times are skipped."""
    monkeypatch.setattr(skipped_times, "BEHIND_MS", 1)
    return Held(monkeypatch)


ALL = f"{5 + COMMITS}|{(5 + COMMITS) * (6 + COMMITS) // 2}\nSELECT 1"


def test_commits_that_wait_are_one_step(tmp_path: Path, held: Held) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await begin(env)
        (index,) = env.environment.coordinator.as_ofs
        first = env.environment.coordinator.upper(index) - 1
        times = await behind(env, held)
        assert await env.query("a", "SELECT count(*), sum(n) FROM numbered") == ALL
        merged = [each for each in held.times if each]
        assert sum(merged) <= 5, merged  # what came before the replica knew, and the rest
        at = await env.query("a", f"SELECT count(*) FROM numbered AS OF {first}")
        assert at == "5\nSELECT 1"
        answer = await env.query("a", f"SELECT count(*) FROM numbered AS OF {times[5]}")
        assert answer.startswith(f"ERROR 22023: cannot read as of {times[5]}"), answer
        assert "has skipped it. It can be read at" in answer
        answer = await env.query("a", f"SELECT count(*) FROM t AS OF {times[5]}")
        assert answer == "11\nSELECT 1", "the table keeps its history"

    in_environment(tmp_path, scenario)


def test_a_mirror_gives_way_unless_its_readers_wait(tmp_path: Path, held: Held) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await begin(env)
        compute = env.environment.coordinator.compute
        (index,) = env.environment.coordinator.as_ofs
        compute.mirrors.bounds = replace(compute.mirrors.bounds, reads=1, patience_s=60.0)

        async with asyncio.timeout(60):
            while index not in compute.mirrors._mirrors:
                await env.query("b", "SELECT k FROM numbered WHERE n = 6")
        mirror = compute.mirrors._mirrors[index]
        await until(lambda: mirror.upper > 0)
        with held.closed():
            await env.ran("a", "INSERT INTO t VALUES (1, 0)")
            waits = asyncio.create_task(
                env.query("b", "SELECT k FROM numbered WHERE n = 6", alone=False)
            )
            await until(lambda: bool(mirror.awaited))
            for k in range(1, COMMITS):
                await env.ran("a", f"INSERT INTO t VALUES (1, {-k})")
            read = mirror.awaited[0]
            held.skip(env.environment.coordinator)
            assert all(upper <= read for _, upper in compute.skipped[index])
            held.open.set()
            assert await waits == "5\nSELECT 1"
        assert await env.query("a", "SELECT count(*), sum(n) FROM numbered") == ALL
        with held.closed():
            for k in range(COMMITS):
                await env.ran("a", f"INSERT INTO t VALUES (2, {-k})")
            held.skip(env.environment.coordinator)
            await until(lambda: bool(held.ranges))
            assert not compute.mirrors.has(index)
        assert await env.query("a", "SELECT count(*) FROM numbered") == "29\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_an_open_transaction_reads_its_time(tmp_path: Path, held: Held) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await begin(env)
        with held.closed():
            await env.ran("a", "INSERT INTO t VALUES (1, 0)")
            await env.ran("b", "BEGIN", "SELECT count(*) FROM t")
            for k in range(1, COMMITS):
                await env.ran("a", f"INSERT INTO t VALUES (1, {-k})")
            held.skip(env.environment.coordinator)
        assert await env.query("b", "SELECT count(*), sum(n) FROM numbered") == "6|21\nSELECT 1\nT"
        assert await env.query("a", "SELECT count(*), sum(n) FROM numbered") == ALL
        assert await env.query("b", "SELECT count(*), sum(n) FROM numbered") == "6|21\nSELECT 1\nT"

    in_environment(tmp_path, scenario)


def test_indexes_with_subscribers_or_history_skip_nothing(tmp_path: Path, held: Held) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await begin(env)
        subscribe = "SUBSCRIBE numbered WITH (SNAPSHOT = false)"
        await env.ran("s", f"BEGIN; DECLARE c CURSOR FOR {subscribe}")
        await env.ran("s", "FETCH ALL c WITH (TIMEOUT = '1ms')")
        skipped = env.environment.coordinator.compute.skipped
        with held.closed():
            for k in range(COMMITS):
                await env.ran("a", f"INSERT INTO t VALUES (1, {-k})")
            held.skip(env.environment.coordinator)
        (index,) = env.environment.coordinator.as_ofs
        assert skipped[index] == ()
        received: set[str] = set()

        async def all_there() -> bool:
            answer = await env.query("s", "FETCH ALL c WITH (TIMEOUT = '100ms')")
            received.update(line.split("|")[0] for line in answer.split("\n") if "|" in line)
            return len(received) >= COMMITS

        while not await all_there():
            continue
        assert len(received) == COMMITS, "each commit has its time"
        await env.ran("s", "ROLLBACK")
        await env.ran("a", "ALTER INDEX by_n SET (RETAIN HISTORY FOR '1 hour')")
        with held.closed():
            await env.ran("a", "INSERT INTO t VALUES (1, 100)", "INSERT INTO t VALUES (1, 101)")
            held.skip(env.environment.coordinator)
        assert skipped[index] == ()

    in_environment(tmp_path, scenario)


def test_serializable_reads_do_not_wait(tmp_path: Path, held: Held) -> None:
    """Rows from before an index fell behind stay readable while it stands still."""

    async def scenario(env: TestEnvironment) -> None:
        await begin(env)
        await env.ran("l", "SET transaction_isolation = 'serializable'")
        with held.closed():
            for k in range(COMMITS):
                await env.ran("a", f"INSERT INTO t VALUES (1, {-k})")
            held.skip(env.environment.coordinator)
            answer = await env.query("l", "SELECT count(*), sum(n) FROM numbered")
            assert answer in {"5|15\nSELECT 1", "6|21\nSELECT 1"}, answer
        assert await env.query("a", "SELECT count(*), sum(n) FROM numbered") == ALL
        assert await env.query("l", "SELECT count(*), sum(n) FROM numbered") == ALL

    in_environment(tmp_path, scenario)


def test_skipped_times_are_forgotten(tmp_path: Path, held: Held) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await begin(env)
        await behind(env, held)
        coordinator = env.environment.coordinator
        (index,) = coordinator.as_ofs
        assert len(coordinator.compute.skipped[index]) == 1
        assert await env.query("a", "SELECT count(*), sum(n) FROM numbered") == ALL

        async def forgotten() -> None:
            await coordinator.group.advance()
            await coordinator.allow_compaction()

        await forgotten()
        await until(
            lambda: coordinator.upper(index) > coordinator.compute.skipped.exact_since(index)
        )
        while coordinator.compute.skipped[index]:
            await forgotten()

    in_environment(tmp_path, scenario, lag_ms=10)


def test_a_skipped_time_stays_skipped(tmp_path: Path, held: Held) -> None:
    """A hold at a time that was skipped before it does not make that time readable again."""

    async def scenario(env: TestEnvironment) -> None:
        await begin(env)
        coordinator = env.environment.coordinator
        (index,) = coordinator.as_ofs
        skipped, times = coordinator.compute.skipped, await behind(env, held)
        with held.closed():
            await env.ran("a", "INSERT INTO t VALUES (1, -100)")
            # As a serializable block does that has read another relation, which is behind, too.
            coordinator.holds.hold_for("block", (index,), times[5])
            (first, _) = skipped[index][0]
            for lower in (first, times[0]):  # the latter as if a replica that was ahead is lost
                skipped.skip(index, lower, times[5])
                assert at_or_after(skipped[index], times[5]) > times[-2]
        coordinator.holds.release("block")
        assert await env.query("a", "SELECT count(*) FROM numbered") == "18\nSELECT 1"
        answer = await env.query("a", f"SELECT count(*) FROM numbered AS OF {times[5]}")
        assert answer.startswith(f"ERROR 22023: cannot read as of {times[5]}"), answer

    in_environment(tmp_path, scenario)


def test_skipping_times_while_an_index_is_being_dropped_ignores_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await begin(env)
        coordinator = env.environment.coordinator
        forget = Gate(monkeypatch, coordinator, "forget")
        dropping = asyncio.create_task(env.query("0", "DROP INDEX by_n", alone=False))
        await forget.reached.wait()
        coordinator.skip_late_times()
        forget.open()
        assert await dropping == "DROP INDEX"

    in_environment(tmp_path, scenario)
