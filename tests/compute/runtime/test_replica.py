"""A replica in this process: its work on the event loop, and what it keeps between controllers."""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest

from foreshore.compute.batch_sizing import BatchSizing
from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.controller.outputs import Subscription
from foreshore.compute.inputs import Contents, with_times
from foreshore.compute.linear_dataflow import LinearDataflow, LinearFirst
from foreshore.compute.output import Output
from foreshore.compute.protocol import (
    AllowCompaction,
    Command,
    CreateDataflow,
    CreateInstance,
    DataflowDescription,
    Feed,
    Frontiers,
    InitializationComplete,
    InputSnapshot,
    Peek,
    PeekResponse,
    Status,
    SubscribeIndex,
    SubscribeResponse,
)
from foreshore.compute.replica.instance import ENGINES
from foreshore.compute.replica.queues import Part
from foreshore.compute.replica.replica import Replica
from foreshore.errors import OutOfMemory, Unavailable
from foreshore.ids import GlobalId
from foreshore.processes.messages import Hello, Message
from foreshore.processes.transport import Connection
from foreshore.update import Timestamp, encode_schema
from tests.compute.runtime.harness import KV_SCHEMA, contents, id_, index_on, rows, run, table

(U1,) = table("u1")
INDEX = id_("u3")


class Controller:
    """A connection as the replica sees it; records its messages."""

    def __init__(self, replica: Replica) -> None:
        self.said: list[tuple[Message, Sequence[pa.Table]]] = []
        self._replica = replica
        self._connection = cast(Connection[Command], self)

    def send(self, message: Message, tables: Sequence[pa.Table] = ()) -> None:
        self.said.append((message, tables))

    def abort(self) -> None:
        self._replica.lost(self._connection)

    def tell(self, command: Any, *tables: pa.Table) -> None:
        self._replica.deliver(self._connection, command, tuple(tables))

    def begin(
        self,
        directory: Path,
        upper: Timestamp,
        *updates: pa.Table,
        database: str = "",
        **options: str,
    ) -> None:
        """Send a history with one index over u1, which holds `updates` before `upper`."""
        self.tell(Hello("c.r"))
        self.tell(CreateInstance("embedded", {"data_dir": str(directory), **options}, database))
        description = DataflowDescription(
            id_("u2"), U1, (id_("u1"),), (index_on(INDEX, 0, of=U1),), 1
        )
        schema = encode_schema(KV_SCHEMA)
        snapshot = InputSnapshot(id_("u1"), 0, upper, (), len(updates), schema)
        self.tell(CreateDataflow(description, (snapshot,), ()), *updates)

    def responses(self, id: str) -> list[Sequence[pa.Table]]:
        return [
            tables
            for message, tables in self.said
            if isinstance(message, SubscribeResponse) and message.id == id
        ]


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


def upper_of(replica: Replica) -> Timestamp:
    """Return the upper of the dataflow that runs; one that hydrates has its upper before."""
    running = [each for each in replica._dataflows.values() if each.state == "running"]
    return max((each.indexes[INDEX].rows.upper for each in running), default=0)


@pytest.fixture
def with_replica(tmp_path: Path) -> Callable[[Callable[[Replica], Any]], None]:
    def in_it(scenario: Callable[[Replica], Any]) -> None:
        async def main() -> None:
            replica = Replica({"embedded": lambda _: LinearFirst(DuckDbEngine())}, tmp_path)
            running = asyncio.create_task(replica.run())
            await asyncio.sleep(0)  # it runs
            try:
                await scenario(replica)
            finally:
                running.cancel()
                with suppress(asyncio.CancelledError):
                    await running

        run(main)

    return in_it


WithReplica = Callable[[Callable[[Replica], Any]], None]


