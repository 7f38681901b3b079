"""Capabilities as holders see them: used, passed on, dropped, lost and acquired again."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest
from msgspec.structs import replace

from foreshore.clock import ManualClock
from foreshore.errors import (
    DuplicateObject,
    InternalError,
    ObjectNotInPrerequisiteState,
    UndefinedObject,
)
from foreshore.failpoint import arm
from foreshore.storage.capability import ExpiredCapability, InvalidCapability
from foreshore.storage.controller import (
    ListenEvent,
    ReadCapability,
    StorageController,
    UpperMismatch,
    WriteCapability,
)
from foreshore.storage.expiry import MAX_STEP_MS
from foreshore.update import EMPTY
from tests.storage.harness import ROWS, U1, U2, abandon, open_at, put, run, table, updates_of, write

A, B = (1, "a"), (2, "b")
LEASE_MS = 10_000


def records(controller: StorageController) -> int:
    """Return the number of records in the log's segment."""
    segment = controller._wal._segment
    assert segment is not None
    return segment.records


def pass_time(controller: StorageController, clock: ManualClock, ms: int) -> None:
    """Let time pass for a server that looks at the clock all the time."""
    for _ in range(ms // 1_000):
        clock.advance(1_000)
        controller.expire()


def test_unknown_capabilities_are_refused(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        read, written = await controller.create(U1, ROWS)
        other, _ = await controller.create(U2, ROWS)
        await put(controller, write(U1, 0, 10), write(U2, 0, 10))
        held = await controller.downgrade_capability(read, 5)
        clone = await controller.clone_capability(held)
        await controller.drop_capability(clone)
        for invalid in (
            ReadCapability("1-999", U1, 5),  # forged
            ReadCapability("", U1, 5),
            ReadCapability(other.token, U1, 5),  # another shard's
            ReadCapability(written.token, U1, 5),  # another right
            ReadCapability(held.token, U1, 4),  # more than is held
            read,  # stale
            clone,  # dropped
        ):
            with pytest.raises(InvalidCapability):
                controller.snapshot(invalid, 7)
            with pytest.raises(InvalidCapability):
                controller.subscribe_at(invalid, 7, lambda event: None)
            with pytest.raises(InvalidCapability):
                await controller.changes(invalid, 7, 8)
            with pytest.raises(InvalidCapability):
                await controller.clone_capability(invalid)
            with pytest.raises(InvalidCapability):
                await controller.downgrade_capability(invalid, 8)
            with pytest.raises(InvalidCapability):
                await controller.drop_capability(invalid)
            with pytest.raises(InvalidCapability):
                controller.heartbeat([held, invalid])
        for token in ("1-999", "", read.token):
            with pytest.raises(InvalidCapability):
                await controller.append_at(WriteCapability(token, U1, 10), table([]), 11)
        assert (controller.since(U1), controller.upper(U1)) == (5, 10)
        await controller.close()

    run(main)


def test_write_with_ended_capability_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        controller = await open_at(tmp_path, clock=clock)
        read, written = await controller.create(U1, ROWS)
        _, other = await controller.create(U2, ROWS)
        fit = replace(write(U2, 0, 10, (B, 1, 1)), token=other.token)
        good = write(U1, 0, 10, (A, 1, 1))
        dropped = await controller.clone_capability(written)
        await controller.drop_capability(dropped)
        stale = await controller.clone_capability(written)
        stale = await controller.downgrade_capability(stale, 5)  # and yet is to write from 0 on
        expired = await controller.clone_capability(written, LEASE_MS)
        pass_time(controller, clock, LEASE_MS)
        for token in ("1-999", "", read.token, other.token, dropped.token, stale.token):
            with pytest.raises(InvalidCapability):
                await controller.append([fit, replace(good, token=token)])
            with pytest.raises(InvalidCapability):
                controller.advance([U1], 10, token=token)
        with pytest.raises(ExpiredCapability):
            await controller.append([fit, replace(good, token=expired.token)])
        with pytest.raises(ExpiredCapability):
            controller.advance([U1], 10, token=expired.token)
        assert (controller.upper(U1), controller.upper(U2)) == (0, 0)  # all of a call or nothing
        await put(controller, fit, replace(good, token=written.token))
        controller.advance([U1], 20, token=stale.token)
        assert (controller.upper(U1), controller.upper(U2)) == (20, 10)
        assert updates_of(controller.snapshot(read, 19).tail) == [(A, 1, 1)]
        await controller.close()

        controller = await open_at(tmp_path)
        await controller.acquire_capabilities([U1])  # which ends those of the one before
        with pytest.raises(InvalidCapability):
            await controller.append([replace(write(U1, 20, 30), token=written.token)])
        await controller.close()

    run(main)


def test_tokens_are_unique(tmp_path: Path) -> None:
    async def main() -> None:
        seen: set[str] = set()
        for _ in range(3):
            controller = await open_at(tmp_path)
            if not controller.exists(U1):
                await controller.create(U1, ROWS)
            read, written = (await controller.acquire_capabilities([U1]))[U1]
            clones = [await controller.clone_capability(read) for _ in range(3)]
            tokens = {read.token, written.token, *(clone.token for clone in clones)}
            assert len(tokens) == 5
            assert not tokens & seen
            seen |= tokens
            await abandon(controller)

    run(main)


def test_frontier_of_capability_only_advances(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        read, written = await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 10))
        read = await controller.downgrade_capability(read, 5)
        written = await controller.downgrade_capability(written, 20)
        with pytest.raises(ObjectNotInPrerequisiteState, match="cannot go back"):
            await controller.downgrade_capability(read, 4)
        with pytest.raises(ObjectNotInPrerequisiteState, match="cannot go back"):
            await controller.downgrade_capability(written, 19)
        assert await controller.downgrade_capability(read, 5) == read
        assert (controller.since(U1), controller.upper(U1)) == (5, 20)
        await controller.close()

    run(main)


_CLONE = """
import asyncio, json, os, sys
from dataclasses import asdict
from pathlib import Path
from tests.storage.harness import ROWS, U1, open_at, put, write

async def main():
    controller = await open_at(Path(sys.argv[1]))
    read, _ = await controller.create(U1, ROWS)
    await put(controller, write(U1, 0, 10, ((1, "a"), 3, 1)))
    read = await controller.downgrade_capability(read, 4)
    clone = await controller.clone_capability(read, lease_ms=10_000)
    print(json.dumps(asdict(clone)), flush=True)
    os._exit(9)

asyncio.run(main())
"""


def test_lease_passed_to_other_process_outlives_its_own(tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-P", "-c", _CLONE, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        stdout=subprocess.PIPE,
        check=False,
    )
    assert made.returncode == 9

    async def main() -> None:
        handed_on = ReadCapability(**json.loads(made.stdout))
        controller = await open_at(tmp_path)
        own, _ = (await controller.acquire_capabilities([U1]))[U1]
        own = await controller.downgrade_capability(own, 8)
        assert controller.since(U1) == handed_on.frontier == 4
        snapshot = controller.snapshot(handed_on, 4)
        assert updates_of(snapshot.tail) == [(A, 3, 1)]
        snapshot.release()
        copy = ReadCapability(**json.loads(json.dumps(asdict(handed_on))))
        await controller.drop_capability(copy)  # whoever presents it has it
        assert controller.since(U1) == 8
        with pytest.raises(InvalidCapability):
            controller.snapshot(handed_on, 9)
        await controller.close()

    run(main)


def test_many_downgrades_take_one_record(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path, compacting=False)
        read, _ = await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 1000))
        clones = [await controller.clone_capability(read) for _ in range(20)]
        before = records(controller)
        for frontier in range(1, 50):
            read = await controller.downgrade_capability(read, frontier)
            clones = [await controller.downgrade_capability(c, frontier) for c in clones]
        await controller.drop_capability(clones.pop())
        await controller.confirm()
        assert records(controller) == before + 1
        await abandon(controller)
        controller = await open_at(tmp_path)
        assert controller.since(U1) == 49
        await controller.close()

    run(main)


