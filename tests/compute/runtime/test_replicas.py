"""Clusters: the output of replicas becomes shards, streams and answers, each exact and once."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from foreshore.compute.controller import outputs
from foreshore.compute.controller.peeks import PeekRequest
from foreshore.compute.protocol import DataflowDescription, SinkExport, SubscribeExport
from foreshore.errors import DatabaseError, UndefinedObject
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Call,
    Column,
    Constant,
    Finishing,
    Get,
    Join,
    Literal,
    Map,
    OrderKey,
    Relation,
)
from foreshore.storage.controller import ShardWrite
from foreshore.storage.epoch import fenced
from foreshore.types import INT4, INT8, TEXT, ColumnType
from tests.compute.runtime.harness import (
    COUNT_SCHEMA,
    Environment,
    Row,
    counts_of,
    environment,
    id_,
    index_on,
    run,
    table,
)


async def two_replicas(env: Environment) -> None:
    env.compute.create_cluster("c")
    for name in ("r1", "r2"):
        env.compute.create_replica("c", name)


async def written_counts(env: Environment) -> tuple[Relation, int]:
    """Let two replicas write the counts of u1 to u9; return the view, and the time of u1's row."""
    await two_replicas(env)
    await env.create("u1")
    await env.create("u9", schema=COUNT_SCHEMA)
    counts = counts_of(*table("u1"))
    first = await env.write({"u1": [((1, "a"), 1)]})
    await env.maintain("c", "u8", counts, SinkExport(id_("u9")), as_of=first)
    assert await env.shard_rows("u9", first) == Counter({("a", 1): 1})
    return counts, first


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a status satisfies `condition`."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.02)


async def connected(env: Environment, count: int = 2) -> list[int]:
    """Wait until `count` replicas have reported all uppers; return their process ids."""
    while True:
        states = [s for s in env.compute.clusters.status() if s["ready"] and s["uppers"]]
        if len(states) >= count:
            return [s["pid"] for s in states]
        await asyncio.sleep(0.02)


def test_a_materialised_view_is_written_once_by_two_replicas(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path) as env:
            await two_replicas(env)
            await env.create("u1")
            await env.create("u9", schema=COUNT_SCHEMA)
            relation = counts_of(*table("u1"))
            first = await env.write({"u1": [((1, "a"), 1), ((2, "b"), 1)]})
            await env.maintain("c", "u8", relation, SinkExport(id_("u9")), as_of=first)
            model: Counter[Row] = Counter({("a", 1): 1, ("b", 1): 1})
            times = {first: +model}
            for n in range(20):
                time = await env.write({"u1": [((n, "c"), 1)]})
                model = Counter({("a", 1): 1, ("b", 1): 1, ("c", n + 1): 1})
                times[time] = model
            for time, expected in times.items():
                assert await env.shard_rows("u9", time) == expected

    run(scenario)


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (OSError("the disk is gone"), '"u9" is not kept up to date'),
        (fenced(), "another environment has taken over"),
    ],
    ids=["a fault", "fenced"],
)
def test_unwritable_view_fails_waiters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Exception, told: str
) -> None:
    async def scenario() -> None:
        async with environment(tmp_path) as env:
            counts, first = await written_counts(env)
            above = Get(id_("u9"), columns_of(counts))
            await env.maintain("c", "u11", above, index_on("u10", 0, of=above), as_of=first)
            append = env.storage.append

            async def refusing(writes: Any) -> Any:
                if writes[0].id == id_("u9"):
                    raise fault
                return await append(writes)

            monkeypatch.setattr(env.storage, "append", refusing)
            waiting = asyncio.create_task(env.compute.wait_upper(id_("u10"), first + 1))
            later = await env.write({"u1": [((2, "b"), 1)]})
            with pytest.raises(DatabaseError, match=told):
                await waiting
            with pytest.raises(DatabaseError, match=told):
                await env.query("c", above, later)
            # its known contents stay readable
            assert await env.query("c", above, first) == Counter({("a", 1): 1})
            # and later updates of the replicas are not kept
            writer = env.compute._dataflows[id_("u8")].writers[id_("u9")]
            said = await env.write({"u1": [((3, "c"), 1)]})
            await until(
                lambda: all(s["uppers"].get("u9", 0) > said for s in env.compute.clusters.status())
            )
            assert writer._items == []

    run(scenario)


