"""Shards as their users see them: create, append, read, listen, close and reopen."""

import asyncio
import errno
import os
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from foreshore.errors import (
    DuplicateObject,
    Fenced,
    InternalError,
    ObjectNotInPrerequisiteState,
    UndefinedObject,
)
from foreshore.ids import GlobalId
from foreshore.storage import record, wal
from foreshore.storage.capability import InvalidCapability
from foreshore.storage.controller import (
    Appended,
    ListenEvent,
    ShardWrite,
    SharedUpper,
    StorageController,
    UpperMismatch,
)
from foreshore.storage.epoch import FENCE, Fence
from foreshore.storage.fault import Indeterminate, Unwritable
from foreshore.update import update_schema
from tests.descriptors import open_below
from tests.harness import file_sizes
from tests.storage.harness import (
    ROWS,
    U1,
    U2,
    U3,
    abandon,
    append_at_once,
    put,
    reader,
    run,
    table,
    updates_of,
    write,
)
from tests.storage.harness import open_at as open_compacting

A, B = (1, "a"), (2, "b")


async def open_at(directory: Path) -> StorageController:
    """Open without compaction, so that a snapshot has only a tail."""
    return await open_compacting(directory, compacting=False)


def test_appends_are_readable_before_and_after_restart(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        read, _ = await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 5, (A, 3, 1), (B, 4, 2)))
        assert controller.upper(U1) == 5
        snapshot = controller.snapshot(read, 4)
        assert updates_of(snapshot.tail) == [(A, 3, 1), (B, 4, 2)]
        assert (snapshot.upper, snapshot.since, snapshot.schema) == (5, 0, ROWS)
        snapshot.release()
        await abandon(controller)

        controller = await open_at(tmp_path)
        assert controller.upper(U1) == 5
        snapshot = controller.snapshot(read, 4)  # the capability is durable
        assert updates_of(snapshot.tail) == [(A, 3, 1), (B, 4, 2)]
        await controller.close()

    run(main)


def test_many_rows_are_compressed_in_the_log(tmp_path: Path) -> None:
    updates = [((i, f"row {i % 7}"), 3, 1) for i in range(20_000)]

    def logged() -> int:
        return sum(file_sizes(tmp_path / "log", "*.log").values())

    async def main() -> None:
        controller = await open_at(tmp_path)
        read, _ = await controller.create(U1, ROWS)
        before = logged()
        appended = table(updates)
        await put(controller, ShardWrite(U1, 0, 5, appended))
        assert logged() - before < appended.nbytes // 3
        await abandon(controller)

        controller = await open_at(tmp_path)
        snapshot = controller.snapshot(read, 4)
        assert updates_of(snapshot.tail) == updates
        snapshot.release()
        await controller.close()

    run(main)


def test_updates_small_in_log_but_large_in_memory_become_batch(tmp_path: Path) -> None:
    count = 300_000
    columns = [pa.repeat(pa.scalar(value), count) for value in (7, "the same", 3, 1)]

    async def main() -> None:
        controller = await open_compacting(tmp_path, segment_bytes=4 << 20)
        read, _ = await controller.create(U1, ROWS)
        await put(controller, ShardWrite(U1, 0, 5, pa.table(columns, schema=update_schema(ROWS))))
        assert sum(file_sizes(tmp_path / "log", "*.log").values()) < 2 << 20
        async with asyncio.timeout(60):
            while controller._shards[U1].tail:
                await controller._compacter.progress()
        snapshot = controller.snapshot(read, 4)
        assert [batch.rows for batch in controller._shards[U1].batches] == [1]
        assert (await snapshot.rows())["__diff"].to_pylist() == [count]
        snapshot.release()
        await controller.close()

    run(main)


def test_an_append_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        await controller.create(U1, ROWS)
        await controller.create(U2, ROWS)
        await put(controller, write(U1, 0, 5))
        outcome = await controller.append([write(U2, 0, 1, (A, 0, 1)), write(U1, 0, 6)])
        assert outcome == UpperMismatch(U1, 5)
        assert (controller.upper(U1), controller.upper(U2)) == (5, 0)
        assert await controller.append([write(U1, 6, 7)]) == UpperMismatch(U1, 5)
        await controller.close()

    run(main)