def test_remaining_capability_holds_after_restart(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path, compacting=False)
        read, _ = await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 10))
        cloning = asyncio.create_task(controller.clone_capability(read))
        await asyncio.sleep(0)  # it is on its way to the log, and so is the downgrade
        await controller.downgrade_capability(read, 7)
        clone = await cloning
        assert (clone.frontier, controller.since(U1)) == (0, 0)
        await abandon(controller)
        controller = await open_at(tmp_path)
        assert controller.since(U1) == 0
        controller.snapshot(clone, 0).release()
        await controller.close()

    run(main)


def test_lease_lasts_while_heartbeats_arrive(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        controller = await open_at(tmp_path, clock=clock, compacting=False)
        own, _ = await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 100, (A, 3, 1)))
        lease = await controller.clone_capability(own, LEASE_MS)
        lease = await controller.downgrade_capability(lease, 10)
        twin = await controller.clone_capability(lease)  # the clone of a lease is one
        own = await controller.downgrade_capability(own, 50)
        before = records(controller)
        for _ in range(5):
            pass_time(controller, clock, LEASE_MS - 1_000)
            controller.heartbeat([lease, twin, own])
        await asyncio.sleep(0.01)
        assert records(controller) <= before + 1  # the downgrades
        assert controller.since(U1) == 10
        pass_time(controller, clock, LEASE_MS - 1_000)
        reading = controller.snapshot(lease, 10)
        controller.heartbeat([twin])
        pass_time(controller, clock, 1_000)
        for use in _uses(controller, lease):
            with pytest.raises(ExpiredCapability, match="has expired"):
                use()
        with pytest.raises(ExpiredCapability):
            await controller.clone_capability(lease)
        assert controller.since(U1) == 10  # the twin's
        pass_time(controller, clock, LEASE_MS)
        assert controller.since(U1) == 50
        assert updates_of(reading.tail) == [(A, 3, 1)]  # what was begun is whole
        reading.release()
        controller.snapshot(own, 50).release()
        await controller.confirm()
        await abandon(controller)

        controller = await open_at(tmp_path, clock=clock)
        assert controller.since(U1) == 50
        with pytest.raises(InvalidCapability):
            controller.snapshot(lease, 60)
        again, _ = (await controller.acquire_capabilities([U1], LEASE_MS))[U1]
        assert again.frontier == 50
        await controller.close()

    run(main)