def test_kept_dataflow_catches_up_off_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_replica: WithReplica
) -> None:
    first, missed, fed = (with_times(rows((n, "a")), n) for n in (1, 3, 5))
    may_read = threading.Event()
    after = Contents.after

    async def scenario(replica: Replica) -> None:
        one, two = Controller(replica), Controller(replica)
        one.begin(tmp_path, 2, first)
        one.tell(InitializationComplete())
        await until(lambda: upper_of(replica) == 2)
        (kept,) = replica._dataflows.values()

        def reading(self: Contents, time: Timestamp) -> list[pa.Table]:
            assert threading.current_thread() is not threading.main_thread()
            assert may_read.wait(10)
            return after(self, time)

        monkeypatch.setattr(Contents, "after", reading)
        two.begin(tmp_path, 4, first, missed)
        two.tell(InitializationComplete())
        two.tell(Feed(((id_("u1"), 4, 6, True),)), fed)  # before earlier updates have been read
        await asyncio.sleep(0)
        assert not two.said  # not before reconciliation
        may_read.set()
        await until(lambda: upper_of(replica) == 6)
        assert list(replica._dataflows.values()) == [kept]
        index = kept.indexes[INDEX].rows
        assert contents(index.scan(4)) == Counter({(1, "a"): 1, (3, "a"): 1})
        assert contents(index.scan(5)) == Counter({(1, "a"): 1, (3, "a"): 1, (5, "a"): 1})

    with_replica(scenario)


def test_missed_updates_are_sorted_off_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_replica: WithReplica
) -> None:
    sorting: list[threading.Thread] = []
    times = Part.times

    def noted(self: Part) -> Any:
        if self._times is None and self.updates.num_rows == 2:
            sorting.append(threading.current_thread())
        return times(self)

    async def scenario(replica: Replica) -> None:
        one, two = Controller(replica), Controller(replica)
        first, missed = (
            with_times(rows((1, "a")), 1),
            [with_times(rows((n, "b")), n) for n in (4, 3)],
        )
        one.begin(tmp_path, 2, first)
        one.tell(InitializationComplete())
        await until(lambda: upper_of(replica) == 2)
        (kept,) = replica._dataflows.values()
        monkeypatch.setattr(Part, "times", noted)
        two.begin(tmp_path, 5, first, *missed)
        two.tell(InitializationComplete())
        await until(lambda: upper_of(replica) == 5)
        assert list(replica._dataflows.values()) == [kept]
        assert sorting
        assert threading.main_thread() not in sorting
        found = kept.indexes[INDEX].rows.scan(3)
        assert contents(found) == Counter({(1, "a"): 1, (3, "b"): 1})

    with_replica(scenario)


def test_replica_keeps_nothing_for_other_database(
    tmp_path: Path, with_replica: WithReplica
) -> None:
    async def scenario(replica: Replica) -> None:
        for database in ("one", "restored"):  # with the same ids, but other rows
            controller = Controller(replica)
            written = with_times(rows((1, database)), 1)
            controller.begin(tmp_path, 3, written, database=database)
            controller.tell(InitializationComplete())
            await until(lambda: replica._history is None and upper_of(replica) == 3)
            (running,) = replica._dataflows.values()
            found = running.indexes[INDEX].rows.scan(2)
            assert contents(pa.Table.from_batches([found])) == Counter({(1, database): 1})

    with_replica(scenario)


def test_replica_saves_state_of_the_database_that_it_works_for(tmp_path: Path) -> None:
    often = {"checkpoint_interval_ms": "30", "checkpoint_least_bytes": "0"}

    async def main() -> None:
        replica = Replica(ENGINES, tmp_path)
        running = asyncio.create_task(replica.run())
        await asyncio.sleep(0)  # it runs
        for database in ("one", "restored"):
            controller = Controller(replica)
            written = with_times(rows((1, database)), 1)
            controller.begin(tmp_path, 3, written, database=database, **often)
            controller.tell(InitializationComplete())
            await until(lambda: replica._history is None and upper_of(replica) == 3)
            await until(lambda: replica._checkpoints._manifest is not None)
            manifest = replica._checkpoints._manifest
            assert manifest is not None
            assert manifest.database == database
            assert [each.id for each in manifest.dataflows] == ["u2"]
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running

    run(main)


