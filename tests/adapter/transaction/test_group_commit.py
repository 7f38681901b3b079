"""Group commit: which writes share a group, which are refused, and failures of the log."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pytest

from foreshore.adapter.transaction import group_commit
from foreshore.adapter.transaction.group_commit import GroupCommit
from foreshore.adapter.transaction.write import Reads, Write
from foreshore.catalog.item import Item
from foreshore.catalog.naming import NameKey
from foreshore.clock import ManualClock
from foreshore.compute.keys.group_keys import GroupKeys
from foreshore.compute.keys.key_sets import Keys
from foreshore.errors import Conflict, DatabaseError, Fenced, OutOfDisk, TableDropped
from foreshore.ids import GlobalId, is_user
from foreshore.storage.controller import (
    ShardWrite,
    SharedUpper,
    UpperMismatch,
    WriteCapability,
)
from foreshore.storage.oracle import TimestampOracle
from foreshore.update import DIFF_FIELD
from tests.adapter.harness import TestEnvironment
from tests.logged import logged_by

T, U = GlobalId("u1"), GlobalId("u2")
Ended: TypeAlias = Callable[[DatabaseError | None], None]


class Reservation:
    full = False

    async def load(self) -> int:
        return 0

    async def store(self, end: int) -> None:
        if self.full:
            raise OutOfDisk("to consensus")


class Shards:
    """Shards in memory; `gate` holds an append back, `fault` lets it fail, as does lack of `room`."""

    def __init__(self) -> None:
        self.uppers = {T: 0, U: 0}
        self.shared: dict[GlobalId, SharedUpper] = {}
        self.appended: list[Sequence[ShardWrite]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.fault: Any = None
        self.room = 100  # rows that an append may have

    async def begin_append(self, writes: Sequence[ShardWrite], ended: Ended) -> None:
        asyncio.get_running_loop().create_task(self._append(writes, ended))

    async def _append(self, writes: Sequence[ShardWrite], ended: Ended) -> None:
        await self.gate.wait()
        if self.fault is not None:
            ended(self.fault)
            return
        if sum(write.updates.num_rows for write in writes) > self.room:
            ended(OutOfDisk("to the log"))
            return
        for write in writes:
            assert write.lower == self.upper(write.id) < write.upper
            self.uppers[write.id] = write.upper
        self.appended.append(writes)
        ended(None)

    def share_upper(self, id: GlobalId, shared: SharedUpper) -> None:
        self.shared[id] = shared

    def unshare_upper(self, id: GlobalId) -> None:
        self.uppers[id] = self.upper(id)
        del self.shared[id]

    def upper(self, id: GlobalId) -> int:
        return max(self.uppers[id], self.shared[id].upper if id in self.shared else 0)


def rows(*values: int) -> pa.Table:
    schema = pa.schema([pa.field("i", pa.int32()), DIFF_FIELD])
    return pa.table([pa.array(values, pa.int32()), pa.array([1] * len(values))], schema=schema)


class Lenient:
    """A guard that refuses nothing."""

    def refused(self, write: Write, earlier: GroupKeys) -> None:
        return None

    def changed(self, keys: Keys, time: int, earlier: GroupKeys) -> bool:
        return False

    def apply(self, time: int, group: Sequence[Write]) -> None:
        pass

    def is_taken(self, name: NameKey) -> bool:
        return False


class World:
    def __init__(self) -> None:
        self.clock = ManualClock(1_000)
        self.shards = Shards()
        self.reservation = Reservation()

    async def __aenter__(self) -> "World":
        self.oracle = await TimestampOracle.open(self.clock, self.reservation)
        self.group = GroupCommit(self.shards, self.oracle, Lenient())
        self.group.add(WriteCapability("1-1", T, 0))
        self.group.add(WriteCapability("1-2", U, 0))
        await self.group.advance()
        self.task = asyncio.create_task(self.group.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.group.close()
        await asyncio.gather(self.task, return_exceptions=True)

    def write(
        self, id: GlobalId, reads: Reads | None = None, owner: object = None, count: int = 1
    ) -> Any:
        write = Write({id: [rows(*range(count))]}, reads, owner=owner)
        return asyncio.create_task(self.group.write(write))


def play(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(scenario, 20))


def test_writes_during_group_share_next_time() -> None:
    async def scenario() -> None:
        async with World() as world:
            world.shards.gate.clear()
            first = world.write(T)
            await asyncio.sleep(0.01)
            others = [world.write(T), world.write(U), world.write(T)]
            await asyncio.sleep(0.01)
            before = world.oracle.read_ts()
            world.shards.gate.set()
            times = await asyncio.gather(first, *others)
            assert times[0] > before
            assert len(set(times[1:])) == 1
            assert times[1] > times[0]
            assert [len(each) for each in world.shards.appended] == [1, 2]
            assert world.oracle.read_ts() >= times[1]
            assert min(map(world.shards.upper, (T, U))) > times[1]
            world.group.check()

    play(scenario())


def test_write_with_stale_read_is_refused() -> None:
    async def scenario() -> None:
        async with World() as world:
            read_at = world.oracle.read_ts()
            await world.write(T)
            with pytest.raises(Conflict):
                await world.write(U, Reads(frozenset({T}), read_at))
            now = world.oracle.read_ts()
            await world.write(U, Reads(frozenset({T}), now))
            assert len(world.shards.appended) == 2

    play(scenario())


def test_group_beyond_disk_space_refuses_only_writes_that_do_not_fit() -> None:
    async def scenario() -> None:
        async with World() as world:
            world.shards.gate.clear()
            first = world.write(T)
            await asyncio.sleep(0.01)
            read_at = world.oracle.read_ts()
            small = world.write(T)
            large = world.write(U, count=1000)
            after = world.write(U, Reads(frozenset({U}), read_at))  # on what stays as it was
            beaten = world.write(U, Reads(frozenset({T}), read_at))
            await asyncio.sleep(0.01)
            world.shards.gate.set()
            outcomes = await asyncio.gather(
                first, small, large, after, beaten, return_exceptions=True
            )
            assert isinstance(outcomes[2], OutOfDisk)
            assert isinstance(outcomes[4], Conflict)
            times = [each for each in outcomes if isinstance(each, int)]
            assert len(times) == 3
            assert times == sorted(set(times))
            together = await asyncio.gather(world.write(T), world.write(U))
            assert together[0] == together[1] > times[-1]
            world.group.check()

    play(scenario())


def test_reads_stay_when_times_cannot_be_reserved() -> None:
    async def scenario() -> None:
        async with World() as world:
            await world.write(T)
            world.reservation.full = True
            world.clock.advance(10_000)
            read_at = world.oracle.read_ts()
            with pytest.raises(OutOfDisk):
                await world.write(T)
            with pytest.raises(OutOfDisk):
                await world.group.reached(read_at + 5_000)
            assert world.oracle.read_ts() == read_at
            ahead = [
                asyncio.get_running_loop().create_task(world.group.reached(read_at + ms))
                for ms in (60_000, 60_000, 40_000)
            ]
            with pytest.raises(OutOfDisk):
                await world.write(T)
            world.reservation.full = False
            assert await world.write(T) >= 11_000
            await world.group.reached(read_at + 5_000)
            ahead[0].cancel()
            world.clock.advance(40_000)
            await ahead[2]
            assert not ahead[1].done()
            world.clock.advance(20_000)
            await asyncio.gather(*ahead, return_exceptions=True)
            assert [each.cancelled() for each in ahead] == [True, False, False]
            assert len(world.shards.appended) == 2

    play(scenario())


def test_first_writer_in_group_wins() -> None:
    async def scenario() -> None:
        async with World() as world:
            world.shards.gate.clear()
            running = world.write(U)
            await asyncio.sleep(0.01)
            reads = Reads(frozenset({T}), world.oracle.read_ts())
            first, second = world.write(T, reads), world.write(T, reads)
            await asyncio.sleep(0.01)
            world.shards.gate.set()
            await running
            await first
            with pytest.raises(Conflict):
                await second

    play(scenario())


def test_blocked_table_delays_only_other_owners() -> None:
    async def scenario() -> None:
        async with World() as world:
            owner = object()
            world.group.block([T], owner)
            waiting = world.write(T)
            await world.write(U)
            await world.write(T, Reads(frozenset({T}), world.oracle.read_ts()), owner)
            assert not waiting.done()
            world.group.unblock([T])
            await waiting

    play(scenario())


def test_write_to_dropped_table_is_refused() -> None:
    async def scenario() -> None:
        async with World() as world:
            world.group.retire(T, ("item", None, "t"), 1_000)
            with pytest.raises(TableDropped, match='relation "t" does not exist'):
                await world.write(T)

    play(scenario())


def test_shard_with_foreign_writer_fails_only_its_writes(tmp_path: Path) -> None:
    async def main() -> None:
        env = TestEnvironment(tmp_path)
        await env.open()
        coordinator, storage = env.environment.coordinator, env.storage
        for name in ("t", "u"):
            await env.query("s", f"CREATE TABLE {name} (k int)")
        t, _ = (item.id for item in coordinator.state.all(Item) if is_user(item.id))
        other = await storage.clone_capability(coordinator.capabilities[t][1], 60_000)
        ahead = storage.upper(t) + 1_000
        gate, begin = asyncio.Event(), storage.begin_append

        async def held(writes: Sequence[ShardWrite], ended: Ended) -> UpperMismatch | None:
            await gate.wait()
            return await begin(writes, ended)

        storage.begin_append = held  # type: ignore[method-assign]
        insert = "INSERT INTO {} VALUES (1)"
        answers = [
            asyncio.create_task(env.query(f"s{i}", insert.format(name), alone=False))
            for i, name in enumerate("tut")
        ]
        await asyncio.sleep(0.1)  # as while it waits for compaction
        own = await storage.downgrade_capability(coordinator.capabilities[t][1], ahead)
        await storage.downgrade_capability(other, ahead)
        gate.set()
        told = await asyncio.gather(*answers)
        storage.begin_append = begin  # type: ignore[method-assign]
        conflict = "ERROR 40001: could not serialize access due to concurrent update"
        assert told == [conflict, "INSERT 0 1", conflict]
        assert env.environment.failed is None
        await coordinator.group.reached(ahead)
        assert await env.query("s", insert.format("t"), alone=False) == "INSERT 0 1"
        await storage.drop_capability(own)
        answer = await env.query("s", insert.format("t"), alone=False)
        assert answer.startswith('ERROR 55000: write capability "')
        assert await env.query("s", insert.format("u"), alone=False) == "INSERT 0 1"
        assert await env.query("s", "SELECT count(*) FROM t", alone=False) == "1\nSELECT 1"
        assert env.environment.failed is None
        await env.environment.close()
        await storage.close()

    asyncio.run(main())


async def test_dropped_tables_are_forgotten_after_last_use(own_env: TestEnvironment) -> None:
    gone = own_env.environment.coordinator.group._gone
    for i in range(3):
        await own_env.query("s", f"CREATE TABLE t{i} (k int)")
    await own_env.query("s", "DROP TABLE t0")
    await own_env.query("a", "BEGIN; SELECT k FROM t1")
    await own_env.query("s", "DROP TABLE t1; ALTER TABLE t2 ADD COLUMN n int")
    own_env.environment.forget_retired()
    assert {each.name and each.name[-1] for each in gone.values()} == {"t1", None}
    told = await own_env.query("a", "INSERT INTO t1 VALUES (1)")
    assert told.startswith('ERROR 42P01: relation "t1" does not exist')
    await own_env.query("a", "ROLLBACK")
    own_env.environment.forget_retired()
    assert not gone


@pytest.mark.parametrize("kind", ["other columns", "no table at all"])
def test_write_that_does_not_fit_its_table_stops_no_other(
    runner: asyncio.Runner, own_env: TestEnvironment, kind: str
) -> None:
    async def scenario() -> None:
        for name in "ab":
            await own_env.query("s", f"CREATE TABLE {name} (i int)")
        coordinator = own_env.environment.coordinator
        (wrong,) = (each.id for each in coordinator.state.all(Item) if each.name == "a")
        part: Any = (
            rows(1) if kind == "no table at all" else rows(1).rename_columns(["j", "__diff"])
        )
        part = [None] if kind == "no table at all" else [part]
        failed, *others = await asyncio.gather(
            coordinator.group.write(Write({wrong: part})),
            *(own_env.query(f"s{n}", f"INSERT INTO b VALUES ({n})", alone=False) for n in range(3)),
            return_exceptions=True,
        )
        assert isinstance(failed, DatabaseError)
        assert failed.sqlstate == "XX000"
        assert others == ["INSERT 0 1"] * 3
        for name in "ab":
            assert await own_env.query("s", f"INSERT INTO {name} VALUES (9)") == "INSERT 0 1"
        assert await own_env.query("s", "SELECT count(*) FROM a") == "1\nSELECT 1"
        assert await own_env.query("s", "SELECT count(*) FROM b") == "4\nSELECT 1"

    runner.run(scenario())


def test_log_failure_fails_all_writers_and_shows_nothing() -> None:
    async def scenario() -> None:
        async with World() as world:
            before = world.oracle.read_ts()
            world.shards.fault = OSError("no space left on device")
            with pytest.raises(DatabaseError) as heard:
                await world.write(T)
            assert heard.value.sqlstate == "58030"
            assert world.oracle.read_ts() == before
            with pytest.raises(DatabaseError):
                await world.write(U)

    play(scenario())


@pytest.mark.parametrize(
    ("fault", "level", "story"),
    [(Fenced("another environment"), "WARNING", False), (OSError("no space"), "ERROR", True)],
)
def test_takeover_logs_one_line_and_defect_logs_traceback(
    fault: Exception, level: str, story: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with World() as world:
            world.shards.fault = fault
            with pytest.raises(DatabaseError):
                await world.write(T)

    play(scenario())
    (record,) = logged_by(caplog, "foreshore")
    assert record.levelname == level
    assert record.message.startswith("group commit has stopped")
    assert (record.exc_info is not None) == story


class CountingLoop(asyncio.SelectorEventLoop):
    """An event loop that counts what is asked of it."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        super().__init__()

    def call_soon(  # type: ignore[override]
        self, *args: Any, **options: Any
    ) -> asyncio.Handle:
        self.counts["callbacks"] += 1
        return super().call_soon(*args, **options)

    def call_at(  # type: ignore[override]
        self, *args: Any, **options: Any
    ) -> asyncio.TimerHandle:
        self.counts["timers"] += 1
        return super().call_at(*args, **options)

    def create_future(self) -> asyncio.Future[Any]:
        self.counts["futures"] += 1
        return super().create_future()


def test_each_of_successive_commits_wakes_the_task_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_commit, "IDLE_ADVANCE_MS", 1_000_000)
    commits = 100

    async def scenario() -> None:
        async with World() as world:
            shards = world.shards

            async def begin_append(writes: Sequence[ShardWrite], ended: Ended) -> None:
                shards.uppers[writes[0].id] = writes[0].upper
                loop.call_soon(ended, None)  # in place of the log, whose thread calls it

            monkeypatch.setattr(shards, "begin_append", begin_append)
            await asyncio.sleep(0)
            loop.counts.clear()
            for _ in range(commits):
                await world.group.write(Write({T: [rows(1)]}))
            assert world.group.groups == commits
            assert loop.counts["futures"] == commits * 2  # one is of the write
            assert commits * 3 - 1 <= loop.counts["callbacks"] <= commits * 3 + 1
            assert loop.counts["timers"] == 0

    with contextlib.closing(CountingLoop()) as loop:
        loop.run_until_complete(asyncio.wait_for(scenario(), 20))