def test_replicas_are_not_read_while_their_updates_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with environment(tmp_path) as env:
            await written_counts(env)
            append = env.storage.append
            gate = asyncio.Event()

            async def waiting(writes: Any) -> Any:
                if writes[0].id == id_("u9"):
                    await gate.wait()
                return await append(writes)

            monkeypatch.setattr(env.storage, "append", waiting)
            monkeypatch.setattr(outputs, "MAX_PENDING_BYTES", 1000)

            def are_read() -> list[bool]:
                transports = [c._transport for c in env.compute.clusters["c"].connections]
                return [t.is_reading() for t in transports if t is not None]

            model = {"a": 1}
            while any(are_read()):
                for n in range(20):
                    model[f"v{n}"] = model.get(f"v{n}", 0) + 1
                last = await env.write({"u1": [((n, f"v{n}"), 1) for n in range(20)]})
                await asyncio.sleep(0.02)
            gate.set()
            assert await env.shard_rows("u9", last) == Counter(model.items())
            await until(lambda: all(are_read()))

    run(scenario)


@pytest.mark.full
def test_either_of_two_replicas_may_be_killed_under_load(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path) as env:
            await two_replicas(env)
            await env.create("u1")
            await env.create("u9", schema=COUNT_SCHEMA)
            relation = counts_of(*table("u1"))
            first = await env.write({"u1": [((0, "v0"), 1)]})
            await env.maintain(
                "c",
                "u8",
                relation,
                SinkExport(id_("u9")),
                index_on("u7", 0, of=relation),
                as_of=first,
            )
            pids = await connected(env)
            model: Counter[str] = Counter({"v0": 1})
            history: dict[int, Counter[Row]] = {}
            for n in range(1, 120):
                word = f"v{n % 7}"
                time = await env.write({"u1": [((n, word), 1)]})
                model[word] += 1
                history[time] = Counter((v, c) for v, c in model.items())
                if n == 30:
                    os.kill(pids[0], signal.SIGKILL)
                if n == 60:
                    while len(await connected(env)) < 2:
                        pass
                    pids = await connected(env)
                if n == 70:
                    os.kill(pids[1], signal.SIGKILL)
                    env.compute.allow_compaction(id_("u7"), time)
                if n > 30 and n % 10 == 0:
                    found = await env.index_rows("c", "u7", relation, time)
                    assert found == history[time], n
            for time, expected in history.items():
                assert await env.shard_rows("u9", time) == expected
            assert all(s["starts"] >= 1 for s in env.compute.clusters.status())

    run(scenario, 60)


def test_killed_single_replica_recovers_everything(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path) as env:
            env.compute.create_cluster("c")
            env.compute.create_replica("c", "r1")
            await env.create("u1")
            await env.create("u9", schema=COUNT_SCHEMA)
            relation = counts_of(*table("u1"))
            first = await env.write({"u1": [((1, "a"), 1)]})
            await env.maintain(
                "c",
                "u8",
                relation,
                SinkExport(id_("u9")),
                index_on("u7", 0, of=relation),
                as_of=first,
            )
            (pid,) = await connected(env, 1)
            os.kill(pid, signal.SIGKILL)
            second = await env.write({"u1": [((2, "a"), 1)]})
            # asked while no replica is running
            assert await env.index_rows("c", "u7", relation, second, "a") == {("a", 2): 1}
            assert await env.shard_rows("u9", second) == {("a", 2): 1}
            assert await env.shard_rows("u9", first) == {("a", 1): 1}

    run(scenario)


def test_a_materialised_view_corrects_itself_after_a_restart(tmp_path: Path) -> None:
    relation = counts_of(*table("u1"))

    async def before() -> None:
        async with environment(tmp_path) as env:
            await env.create("u1")
            await env.create("u9", schema=COUNT_SCHEMA)
            first = await env.write({"u1": [((1, "a"), 1)]})
            # the remains of a faulty writer
            schema = pa.schema([*COUNT_SCHEMA, ("__time", pa.int64()), ("__diff", pa.int64())])
            wrong = pa.table([["a", "x"], [7, 1], [first] * 2, [1, 1]], schema=schema)
            await env.storage.append([ShardWrite(id_("u9"), 0, first + 1, wrong)])

    async def after() -> None:
        async with environment(tmp_path) as env:
            await env.acquire()
            env.tables = [id_("u1")]
            env.time = env.storage.upper(id_("u1"))
            env.compute.create_cluster("c")
            env.compute.create_replica("c", "r1")
            as_of = env.storage.upper(id_("u9")) - 1
            await env.maintain("c", "u8", relation, SinkExport(id_("u9")), as_of=as_of)
            assert await env.shard_rows("u9", as_of) == {("a", 7): 1, ("x", 1): 1}
            second = await env.write({})
            assert await env.shard_rows("u9", second) == {("a", 1): 1}
            third = await env.write({"u1": [((2, "b"), 1)]})
            assert await env.shard_rows("u9", third) == {("a", 1): 1, ("b", 1): 1}

    run(before)
    run(after)