def test_window_exceeding_memory_is_not_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_replica: WithReplica
) -> None:
    async def scenario(replica: Replica) -> None:
        one = Controller(replica)
        one.begin(tmp_path, 2, with_times(rows((1, "a")), 1))
        one.tell(InitializationComplete())
        await until(lambda: upper_of(replica) == 2)
        (running,) = replica._dataflows.values()
        dataflow = running._dataflow
        assert isinstance(dataflow, LinearDataflow)
        dataflow.batch_sizing = BatchSizing(4_096, seconds=60)
        step = dataflow.step

        def greedy(lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> Output:
            if upper - lower > 16:
                raise OutOfMemory("so many times")
            return step(lower, upper, deltas)

        monkeypatch.setattr(dataflow, "step", greedy)
        updates = pa.concat_tables([with_times(rows((t, "b")), t) for t in range(2, 4_098)])
        started = asyncio.get_running_loop().time()
        one.tell(Feed(((id_("u1"), 2, 4_098, True),)), updates)
        await until(lambda: upper_of(replica) == 4_098)
        assert asyncio.get_running_loop().time() - started < 20
        statuses = [message for message, _ in one.said if isinstance(message, Status)]
        assert not any(each.failures for status in statuses for each in status.dataflows)

    with_replica(scenario)


def test_a_merge_without_memory_stalls_the_dataflow_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_replica: WithReplica
) -> None:
    async def scenario(replica: Replica) -> None:
        one = Controller(replica)
        one.begin(tmp_path, 2, with_times(rows((1, "a")), 1))
        one.tell(InitializationComplete())
        await until(lambda: upper_of(replica) == 2)
        (running,) = replica._dataflows.values()
        await until(lambda: running.state == "running" and not running.busy)

        def greedy() -> bool:
            raise MemoryError("no more memory")

        monkeypatch.setattr(running, "maintain", greedy)
        running.merging_due = True
        replica._scheduler.wake()
        await until(lambda: running.state == "stalled" and not running.busy)
        assert running.failure is not None
        assert running.failure.sqlstate == "53200"

    with_replica(scenario)


def test_kept_dataflow_with_unreadable_gap_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_replica: WithReplica
) -> None:
    first, missed = (with_times(rows((n, "a")), n) for n in (1, 3))
    after = Contents.after
    failed: list[bool] = []

    def failing_once(self: Contents, time: Timestamp) -> list[pa.Table]:
        if not failed:
            failed.append(True)
            raise OSError("no such file")
        return after(self, time)

    async def scenario(replica: Replica) -> None:
        one, two = Controller(replica), Controller(replica)
        one.begin(tmp_path, 2, first)
        one.tell(InitializationComplete())
        await until(lambda: upper_of(replica) == 2)
        (gone,) = replica._dataflows.values()
        monkeypatch.setattr(Contents, "after", failing_once)
        two.begin(tmp_path, 4, first, missed)
        two.tell(InitializationComplete())
        await until(lambda: upper_of(replica) == 4)
        (anew,) = replica._dataflows.values()
        assert anew is not gone
        assert contents(anew.indexes[INDEX].rows.scan(3)) == Counter({(1, "a"): 1, (3, "a"): 1})

    with_replica(scenario)


def test_index_subscription_ends_with_its_controller(
    tmp_path: Path, with_replica: WithReplica
) -> None:
    first, later = (with_times(rows((n, "a")), n) for n in (1, 3))

    async def scenario(replica: Replica) -> None:
        one, two = Controller(replica), Controller(replica)
        one.begin(tmp_path, 2, first)
        one.tell(InitializationComplete())
        await until(lambda: upper_of(replica) == 2)
        one.tell(SubscribeIndex(id_("t1"), INDEX, 3, 0))  # nothing is known at 3 yet
        two.begin(tmp_path, 2, first)
        two.tell(InitializationComplete())
        two.tell(SubscribeIndex(id_("t2"), INDEX, 3, 0))
        two.tell(Feed(((id_("u1"), 2, 4, True),)), later)
        await until(lambda: bool(two.responses("t2")))
        assert not two.responses("t1")
        assert "t1" not in replica._exporters

    with_replica(scenario)