def _uses(controller: StorageController, read: ReadCapability) -> list[Callable[[], object]]:
    return [
        lambda: controller.snapshot(read, 60),
        lambda: controller.subscribe_at(read, 60, lambda event: None),
        lambda: controller.heartbeat([read]),
    ]


def test_lease_expires_without_heartbeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("foreshore.storage.grants.TICK_SECONDS", 0.01)

    async def main() -> None:
        clock = ManualClock()
        controller = await open_at(tmp_path, clock=clock)
        read, _ = await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 10))
        await controller.clone_capability(read, 2_000)
        await controller.downgrade_capability(read, 5)
        assert controller.since(U1) == 0
        clock.advance(2_000)
        for _ in range(5_000):
            if controller.since(U1) == 5:
                break
            await asyncio.sleep(0.01)
        assert controller.since(U1) == 5
        await controller.close()

    run(main)


def test_clock_jumps_and_stalls_do_not_end_lease(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock(10**12)
        controller = await open_at(tmp_path, clock=clock)
        read, _ = await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 10))
        lease = await controller.clone_capability(read, LEASE_MS)
        await controller.downgrade_capability(read, 9)
        for jump in (3_600_000, -7_200_000, 86_400_000, -1):
            clock.advance(jump)
            controller.expire()
            assert controller.since(U1) == 0
            controller.heartbeat([lease])
        clock.advance(-3_600_000)
        controller.expire()
        pass_time(controller, clock, LEASE_MS - 1_000)  # backward jumps do not prolong it
        assert controller.since(U1) == 0
        pass_time(controller, clock, 1_000)
        assert controller.since(U1) == 9
        assert MAX_STEP_MS < LEASE_MS
        await controller.close()

    run(main)