def test_concurrent_appends_at_same_upper_have_one_winner(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        await controller.create(U1, ROWS)
        outcomes = await asyncio.gather(
            controller.append([write(U1, 0, 1, (A, 0, 1))]),
            controller.append([write(U1, 0, 2, (B, 0, 1))]),
            controller.append([write(U1, 1, 3, (B, 2, 1))]),
        )
        assert list(outcomes) == [Appended(), UpperMismatch(U1, 1), Appended()]
        assert controller.upper(U1) == 3
        await controller.close()

    run(main)


def test_updates_outside_their_interval_or_of_another_shape_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        await controller.create(U1, ROWS)
        with pytest.raises(InternalError, match="updates at 5 to 5"):
            await controller.append([write(U1, 0, 5, (A, 5, 1))])
        other = pa.table({"x": [1], "__time": [0], "__diff": [1]})
        with pytest.raises(InternalError, match="instead of"):
            await controller.append([ShardWrite(U1, 0, 5, other)])
        nulls = pa.table(
            [pa.array([1]), pa.array(["x"]), pa.array([0]), pa.array([None], pa.int64())],
            schema=update_schema(ROWS),
        )
        with pytest.raises(InternalError, match="null"):
            await controller.append([ShardWrite(U1, 0, 5, nulls)])
        assert controller.upper(U1) == 0
        await put(controller, write(U1, 0, 1, (A, 0, 1)))
        await controller.close()

    run(main)


def test_listener_gets_every_update_once_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 5, (A, 2, 1), (B, 4, 1)))
        heard: list[ListenEvent] = []
        late: list[ListenEvent] = []
        listen = controller.listen(U1, 3, heard.append)
        controller.listen(U1, 9, late.append)
        await put(controller, write(U1, 5, 8))
        controller.advance([U1], 9)
        await put(controller, write(U1, 9, 10, (A, 9, -1)))
        listen.cancel()
        await put(controller, write(U1, 10, 11, (A, 10, 1)))
        intervals = [(e.lower, e.upper) for e in heard]
        assert intervals == [(3, 5), (5, 8), (8, 9), (9, 10)]
        assert updates_of(e.updates for e in heard if e.updates is not None) == [
            (B, 4, 1),
            (A, 9, -1),
        ]
        assert [(e.lower, e.upper) for e in late] == [(9, 10), (10, 11)]
        await controller.close()

    run(main)


def test_append_from_listener_keeps_order_for_others(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        for id in (U1, U2):
            await controller.create(id, ROWS)
        heard: list[ListenEvent] = []

        def acting(event: ListenEvent) -> None:
            assert controller.upper(U2) >= event.upper  # what came with it is there
            controller.advance([U1], event.upper + 1 if event.upper % 2 else 0)

        def failing(event: ListenEvent) -> None:
            raise ValueError("a fault of the listener")

        faults: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, what: faults.append(what))
        controller.listen(U1, 0, acting)
        controller.listen(U1, 0, failing)
        controller.listen(U1, 0, heard.append)
        controller.advance([U2], 0)
        await put(controller, write(U1, 0, 1, (A, 0, 1)), write(U2, 0, 2))
        await put(controller, write(U1, 2, 3, (B, 2, 1)), write(U2, 2, 4))
        assert [(e.lower, e.upper) for e in heard] == [(0, 1), (1, 2), (2, 3), (3, 4)]
        assert updates_of(e.updates for e in heard if e.updates) == [(A, 0, 1), (B, 2, 1)]
        assert len(faults) == 1
        await controller.close()

    run(main)