def test_frontiers_are_not_reported_to_next_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_replica: WithReplica
) -> None:
    """Frontiers not sent to the first controller would be missing for the second."""
    first, later = (with_times(rows((n, "a")), n) for n in (1, 3))

    async def scenario(replica: Replica) -> None:
        one, two = Controller(replica), Controller(replica)
        one.begin(tmp_path, 2, first)
        one.tell(InitializationComplete())
        await until(lambda: upper_of(replica) == 2)
        one.tell(SubscribeIndex(id_("t1"), INDEX, 1, 0))
        await until(lambda: bool(one.responses("t1")))

        def connect_anew() -> None:
            two.begin(tmp_path, 5, first, later)
            two.tell(SubscribeIndex(id_("t1"), INDEX, 1, 2))  # everything before 2 was received
            two.tell(InitializationComplete())

        def lost(message: Message, tables: Sequence[pa.Table] = ()) -> None:
            if isinstance(message, SubscribeResponse):  # the frontier follows a turn later
                asyncio.get_running_loop().call_soon(connect_anew)

        monkeypatch.setattr(one, "send", lost)
        one.tell(Feed(((id_("u1"), 2, 5, True),)), later)
        await until(lambda: bool(two.responses("t1")))
        stream = Subscription(id_("t1"), 1)
        for message, tables in (*one.said, *two.said):
            if isinstance(message, SubscribeResponse):
                stream.put(message.lower, message.upper, tables[0], tables[1])
            elif isinstance(message, Frontiers) and "t1" in message.uppers:
                stream.progress(message.uppers[id_("t1")])
        batch = await anext(stream)
        assert batch.updates is not None
        assert contents(batch.updates.select([0, 1])) == Counter({(1, "a"): 1, (3, "a"): 1})

    with_replica(scenario)


def test_subscription_before_since_of_index_gets_later_changes(
    tmp_path: Path, with_replica: WithReplica
) -> None:
    first, later, last = (with_times(rows((n, "a")), n) for n in (1, 3, 6))

    async def scenario(replica: Replica) -> None:
        controller = Controller(replica)
        controller.begin(tmp_path, 2, first)
        controller.tell(InitializationComplete())
        await until(lambda: upper_of(replica) == 2)
        controller.tell(SubscribeIndex(id_("t1"), INDEX, 1, 0))
        controller.tell(AllowCompaction(INDEX, 4))  # other replicas have sent everything before
        controller.tell(Feed(((id_("u1"), 2, 5, True),)), later)
        await until(lambda: upper_of(replica) == 5)
        controller.tell(Feed(((id_("u1"), 5, 7, True),)), last)
        await until(
            lambda: any(
                isinstance(m, SubscribeResponse) and m.upper == 7 for m, _ in controller.said
            )
        )
        (begun, *_), changes = (
            [m for m, _ in controller.said if isinstance(m, SubscribeResponse)],
            [row for row, _ in controller.responses("t1")],
        )
        assert begun.lower == 5
        assert contents(pa.concat_tables(changes).select([0, 1])) == Counter({(6, "a"): 1})
        assert not any(r.failures for r in replica._dataflows.values())

    with_replica(scenario)


def test_unsubscribe_during_initial_read_sends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_replica: WithReplica
) -> None:
    first, later = (with_times(rows((n, "a")), n) for n in (1, 3))
    reading, may_read = threading.Event(), threading.Event()

    async def scenario(replica: Replica) -> None:
        controller = Controller(replica)
        controller.begin(tmp_path, 2, first)
        controller.tell(InitializationComplete())
        await until(lambda: upper_of(replica) == 2)
        (running,) = replica._dataflows.values()
        rows_of_index = running.indexes[INDEX].rows
        updates = rows_of_index.updates

        def slowly(as_of: Timestamp) -> pa.Table:
            reading.set()
            assert may_read.wait(10)
            return updates(as_of)

        monkeypatch.setattr(rows_of_index, "updates", slowly)
        controller.tell(SubscribeIndex(id_("t1"), INDEX, 1, 0))
        await until(reading.is_set)
        controller.tell(AllowCompaction(id_("t1"), None))
        may_read.set()
        controller.tell(Feed(((id_("u1"), 2, 4, True),)), later)
        await until(lambda: upper_of(replica) == 4)
        assert not controller.responses("t1")
        assert not running.subscribers.ids

    with_replica(scenario)