def test_subscription_gets_each_change_once_from_any_replica(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path) as env:
            await two_replicas(env)
            await env.create("u1")
            relation = counts_of(*table("u1"))
            first = await env.write({"u1": [((1, "a"), 1)]})
            description = DataflowDescription(
                id_("t1"), relation, (id_("u1"),), (SubscribeExport(id_("t2")),), first
            )
            subscription = await env.compute.subscribe("c", description)
            state: Counter[Row] = Counter()
            upper = first

            async def write() -> None:
                pids = await connected(env)
                for n in range(45):
                    await env.write({"u1": [((n, "a"), 1)]})
                    if n == 20:
                        os.kill(pids[0], signal.SIGKILL)

            writing = asyncio.create_task(write())
            async for batch in subscription:
                assert batch.lower == upper
                upper = batch.upper
                if batch.updates is not None:
                    for *row, time, diff in zip(
                        *(c.to_pylist() for c in batch.updates.columns), strict=True
                    ):
                        assert batch.lower <= time < batch.upper
                        state[tuple(row)] += diff
                if upper > first + 45:
                    break
            await writing
            assert +state == {("a", 46): 1}
            env.compute.drop_dataflow(id_("t1"))

    run(scenario)


@pytest.mark.full
def test_index_subscription_needs_no_computation(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path) as env:
            await two_replicas(env)
            await env.create("u1")
            relation = counts_of(*table("u1"))
            first = await env.write({"u1": [((1, "a"), 1)]})
            await env.maintain("c", "u8", relation, index_on("u7", 0, of=relation), as_of=first)
            as_of = await env.write({"u1": [((2, "a"), 1)]})
            subscription = await env.compute.subscribe_index(id_("u7"), id_("t1"), as_of)
            state: Counter[Row] = Counter()
            upper = as_of
            last = as_of + 45
            written = 2

            async def write() -> None:
                nonlocal written
                pids = await connected(env)
                while env.storage.upper(id_("u1")) <= last:
                    await env.write({"u1": [((written, "a"), 1)]})
                    written += 1
                    if written == 20:
                        os.kill(pids[0], signal.SIGKILL)
                    if written == 30:
                        await connected(env)
                        os.kill(pids[1], signal.SIGKILL)
                        await connected(env)

            writing = asyncio.create_task(write())
            while upper <= last:
                batch = await anext(subscription)
                assert batch.lower == upper
                upper = batch.upper
                if batch.updates is not None:
                    for *row, time, diff in zip(
                        *(c.to_pylist() for c in batch.updates.columns), strict=True
                    ):
                        assert batch.lower <= time < batch.upper
                        state[tuple(row)] += diff
            await writing
            assert +state == {("a", written): 1}
            env.compute.unsubscribe_index(id_("t1"))
            assert not env.compute.exports(id_("t1"))
            again = await env.compute.subscribe_index(id_("u7"), id_("t3"), last)
            env.compute.allow_compaction(id_("u7"), last + 1000)
            assert env.compute.since(id_("u7")) == again.since  # another replica starts there
            batch = await anext(again)
            assert batch.updates is not None
            assert batch.updates.num_rows == 1
            env.compute.drop_dataflow(id_("u8"))
            with pytest.raises(UndefinedObject, match="was dropped"):
                await anext(again)

    run(scenario, 60)


def test_query_reads_shards_indexes_and_given_rows(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path) as env:
            await two_replicas(env)
            await env.create("u1", "u2")
            (one,) = table("u1")
            relation = counts_of(one)
            first = await env.write({"u1": [((1, "a"), 1), ((2, "a"), 1)], "u2": [((1, "z"), 1)]})
            await env.maintain("c", "u8", relation, index_on("u7", 0, of=relation), as_of=first)
            assert await env.query("c", relation, first) == {("a", 2): 1}
            view = Get(id_("u6"), columns_of(relation))
            joined = Join((view, *table("u2", "u5")), ())
            given = pa.table({"k": pa.array([5], pa.int32()), "v": ["given"]})
            found = await env.query(
                "c",
                joined,
                first,
                indexes={id_("u6"): id_("u7")},
                tables={id_("u5"): given},
            )
            assert found == {("a", 2, 1, "z", 5, "given"): 1}

    run(scenario)