def test_new_environment_restarts_leases_and_ends_other_capabilities(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        controller = await open_at(tmp_path, clock=clock)
        read, written = await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 10))
        lease = await controller.clone_capability(read, LEASE_MS)
        pass_time(controller, clock, LEASE_MS - 1_000)
        await abandon(controller)

        clock.advance(-3_600_000)  # a machine with another clock
        controller = await open_at(tmp_path, clock=clock)
        own, _ = (await controller.acquire_capabilities([U1]))[U1]
        await controller.downgrade_capability(own, 8)
        pass_time(controller, clock, LEASE_MS - 1_000)
        controller.snapshot(lease, 0).release()
        with pytest.raises(InvalidCapability):
            controller.snapshot(read, 0)
        with pytest.raises(InvalidCapability):
            await controller.append_at(written, table([]), 11)
        pass_time(controller, clock, 1_000)
        with pytest.raises(ExpiredCapability):
            controller.snapshot(lease, 9)
        assert controller.since(U1) == 8
        await controller.close()

    run(main)


def test_expired_frontier_can_be_acquired_again_but_dropped_cannot(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        controller = await open_at(tmp_path, clock=clock)
        read, written = await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 10))
        read = await controller.downgrade_capability(read, 4)
        lease = await controller.clone_capability(read, LEASE_MS)
        writing = await controller.clone_capability(written, LEASE_MS)
        await controller.drop_capability(read)
        await controller.drop_capability(written)
        pass_time(controller, clock, LEASE_MS)  # nobody holds anything
        assert (controller.since(U1), controller.upper(U1)) == (4, 10)
        for lost in (lease, writing):
            with pytest.raises(ExpiredCapability):
                await controller.drop_capability(lost)
        read, written = (await controller.acquire_capabilities([U1]))[U1]
        assert (read.frontier, written.frontier) == (4, 10)
        written_on = await controller.append_at(written, table([(A, 10, 1)]), 12)
        assert isinstance(written_on, WriteCapability)
        await controller.drop_capability(written_on)
        await controller.drop_capability(read)
        assert (controller.since(U1), controller.upper(U1)) == (EMPTY, EMPTY)
        for _ in range(2):
            read, written = (await controller.acquire_capabilities([U1]))[U1]
            assert (read.frontier, written.frontier) == (EMPTY, EMPTY)
            with pytest.raises(InvalidCapability):
                controller.snapshot(read, 11)
            with pytest.raises(InvalidCapability):
                await controller.append_at(written, table([]), EMPTY)
            await abandon(controller)
            controller = await open_at(tmp_path)
        await controller.drop(U1)
        read, written = (await controller.acquire_capabilities([U1]))[U1]
        assert (read.frontier, written.frontier) == (EMPTY, EMPTY)
        with pytest.raises(UndefinedObject):
            controller.snapshot(read, 11)
        with pytest.raises(UndefinedObject):
            await controller.acquire_capabilities([U2])  # never bound
        await controller.close()

    run(main)