def test_shared_upper_advances_all_attached_shards(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        for id in (U1, U2):
            await controller.create(id, ROWS)
        shared = SharedUpper()
        heard: list[ListenEvent] = []
        listen = controller.listen(U1, 0, heard.append)
        for id in (U1, U2):
            controller.share_upper(id, shared)
        shared.advance(5)
        assert [controller.upper(id) for id in (U1, U2)] == [5, 5]
        assert not heard  # nothing has changed, and nobody waits
        shared.hurry(4)
        assert [(e.lower, e.upper) for e in heard] == [(0, 5)]
        late: list[ListenEvent] = []
        controller.listen(U2, 0, late.append)
        appending = asyncio.create_task(controller.append([write(U1, 5, 6, (A, 5, 1))]))
        await asyncio.sleep(0)
        shared.advance(9)
        shared.notify()
        assert [controller.upper(id) for id in (U1, U2)] == [5, 9]  # one has something in flight
        assert await appending == Appended()
        assert controller.upper(U1) == 9
        assert [(e.lower, e.upper) for e in heard] == [(0, 5), (5, 6), (6, 9)]
        assert await controller.append([write(U2, 8, 10)]) == UpperMismatch(U2, 9)
        controller.unshare_upper(U1)
        listen.cancel()
        shared.hurry(12)
        shared.advance(12)
        assert [controller.upper(id) for id in (U1, U2)] == [9, 12]
        assert [(e.lower, e.upper) for e in late] == [(0, 5), (5, 9), (9, 12)]
        await controller.close()

    run(main)


def test_listens_hear_of_quiet_advances_whatever_happens_to_their_shard(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        shared = SharedUpper()
        heard: list[ListenEvent] = []
        for id in (U1, U2):
            await controller.create(id, ROWS)
            controller.share_upper(id, shared)
        controller.listen(U1, 0, heard.append)
        shared.advance(5)
        late: list[ListenEvent] = []
        controller.listen(U1, 5, late.append)
        shared.hurry(4)
        assert [(e.lower, e.upper) for e in heard] == [(0, 5)]  # although another began at 5
        shared.hurry(1 << 50)  # for a subscription as of next year, say
        shared.advance(6)
        assert [e.upper for e in late] == [6]
        shared.advance(6_000)
        shared.advance(6_001)
        assert [e.upper for e in late] == [6, 6_000]
        controller.unshare_upper(U1)
        for events in (heard, late):
            assert [(e.lower, e.upper) for e in events][-1:] == [(6_000, 6_001)]
        await controller.close()

    run(main)


def test_advance_waits_for_writes_in_flight(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        read, _ = await controller.create(U1, ROWS)
        heard: list[ListenEvent] = []
        controller.listen(U1, 0, heard.append)
        appending = asyncio.create_task(controller.append([write(U1, 0, 1, (A, 0, 1))]))
        await asyncio.sleep(0)
        controller.advance([U1], 7)
        assert controller.upper(U1) == 0
        assert await appending == Appended()
        assert controller.upper(U1) == 7
        assert [(e.lower, e.upper, e.updates is None) for e in heard] == [
            (0, 1, False),
            (1, 7, True),
        ]
        assert await controller.append([write(U1, 1, 8)]) == UpperMismatch(U1, 7)
        controller.snapshot(read, 6).release()
        await controller.close()

        controller = await open_at(tmp_path)
        assert controller.upper(U1) == 7  # a clean end writes it
        await controller.close()

    run(main)


@pytest.mark.parametrize("compacting", [False, True])
def test_dropped_id_is_never_reused(tmp_path: Path, compacting: bool) -> None:
    async def main() -> None:
        controller = await open_compacting(tmp_path, compacting=compacting)
        read, _ = await controller.create(U1, ROWS)
        with pytest.raises(DuplicateObject):
            await controller.create(U1, ROWS)
        await controller.create(U2, ROWS)
        await put(controller, write(U1, 0, 1, (A, 0, 1)))
        await controller.drop(U1)
        for _ in range(3):
            with pytest.raises(UndefinedObject):
                controller.upper(U1)
            with pytest.raises(UndefinedObject):
                controller.snapshot(read, 0)
            with pytest.raises(UndefinedObject):
                await controller.append([write(U1, 1, 2)])
            with pytest.raises(DuplicateObject):
                await controller.create(U1, ROWS)
            assert controller.ids() == [U2]
            if compacting:
                await controller.settle()
            await controller.close()
            controller = await open_compacting(tmp_path, compacting=compacting)
        await controller.close()

    run(main)


def test_reads_outside_held_times_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        read, written = await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 10, (A, 2, 1)))
        with pytest.raises(ObjectNotInPrerequisiteState):
            controller.snapshot(read, 10)
        later = await controller.downgrade_capability(read, 5)
        assert controller.since(U1) == 5
        with pytest.raises(ObjectNotInPrerequisiteState):
            controller.snapshot(later, 4)
        with pytest.raises(InvalidCapability, match="downgraded"):
            controller.snapshot(read, 7)
        with pytest.raises(ObjectNotInPrerequisiteState):
            controller.listen(U1, 4, lambda event: None)
        controller.snapshot(later, 5).release()
        with pytest.raises(InvalidCapability):
            await controller.downgrade_capability(read, 6)
        await controller.drop_capability(later)
        with pytest.raises(InvalidCapability, match="not valid"):
            controller.snapshot(later, 7)
        with pytest.raises(InvalidCapability):
            await controller.drop_capability(later)
        await controller.drop_capability(written)
        await controller.close()

    run(main)


def test_since_is_the_meet_of_the_live_read_capabilities(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        one, _ = await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 100))
        two = await controller.clone_capability(one)
        assert two.token != one.token
        one = await controller.downgrade_capability(one, 10)
        assert controller.since(U1) == 0
        two = await controller.downgrade_capability(two, 20)
        assert controller.since(U1) == 10
        await put(controller, write(U1, 100, 101))
        await abandon(controller)

        controller = await open_at(tmp_path)
        assert controller.since(U1) == 10
        await controller.drop_capability(one)
        assert controller.since(U1) == 20
        acquired = await reader(controller, U1)
        assert acquired.frontier == 20
        with pytest.raises(InvalidCapability):  # of the environment before
            controller.snapshot(two, 50)
        controller.snapshot(acquired, 50).release()
        await controller.close()

    run(main)


