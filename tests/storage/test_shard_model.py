"""Shards against the formal model, over random histories, at every readable time."""

import asyncio
import tempfile
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.errors import InternalError, ObjectNotInPrerequisiteState
from foreshore.ids import GlobalId
from foreshore.storage import compacter
from foreshore.storage.controller import (
    ListenEvent,
    ReadCapability,
    ShardWrite,
    SharedUpper,
    StorageController,
    UpperMismatch,
)
from foreshore.storage.identity import NAME
from foreshore.storage.merging import due_for_merging
from tests.effort import examples
from tests.frontier import Antichain
from tests.ptvc import INTEGERS, PTvc
from tests.storage.harness import (
    ROWS,
    U1,
    U2,
    Row,
    Update,
    abandon,
    appended,
    open_at,
    put,
    table,
    updates_of,
)

ROW = st.sampled_from([(1, "a"), (1, "b"), (None, "a"), (2, None)])
CHANGE = st.tuples(ROW, st.integers(0, 3), st.sampled_from([1, 1, 2, -1]))
STEP = st.one_of(
    st.tuples(st.just("append"), st.lists(CHANGE, max_size=5), st.lists(CHANGE, max_size=2)),
    st.tuples(st.just("append"), st.lists(CHANGE, max_size=5), st.lists(CHANGE, max_size=2)),
    st.tuples(st.just("advance"), st.integers(1, 3), st.none()),
    st.tuples(st.just("follow"), st.sampled_from([U1, U2]), st.booleans()),
    st.tuples(st.just("advance together"), st.integers(1, 3), st.none()),
    st.tuples(st.just("downgrade"), st.sampled_from([U1, U2]), st.integers(0, 6)),
    st.tuples(st.just("settle"), st.none(), st.none()),
    st.tuples(st.just("reopen"), st.booleans(), st.none()),
    st.tuples(st.just("listen"), st.sampled_from([U1, U2]), st.none()),
    st.tuples(st.just("misfit"), st.integers(-3, 3), st.integers(-3, 9)),
)


class Listener:
    """Listens to a shard, and knows the expected events."""

    def __init__(self, tvc: PTvc[Row, int], start: int) -> None:
        self.start = start
        self.upper = start
        self.heard: list[Update] = []
        # The contents from the start on are what it hears, on top of those just before it.
        self.before = tvc.read(start - 1) if start > 0 and tvc.readable(start - 1) else None

    def deliver(self, event: ListenEvent) -> None:
        assert event.lower == self.upper < event.upper
        self.upper = event.upper
        if event.updates is not None:
            heard = updates_of([event.updates])
            assert all(event.lower <= time < event.upper for _, time, _ in heard)
            self.heard += heard

    def check(self, tvc: PTvc[Row, int]) -> None:
        if self.before is None:
            return
        for time in range(self.start, self.upper):
            if tvc.readable(time):
                contents = dict(self.before)
                for row, at, diff in self.heard:
                    if at <= time:
                        contents[row] = contents.get(row, 0) + diff
                assert {row: n for row, n in contents.items() if n} == tvc.read(time)