@pytest.mark.parametrize("leave", ["close", "abandon", "settle"])
def test_the_life_of_an_id(tmp_path: Path, leave: str) -> None:
    """Unbound, since = upper, known in between, upper = {}, since = {}, dropped: over restarts."""

    async def main() -> None:
        controller = await open_at(tmp_path)
        read = ReadCapability("1-1", U1, 0)

        async def again() -> tuple[ReadCapability, WriteCapability]:
            nonlocal controller
            if leave == "settle":
                await controller.settle()
            await (abandon(controller) if leave == "abandon" else controller.close())
            controller = await open_at(tmp_path)
            return (await controller.acquire_capabilities([U1]))[U1]

        for use in (
            lambda: controller.since(U1),
            lambda: controller.upper(U1),
            lambda: controller.snapshot(read, 0),
            lambda: controller.subscribe_at(read, 0, lambda event: None),
        ):
            with pytest.raises(UndefinedObject, match='"u1" does not exist'):
                use()

        read, written = await controller.create(U1, ROWS)
        read, written = await again()
        assert read.frontier == written.frontier == controller.since(U1) == controller.upper(U1)
        heard: list[ListenEvent] = []
        following = controller.subscribe_at(read, 0, heard.append).task
        assert following is not None
        await asyncio.sleep(0.01)
        assert heard == []  # it may block
        with pytest.raises(ObjectNotInPrerequisiteState):
            controller.snapshot(read, 0)

        moved = await controller.append_at(written, table([(A, 0, 1), (B, 4, 1)]), 5)
        assert isinstance(moved, WriteCapability)
        await following
        assert [(event.lower, event.upper) for event in heard] == [(0, 5)]
        assert (moved.frontier, controller.upper(U1)) == (5, 5)
        read = await controller.downgrade_capability(read, 2)
        await controller.confirm()
        read, written = await again()
        assert (read.frontier, written.frontier) == (2, 5)

        controller.listen(U1, 5, heard.append)
        closed = await controller.append_at(written, table([(A, 9, -1)]), EMPTY)
        assert isinstance(closed, WriteCapability)
        assert (heard[-1].upper, controller.upper(U1)) == (EMPTY, EMPTY)
        assert await controller.append([write(U1, 10, 11)]) == UpperMismatch(U1, EMPTY)
        controller.advance([U1], 100)
        read, written = await again()
        assert (controller.since(U1), controller.upper(U1)) == (2, EMPTY)
        assert written.frontier == EMPTY
        for time, rows in ((2, [A]), (8, [A, B]), (9, [B]), (10**15, [B])):
            snapshot = controller.snapshot(read, time)
            found = (await snapshot.rows()).to_pydict()
            assert sorted(zip(found["k"], found["v"], strict=True)) == rows
            snapshot.release()

        await controller.drop_capability(read)
        assert controller.since(U1) == EMPTY
        read, written = await again()
        assert (controller.since(U1), controller.upper(U1)) == (EMPTY, EMPTY)
        with pytest.raises(ObjectNotInPrerequisiteState):
            controller.listen(U1, 9, heard.append)

        await controller.drop(U1)
        read, written = await again()
        assert (read.frontier, written.frontier) == (EMPTY, EMPTY)
        with pytest.raises(DuplicateObject):
            await controller.create(U1, ROWS)
        with pytest.raises(UndefinedObject):
            controller.upper(U1)
        await controller.close()

    run(main)


def test_append_at_accepts_only_times_between_frontiers(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path, compacting=False)
        read, first = await controller.create(U1, ROWS)
        second = await controller.clone_capability(first)
        for updates, frontier in (
            (table([(A, 0, 1)]), 0),  # equal frontiers leave no time for any
            (table([]), 0),
            (table([(A, 5, 1)]), 5),  # too late
            (table([(A, -1, 1)]), 5),  # too early
        ):
            with pytest.raises(InternalError):
                await controller.append_at(first, updates, frontier)
        # INSERT, UPDATE and DELETE are one call.
        moved = await controller.append_at(first, table([(A, 1, 1), (A, 2, -1), (B, 2, 1)]), 5)
        assert moved == WriteCapability(first.token, U1, 5)
        with pytest.raises(InvalidCapability, match="downgraded to 5"):
            await controller.append_at(first, table([]), 6)
        assert await controller.append_at(second, table([]), 3) == UpperMismatch(U1, 5)
        racing = [
            WriteCapability(moved.token, U1, 5),
            await controller.downgrade_capability(second, 5),
        ]
        outcomes = await asyncio.gather(
            *(controller.append_at(each, table([(A, 5, 1)]), 6) for each in racing)
        )
        assert sorted(map(type, outcomes), key=str) == sorted(
            [UpperMismatch, WriteCapability], key=str
        )
        snapshot = controller.snapshot(read, 5)
        assert updates_of(snapshot.tail) == [(A, 1, 1), (A, 2, -1), (B, 2, 1), (A, 5, 1)]
        await controller.close()

    run(main)