def test_fenced_environment_fails_at_next_write(tmp_path: Path) -> None:
    async def main() -> None:
        older = await open_at(tmp_path)
        await older.create(U1, ROWS)
        await put(older, write(U1, 0, 1, (A, 0, 1)))
        newer = await open_at(tmp_path)
        with pytest.raises(Fenced):
            await older.append([write(U1, 1, 2, (B, 1, 1))])
        with pytest.raises(Fenced):
            await older.create(U3, ROWS)
        await put(newer, write(U1, 1, 2, (A, 1, 1)))
        await abandon(older)
        await newer.close()
        again = await open_at(tmp_path)
        snapshot = again.snapshot(await reader(again, U1), 1)
        assert updates_of(snapshot.tail) == [(A, 0, 1), (A, 1, 1)]
        await again.close()

    run(main)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files cannot be listed")
def test_close_after_failure_closes_files(tmp_path: Path) -> None:
    async def failing() -> None:
        raise OSError("the disk is gone")

    async def main() -> None:
        storage = await open_at(tmp_path)
        await storage.create(U1, ROWS)
        assert open_below(tmp_path)
        storage._tasks.insert(0, asyncio.create_task(failing()))
        with pytest.raises(OSError, match="the disk is gone"):
            await storage.close()
        assert not open_below(tmp_path)

    run(main)


def test_last_epoch_wins_among_concurrent_opens(tmp_path: Path) -> None:
    async def main() -> None:
        first = await open_at(tmp_path)
        await first.create(U1, ROWS)
        await first.close()
        written = 0
        for _ in range(5):
            opened = await asyncio.gather(
                *(open_at(tmp_path) for _ in range(4)), return_exceptions=True
            )
            controllers = []
            for outcome in opened:
                if isinstance(outcome, BaseException):
                    assert isinstance(outcome, Fenced), outcome
                else:
                    controllers.append(outcome)
            controllers.sort(key=lambda controller: controller.epoch)
            for controller in controllers[:-1]:
                with pytest.raises(Fenced):
                    await controller.append([write(U1, written, written + 1)])
            await put(controllers[-1], write(U1, written, written + 1, (A, written, 1)))
            written += 1
            for controller in controllers:
                await abandon(controller)
        last = await open_at(tmp_path)
        snapshot = last.snapshot(await reader(last, U1), written - 1)
        assert updates_of(snapshot.tail) == [(A, time, 1) for time in range(written)]
        await last.close()

    run(main)