class Machine:
    """A database with two shards, and its model."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.models: dict[GlobalId, PTvc[Row, int]] = {id: PTvc(INTEGERS) for id in (U1, U2)}
        self.written: dict[GlobalId, int] = dict.fromkeys((U1, U2), 0)
        self.reads: dict[GlobalId, ReadCapability] = {}
        self.listeners: list[tuple[GlobalId, Listener]] = []
        self.controller: StorageController
        self.shared = SharedUpper()
        self.following: set[GlobalId] = set()

    async def start(self) -> None:
        self.controller = await open_at(self.directory, segment_records=3)
        for id in (U1, U2):
            self.reads[id], _ = await self.controller.create(id, ROWS)

    def upper(self, id: GlobalId) -> int:
        (upper,) = self.models[id].upper.elements
        return upper

    async def append(self, one: list[Update], two: list[Update]) -> None:
        writes = []
        for id, changes in ((U1, one), (U2, two)):
            lower = self.upper(id)
            tvc = self.models[id]
            present = dict(tvc.read(lower - 1)) if lower and tvc.readable(lower - 1) else {}
            updates = []
            for row, offset, diff in sorted(changes, key=lambda change: change[1]):
                if present.get(row, 0) + diff >= 0:  # a collection holds no row less than no times
                    present[row] = present.get(row, 0) + diff
                    updates.append((row, lower + offset, diff))
            upper = lower + 4
            tvc.append(Antichain.of(upper), updates)
            writes.append(appended(id, lower, upper, updates))
            self.written[id] = upper
        await put(self.controller, *writes)

    async def misfit(self, lower: int, at: int) -> None:
        """Append an interval too early or late, or an update outside it; the model refuses."""
        upper = self.upper(U1)
        begin, end, time = upper + lower, upper + 4, upper + at
        fits = lower == 0 and begin <= time < end
        if fits or not 0 <= begin < end:
            return
        if begin < upper:  # a gap, begin > upper, is a misfit of intervals only
            with pytest.raises(AssertionError):
                self.models[U1].append(Antichain.of(end), [((1, "a"), begin, 1)])
        write = ShardWrite(U1, begin, end, table([((1, "a"), time, 1)]))
        good = ShardWrite(U2, self.upper(U2), self.upper(U2) + 1, table([]))
        if lower != 0:  # and with it all that was to be appended at once
            outcome = await self.controller.append([good, write])
            assert outcome == UpperMismatch(U1, upper)
        else:
            with pytest.raises(InternalError):
                await self.controller.append([good, write])
        for id in (U1, U2):
            for as_of in (self.reads[id].frontier - 1, self.upper(id)):
                if as_of < self.controller.since(id) or as_of >= self.upper(id):
                    with pytest.raises(ObjectNotInPrerequisiteState):
                        self.controller.snapshot(self.reads[id], as_of)

    def advance(self, by: int) -> None:
        for id, tvc in self.models.items():
            upper = self.upper(id) + by
            tvc.append(Antichain.of(upper), [])
            self.controller.advance([id], upper)

    def follow(self, id: GlobalId, follows: bool) -> None:
        if not follows:
            self.controller.unshare_upper(id)
            self.following.discard(id)
            return
        self.following.add(id)
        self.reaches(id, self.shared.upper)
        self.controller.share_upper(id, self.shared)

    def advance_together(self, by: int) -> None:
        upper = max(map(self.upper, self.following), default=self.shared.upper) + by
        for id in self.following:
            self.reaches(id, upper)
        self.shared.advance(upper)

    def reaches(self, id: GlobalId, upper: int) -> None:
        if upper > self.upper(id):
            self.models[id].append(Antichain.of(upper), [])

    async def downgrade(self, id: GlobalId, back: int) -> None:
        frontier = max(self.reads[id].frontier, self.upper(id) - back, 0)
        self.reads[id] = await self.controller.downgrade_capability(self.reads[id], frontier)
        self.models[id].compact(Antichain.of(frontier))

    async def reopen(self, cleanly: bool) -> None:
        await (self.controller.close() if cleanly else abandon(self.controller))
        self.check_listeners()
        self.listeners = []
        self.shared, self.following = SharedUpper(), set()
        self.controller = await open_at(self.directory, segment_records=3)
        for id in self.models:
            found = self.controller.upper(id)
            assert self.written[id] <= found <= self.upper(id)
            self.controller.advance([id], self.upper(id))
            assert self.controller.since(id) <= self.reads[id].frontier
            if cleanly:
                assert self.controller.since(id) == self.reads[id].frontier
        acquired = await self.controller.acquire_capabilities([U1, U2])
        for id, (read, _) in acquired.items():
            if read.frontier < self.reads[id].frontier:  # a downgrade that was not yet durable
                read = await self.controller.downgrade_capability(read, self.reads[id].frontier)
            self.reads[id] = read

    def listen(self, id: GlobalId) -> None:
        start = self.reads[id].frontier + 1
        listener = Listener(self.models[id], start)
        self.controller.listen(id, start, listener.deliver)
        self.listeners.append((id, listener))

    def check_listeners(self) -> None:
        for id, listener in self.listeners:
            listener.check(self.models[id])

    async def check(self) -> None:
        self.check_listeners()
        for id, tvc in self.models.items():
            assert self.controller.upper(id) == self.upper(id)
            shard = self.controller._shards[id]
            end = 0
            for batch in shard.batches:
                assert batch.lower == end
                end = batch.upper
            assert end == shard.sealed <= shard.upper
            for time in range(self.upper(id)):
                if tvc.readable(time):
                    snapshot = self.controller.snapshot(self.reads[id], time)
                    rows = (await snapshot.rows()).to_pydict()
                    found = dict(
                        zip(zip(rows["k"], rows["v"], strict=True), rows["__diff"], strict=True)
                    )
                    assert found == tvc.read(time), (id, time)
                    snapshot.release()

    async def finish(self) -> None:
        await self.controller.settle()
        for shard in self.controller._shards.values():
            assert not shard.tail
            assert not due_for_merging(shard)
        await asyncio.sleep(0)
        await self.check()
        await self.controller.close()
        named = {b.key for s in self.controller._shards.values() for b in s.batches}
        assert {key for key, _ in self.controller._compacter._blob.list("")} - {NAME} == named


@settings(max_examples=examples(15))
@given(st.lists(STEP, max_size=10))
def test_random_history_matches_model(steps: list[tuple[str, object, object]]) -> None:
    async def main(directory: Path) -> None:
        machine = Machine(directory)
        await machine.start()
        for step in steps:
            match step:
                case ("append", list(one), list(two)):
                    await machine.append(one, two)
                case ("advance", int(by), _):
                    machine.advance(by)
                case ("follow", str(id), bool(follows)):
                    machine.follow(GlobalId(id), follows)
                case ("advance together", int(by), _):
                    machine.advance_together(by)
                case ("downgrade", str(id), int(back)):
                    await machine.downgrade(GlobalId(id), back)
                case ("settle", _, _):
                    await machine.controller.settle()
                case ("reopen", bool(cleanly), _):
                    await machine.reopen(cleanly)
                case ("misfit", int(lower), int(at)):
                    await machine.misfit(lower, at)
                case ("listen", str(id), _):
                    machine.listen(GlobalId(id))
        await machine.check()
        await machine.finish()

    with (
        tempfile.TemporaryDirectory() as directory,
        patch.object(compacter, "MANY", 2),  # so that it is also at work while others are
    ):
        asyncio.run(main(Path(directory)))