def test_index_lookup_evaluates_rest_of_plan(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path) as env:
            env.compute.create_cluster("c")
            env.compute.create_replica("c", "r1")
            await env.create("u1")
            (one,) = table("u1")
            first = await env.write({"u1": [((n, f"w{n % 3}"), 1) for n in range(10)]})
            await env.maintain("c", "u8", one, index_on("u7", 1, of=one), as_of=first)
            k = Column(0, INT4)
            plan = Map(one, (Call("divide(int4,int4)", (Literal(12, INT4), k), INT4),))
            request = PeekRequest(
                first,
                plan,
                Finishing((OrderKey(k, True, True),), 2, 1, (2, 0)),
                id_("u7"),
                ((Literal("w1", TEXT),),),
            )
            answer = (await env.compute.peek("c", request)).whole()
            assert [c.to_pylist() for c in answer.columns] == [[3, 12], [4, 1]]
            zero = PeekRequest(first, plan, None, id_("u7"), ((Literal("w0", TEXT),),))
            with pytest.raises(DatabaseError, match="division by zero") as error:
                await env.compute.peek("c", zero)
            assert error.value.sqlstate == "22012"

    run(scenario)


def test_cancelled_query_stops(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path) as env:
            env.compute.create_cluster("c", options={"threads": "1"})
            env.compute.create_replica("c", "r1")
            await env.create("u1")
            (one,) = table("u1")
            first = await env.write({"u1": [((n, "a"), 1) for n in range(1000)]})
            heavy = counts_of(Join((one,) * 4, ()))
            asked = asyncio.create_task(env.query("c", heavy, first))
            await until(lambda: any(s["ready"] for s in env.compute.clusters.status()))
            await asyncio.sleep(0.5)
            asked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asked
            assert await env.query("c", counts_of(one), first) == {("a", 1000): 1}

    run(scenario)


def test_peek_fails_while_row_has_error(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path) as env:
            await two_replicas(env)
            await env.create("u1")
            (one,) = table("u1")
            k = Column(0, INT4)
            relation = Map(one, (Call("divide(int4,int4)", (Literal(12, INT4), k), INT4),))
            schema = pa.schema([("k", pa.int32()), ("v", pa.string()), ("d", pa.int32())])
            await env.create("u4", schema=schema)
            first = await env.write({"u1": [((1, "a"), 1)]})
            await env.maintain(
                "c",
                "u8",
                relation,
                index_on("u7", 1, of=relation),
                SinkExport(id_("u4")),
                as_of=first,
            )
            assert await env.index_rows("c", "u7", relation, first) == {(1, "a", 12): 1}
            view = Get(id_("u4"), columns_of(relation))
            second = await env.write({"u1": [((0, "b"), 1)]})
            for ask in (env.index_rows("c", "u7", relation, second), env.query("c", view, second)):
                with pytest.raises(DatabaseError, match="division by zero"):
                    await ask
            # a dataflow over the view has the view's errors
            await env.maintain("c", "u6", view, index_on("u5", 1, of=view), as_of=second)
            with pytest.raises(DatabaseError, match="division by zero"):
                await env.index_rows("c", "u5", view, second)
            third = await env.write({"u1": [((0, "b"), -1)]})
            assert await env.index_rows("c", "u7", relation, third) == {(1, "a", 12): 1}
            assert await env.query("c", view, third) == {(1, "a", 12): 1}
            assert await env.index_rows("c", "u5", view, third) == {(1, "a", 12): 1}

    run(scenario)