def test_upper_advances_to_least_write_frontier(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        controller = await open_at(tmp_path, clock=clock, compacting=False)
        _, one = await controller.create(U1, ROWS)
        two = await controller.clone_capability(one, LEASE_MS)
        one = await controller.downgrade_capability(one, 30)
        assert controller.upper(U1) == 0
        appending = asyncio.create_task(controller.append_at(two, table([(A, 3, 1)]), 4))
        await asyncio.sleep(0)
        one = await controller.downgrade_capability(one, 40)
        moved = await appending
        assert isinstance(moved, WriteCapability)
        assert controller.upper(U1) == 4
        pass_time(controller, clock, LEASE_MS)  # the slower one is lost
        await controller.confirm()
        assert controller.upper(U1) == 40
        await abandon(controller)
        controller = await open_at(tmp_path, clock=clock)
        assert controller.upper(U1) == 40
        await controller.close()

    run(main)


def test_append_before_end_of_writer_is_kept(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path, compacting=False, segment_records=2)
        read, written = await controller.create(U1, ROWS)
        appending = [
            asyncio.create_task(controller.append([write(U1, time, time + 1, (A, time, 1))]))
            for time in range(4)
        ]
        await asyncio.sleep(0)
        dropping = asyncio.create_task(controller.drop_capability(written))
        await asyncio.sleep(0)
        # It is known at once to who writes, and to who reads when it is durable.
        assert controller.upper(U1) < EMPTY
        late = await controller.append([write(U1, 4, 5)])
        assert late == UpperMismatch(U1, EMPTY)
        await asyncio.gather(*appending)
        await dropping
        assert controller.upper(U1) == EMPTY
        await abandon(controller)
        controller = await open_at(tmp_path)
        assert controller.upper(U1) == EMPTY
        snapshot = controller.snapshot(read, EMPTY - 1)
        assert len(updates_of(snapshot.tail)) == 4
        with pytest.raises(ObjectNotInPrerequisiteState):
            controller.snapshot(read, EMPTY)
        await controller.close()

    run(main)


def test_subscription_without_hold_fails(tmp_path: Path) -> None:
    async def main() -> None:
        clock = ManualClock()
        controller = await open_at(tmp_path, clock=clock)
        own, _ = await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 5, (A, 1, 1)))
        lease = await controller.clone_capability(own, LEASE_MS)
        heard: list[ListenEvent] = []
        listen = controller.subscribe_at(lease, 7, heard.append)
        await controller.downgrade_capability(own, 20)
        pass_time(controller, clock, LEASE_MS)
        await put(controller, write(U1, 5, 30, (B, 6, 1), (A, 15, -1)))
        assert listen.task is not None
        with pytest.raises(ObjectNotInPrerequisiteState, match="no longer be read as of 7"):
            await listen.task
        assert heard == []
        await controller.close()

    run(main)


def test_grant_during_segment_change_survives_kill(tmp_path: Path) -> None:
    """The new segment's opening has it, and so does the record that follows."""

    async def main() -> None:
        controller = await open_at(tmp_path, segment_records=4, compacting=False)
        read, _ = await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 1, (A, 0, 1)))
        assert len(controller._wal.segments) == 1
        loop = asyncio.get_running_loop()
        cloning: list[asyncio.Task[ReadCapability]] = []

        async def clone() -> None:
            cloning.append(asyncio.create_task(controller.clone_capability(read)))
            await asyncio.sleep(0)

        def action(point: str) -> None:
            if point == "log.synced" and not cloning:  # of the record that fills the segment
                asyncio.run_coroutine_threadsafe(clone(), loop).result()

        arm(action)
        try:
            await put(controller, write(U1, 1, 2, (B, 1, 1)))
            cloned = await cloning[0]
        finally:
            arm(None)
        assert len(controller._wal.segments) == 2
        await controller.downgrade_capability(read, 1)
        await controller.confirm()
        await abandon(controller)
        again = await open_at(tmp_path)
        assert again.since(U1) == 0
        await again.drop_capability(cloned)
        assert again.since(U1) == 1
        await again.close()

    run(main)


def test_cancelled_clone_holds_nothing(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        read, written = await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 10))
        for capability in (read, written):
            cloning = asyncio.create_task(controller.clone_capability(capability))
            await asyncio.sleep(0)
            assert len(controller.grants(U1)) == 3
            cloning.cancel()
            await asyncio.gather(cloning, return_exceptions=True)
            assert len(controller.grants(U1)) == 2
        await controller.downgrade_capability(read, 5)
        assert controller.since(U1) == 5
        await controller.confirm()
        granted = controller.grants(U1)
        await abandon(controller)
        controller = await open_at(tmp_path)
        assert set(controller.grants(U1)) == set(granted)
        await controller.close()

    run(main)