def test_writes_of_one_call_share_record(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        for id in (U1, U2, U3):
            await controller.create(id, ROWS)
        segment = controller._wal._segment
        assert segment is not None
        before = segment.records
        await put(controller, *(write(id, 0, 1, (A, 0, 1)) for id in (U1, U2, U3)))
        assert segment.records == before + 1
        await asyncio.gather(
            *(controller.append([write(id, 1, 2, (A, 1, 1))]) for id in (U1, U2, U3))
        )
        assert segment.records <= before + 3
        await controller.close()

    run(main)


def test_chunked_table_is_recovered_whole(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        await controller.create(U1, ROWS)
        chunks = pa.concat_tables([table([((i, None), i, 1)]) for i in range(50)])
        await put(controller, ShardWrite(U1, 0, 50, chunks.slice(10, 30)))
        await abandon(controller)
        controller = await open_at(tmp_path)
        tail = controller.snapshot(await reader(controller, U1), 49).tail
        assert updates_of(tail) == [((i, None), i, 1) for i in range(10, 40)]
        await controller.close()

    run(main)


def test_cancelled_create_still_takes_id(tmp_path: Path) -> None:
    """What is in the log already comes true: a second shard of the id would be damage."""

    async def main() -> None:
        controller = await open_at(tmp_path)
        creating = asyncio.create_task(controller.create(U1, ROWS))
        await asyncio.sleep(0)
        creating.cancel()
        await asyncio.gather(creating, return_exceptions=True)
        assert creating.cancelled()
        with pytest.raises(DuplicateObject):
            await controller.create(U1, ROWS)
        await controller.create(U2, ROWS)
        assert controller.upper(U1) == 0
        await abandon(controller)
        controller = await open_at(tmp_path)
        assert sorted(controller.ids()) == [U1, U2]
        await controller.close()

    run(main)


def test_log_continues_after_cancelled_seal(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        await controller.create(U1, ROWS)
        settling = asyncio.create_task(controller.settle())
        await asyncio.sleep(0)
        settling.cancel()
        await put(controller, write(U1, 0, 5, (A, 3, 1)))
        assert settling.cancelled()
        await put(controller, write(U1, 5, 6, (B, 5, 1)))
        assert controller.upper(U1) == 6
        await controller.close()

    run(main)


def test_failed_fence_leaves_no_open_file(tmp_path: Path) -> None:
    Fence(tmp_path / FENCE, 2).close()
    with pytest.raises(Fenced):
        Fence(tmp_path / FENCE, 1)
    assert not open_below(tmp_path)


def test_log_that_cannot_be_made_durable_is_told_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        await controller.create(U1, ROWS)
        await abandon(controller)
        await controller.consensus.close()

        def fail(path: Path) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))

        with monkeypatch.context() as patch:
            patch.setattr(wal, "sync_file", fail)
            with pytest.raises(Indeterminate, match="Input/output error"):
                await open_at(tmp_path)
        controller = await open_at(tmp_path)
        assert U1 in controller.ids()
        await controller.close()

    run(main)


def test_write_that_cannot_be_encoded_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encode = record._encode_updates

    def failing(updates: pa.Table, *rest: Any) -> Any:
        if "bad" in updates.column("v").to_pylist():
            raise OverflowError("more than 2 GiB")
        return encode(updates, *rest)

    def one(id: GlobalId, lower: int, text: str) -> ShardWrite:
        return ShardWrite(id, lower, lower + 1, table([((1, text), lower, 1)]))

    async def main(*, at_once: bool) -> None:
        controller = await open_at(tmp_path / str(at_once))
        for id in (U1, U2, U3):
            await controller.create(id, ROWS)
        append = append_at_once if at_once else StorageController.append
        monkeypatch.setattr(record, "_encode_updates", failing)
        results = await asyncio.gather(
            append(controller, [one(U3, 0, "good")]),
            append(controller, [one(U1, 0, "bad"), one(U2, 0, "good")]),
            append(controller, [one(U1, 1, "later")]),
            append(controller, [one(U3, 1, "good")]),
            return_exceptions=True,
        )
        monkeypatch.undo()
        assert [type(each) for each in results] == [Appended, Unwritable, Unwritable, Appended]
        for lower in (0, 1):
            assert await append(controller, [one(U1, lower, "good")]) == Appended()
        assert await append(controller, [one(U2, 0, "good")]) == Appended()
        await controller.close()
        controller = await open_at(tmp_path / str(at_once))
        assert [controller.upper(id) for id in (U1, U2, U3)] == [2, 1, 2]
        await controller.close()

    for at_once in (False, True):
        run(partial(main, at_once=at_once))


def test_write_that_does_not_fit_its_shard_stops_no_other(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        for id in (U1, U2):
            await controller.create(id, ROWS)
        other = update_schema(pa.schema([pa.field("another name", pa.int64())]))
        with pytest.raises(Unwritable, match="another name"):
            await controller.append([ShardWrite(U1, 0, 1, other.empty_table())])
        for id in (U1, U2):
            await put(controller, write(id, 0, 1, ((1, "a"), 0, 1)))
        await controller.close()

    run(main)