def test_dropped_dataflows_leave_nothing_behind(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path) as env:
            await two_replicas(env)
            await env.create("u1")
            relation = counts_of(*table("u1"))
            first = await env.write({"u1": [((1, "a"), 1)]})
            held = env.storage.since(id_("u1"))
            for n in range(5):
                index = index_on(f"t{n}", 0, of=relation)
                await env.maintain("c", f"t10{n}", relation, index, as_of=first)
                assert await env.index_rows("c", f"t{n}", relation, first) == {("a", 1): 1}
                waiting = asyncio.create_task(env.compute.wait_upper(id_(f"t{n}"), 1 << 40))
                await asyncio.sleep(0)
                env.compute.drop_dataflow(id_(f"t10{n}"))
                with pytest.raises(UndefinedObject):
                    await waiting
                with pytest.raises(DatabaseError, match="does not exist"):
                    await env.index_rows("c", f"t{n}", relation, first)
            compute: Any = env.compute
            assert not compute._dataflows
            assert not compute._exporters
            assert not len(compute._feeds)
            assert not compute._peeks._pending
            assert not compute._uppers.waited_for()
            cluster = compute.clusters["c"]
            assert not cluster.history.dataflows
            assert not cluster.peeks
            await until(lambda: not any(s["dataflows"] for s in env.compute.clusters.status()))
            second = await env.write({"u1": [((1, "b"), 1)]})
            read = env.reads[id_("u1")]
            env.reads[id_("u1")] = await env.storage.downgrade_capability(read, second)
            assert env.storage.since(id_("u1")) == second > held

    run(scenario)


def test_replicas_read_batch_files(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path) as env:
            env.compute.create_cluster("c")
            env.compute.create_replica("c", "r1")
            await env.create("u1")
            await env.create("u9", schema=COUNT_SCHEMA)
            relation = counts_of(*table("u1"))
            first = await env.write({"u1": [((1, "a"), 1), ((2, "b"), 1)]})
            second = await env.write({"u1": [((2, "b"), -1)]})
            await env.storage.settle()
            third = await env.write({"u1": [((3, "c"), 1)]})
            # as of a time before some of the updates in files and in the tail
            exports = SinkExport(id_("u9")), index_on("u7", 0, of=relation)
            await env.maintain("c", "u8", relation, *exports, as_of=first)
            history: dict[int, Counter[Row]] = {
                first: Counter({("a", 1): 1, ("b", 1): 1}),
                second: Counter({("a", 1): 1}),
                third: Counter({("a", 1): 1, ("c", 1): 1}),
            }
            for time, rows in history.items():
                assert await env.index_rows("c", "u7", relation, time) == rows
                assert await env.shard_rows("u9", time) == rows
                assert await env.query("c", relation, time) == rows
            await env.storage.settle()
            (pid,) = await connected(env, 1)
            os.kill(pid, signal.SIGKILL)
            fourth = await env.write({"u1": [((4, "c"), 1)]})
            history[fourth] = Counter({("a", 1): 1, ("c", 2): 1})
            for time, rows in history.items():
                assert await env.shard_rows("u9", time) == rows
                assert await env.index_rows("c", "u7", relation, time) == rows

    run(scenario)


def test_shard_dropped_under_dataflow_is_harmless(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path) as env:
            await two_replicas(env)
            await env.create("u1", "u2")
            for shard in ("u8", "u9"):
                await env.create(shard, schema=COUNT_SCHEMA)
            first = await env.write({"u1": [((1, "a"), 1)], "u2": [((1, "a"), 1)]})
            for source, shard in (("u1", "u8"), ("u2", "u9")):
                relation = counts_of(*table(source))
                await env.maintain("c", f"{shard}0", relation, SinkExport(id_(shard)), as_of=first)
                assert await env.shard_rows(shard, first) == {("a", 1): 1}
            await env.storage.drop(id_("u1"))
            env.tables.remove(id_("u1"))
            pids = await connected(env)
            os.kill(pids[0], signal.SIGKILL)
            os.kill(pids[1], signal.SIGKILL)
            second = await env.write({"u2": [((2, "a"), 1)]})
            assert await env.shard_rows("u9", second) == {("a", 2): 1}
            env.compute.drop_dataflow(id_("u80"))

    run(scenario)


def test_a_view_of_constants_is_complete_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path) as env:
            await two_replicas(env)
            await env.create("u9", schema=COUNT_SCHEMA)
            relation = Constant(((("a", 1), 2),), (ColumnType(TEXT), ColumnType(INT8)))
            exports = SinkExport(id_("u9")), index_on("u7", 0, of=relation)
            await env.maintain("c", "u8", relation, *exports, as_of=5)
            assert await env.index_rows("c", "u7", relation, 1 << 50) == {("a", 1): 2}
            assert await env.shard_rows("u9", 1 << 50) == {("a", 1): 2}

    run(scenario)