@pytest.mark.parametrize("asked", ["before it has ended", "after it has ended"])
def test_answer_goes_to_requesting_controller(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_replica: WithReplica
) -> None:
    """Two controllers use the same peek numbers; an answer for the first is not for the second."""
    begun = [threading.Event(), threading.Event()]
    may_end = [threading.Event(), threading.Event()]
    ended = threading.Event()
    numbers = count()

    def answer(peek: Peek, *_: Any) -> Iterator[pa.RecordBatch]:
        n = next(numbers)
        begun[n].set()
        assert may_end[n].wait(10)
        if n == 0:
            ended.set()
        yield from rows((n, "answer")).to_batches()

    monkeypatch.setattr("foreshore.compute.replica.pending_peeks.answer_by_engine", answer)
    peek = Peek(1, 1, U1, None, None, None, (), {})

    async def scenario(replica: Replica) -> None:
        one, two = Controller(replica), Controller(replica)
        one.begin(tmp_path, 2)
        one.tell(InitializationComplete())
        await until(lambda: upper_of(replica) == 2)
        one.tell(peek)
        await until(begun[0].is_set)
        two.begin(tmp_path, 2)
        two.tell(InitializationComplete())
        await until(lambda: bool(two.said))
        if asked == "after it has ended":
            may_end[0].set()
            await until(ended.is_set)
        two.tell(peek)
        await until(begun[1].is_set)
        may_end[0].set()
        await until(ended.is_set)
        may_end[1].set()
        await until(lambda: any(isinstance(message, PeekResponse) for message, _ in two.said))
        (answer,) = (tables for message, tables in two.said if isinstance(message, PeekResponse))
        assert answer[0].to_pylist() == [{"k": 1, "v": "answer"}]

    with_replica(scenario)


def test_replica_ends_after_unexpected_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:

    async def main() -> None:
        replica = Replica({"embedded": lambda _: LinearFirst(DuckDbEngine())}, tmp_path)
        running = asyncio.create_task(replica.run())
        await asyncio.sleep(0)
        controller = Controller(replica)
        replica.accept(cast(Connection[Command], controller))
        controller.begin(tmp_path, 1)
        monkeypatch.setattr(replica, "_create", broken)
        controller.tell(InitializationComplete())
        async with asyncio.timeout(10):
            with pytest.raises(ExceptionGroup) as raised:
                await running
        assert "broken" in str(raised.value.exceptions)

    def broken(_: object) -> None:
        raise RuntimeError("broken")

    run(main)


@pytest.mark.parametrize("lost_in", ["hydration", "a step", "an evaluation"])
def test_failure_of_lost_engine_ends_replica_unreported(
    lost_in: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = LinearFirst(DuckDbEngine())
    lost = threading.Event()

    def fails(*_: object) -> Output:
        lost.set()
        raise ConnectionRefusedError

    def check() -> None:
        assert threading.current_thread() is not threading.main_thread()
        if lost.is_set():
            raise Unavailable("the engine has ended")

    monkeypatch.setattr(engine, "check", check)
    if lost_in == "hydration":
        monkeypatch.setattr(LinearDataflow, "hydrate", fails)
    elif lost_in == "a step":
        monkeypatch.setattr(LinearDataflow, "step", fails)
    else:
        monkeypatch.setattr("foreshore.compute.replica.pending_peeks.answer_by_engine", fails)

    async def main() -> None:
        replica = Replica({"embedded": lambda _: engine}, tmp_path)
        running = asyncio.create_task(replica.run())
        await asyncio.sleep(0)
        controller = Controller(replica)
        controller.begin(tmp_path, 2, with_times(rows((1, "a")), 1))
        controller.tell(InitializationComplete())
        if lost_in != "hydration":
            await until(lambda: upper_of(replica) == 2)
        if lost_in == "a step":
            controller.tell(Feed(((id_("u1"), 2, 4, True),)), with_times(rows((3, "a")), 3))
        elif lost_in == "an evaluation":
            controller.tell(Peek(1, 1, U1, None, None, None, (), {}))
        async with asyncio.timeout(10):
            with pytest.raises(ExceptionGroup) as raised:
                await running
        assert raised.group_contains(Unavailable, match="the engine has ended")
        statuses = [message for message, _ in controller.said if isinstance(message, Status)]
        assert not any(each.failures for status in statuses for each in status.dataflows)
        assert not any(isinstance(message, PeekResponse) for message, _ in controller.said)

    run(main)
