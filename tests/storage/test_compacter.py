"""Compaction: the log becomes batches, batches stay few and small, files in use are kept."""

import asyncio
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from foreshore.clock import SystemClock
from foreshore.errors import DataCorrupted, Fenced
from foreshore.ids import GlobalId
from foreshore.storage import batch, compacter, epoch, merging
from foreshore.storage.blob import FileBlob
from foreshore.storage.compacter import Compacter
from foreshore.storage.consensus import Committed, Mismatch, SqliteConsensus, Versioned
from foreshore.storage.controller import (
    SEGMENTS_BEHIND,
    Appended,
    ListenEvent,
    ReadCapability,
    ShardWrite,
    StorageConfig,
    StorageController,
)
from foreshore.storage.epoch import Register
from foreshore.storage.fault import DiskFull
from foreshore.storage.identity import NAME
from foreshore.storage.local_files import LocalFiles
from foreshore.storage.merging import due_for_merging
from foreshore.storage.shard import Shard
from foreshore.storage.trace import Batch, TraceState, key_of, with_batch, with_merged
from tests.harness import file_sizes
from tests.storage.faulty import Faults, FaultyBlob, FaultyConsensus, Rates
from tests.storage.harness import (
    ROWS,
    U1,
    U2,
    abandon,
    open_at,
    put,
    reader,
    run,
    table,
    updates_of,
    write,
)


async def contents(controller: StorageController, read: ReadCapability, as_of: int) -> list[object]:
    snapshot = controller.snapshot(read, as_of)
    rows = await snapshot.rows()
    snapshot.release()
    return [tuple(row.values()) for row in rows.to_pylist()]


def files(controller: StorageController) -> set[str]:
    return {key for key, _ in controller._compacter._blob.list("")} - {NAME}


def named(controller: StorageController) -> set[str]:
    return {batch.key for shard in controller._shards.values() for batch in shard.batches}


async def collected(controller: StorageController) -> None:
    """Wait for pending deletions."""
    await asyncio.gather(*controller._compacter._deleting)


def test_sealed_segments_become_batches_and_leave_the_log(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        read, _ = await controller.create(U1, ROWS)
        await controller.create(U2, ROWS)
        await put(controller, write(U1, 0, 5, ((1, "a"), 3, 1), ((2, "b"), 4, 1)))
        await controller.settle()
        snapshot = controller.snapshot(read, 4)
        assert snapshot.tail == ()
        (file,) = snapshot.files
        assert (file.lower, file.upper, file.since, file.rows) == (0, 5, 0, 2)
        assert file.key == files(controller).pop()
        with snapshot.paths() as paths:
            assert paths == (str(tmp_path / "blob" / file.key),)
        assert controller.size_bytes(U1) == file.bytes
        assert controller.size_bytes(U2) == 0
        assert len(controller._wal.segments) == 1
        assert len(list((tmp_path / "log").glob("*.log"))) == 1
        assert not controller._shards[U2].batches  # nothing was written to it
        sealed = controller.size_bytes(U1)
        await put(controller, write(U1, 5, 6, ((1, "a"), 5, -1)))
        assert controller.size_bytes(U1) == sealed + table([((1, "a"), 5, -1)]).nbytes
        assert await contents(controller, read, 4) == [(1, "a", 1), (2, "b", 1)]
        assert await contents(controller, read, 5) == [(2, "b", 1)]
        await abandon(controller)
        controller = await open_at(tmp_path)
        assert await contents(controller, await reader(controller, U1), 5) == [(2, "b", 1)]
        await controller.close()

    run(main)


def test_compaction_bounds_space_by_live_rows(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path, segment_records=50)
        read, _ = await controller.create(U1, ROWS)
        for time in range(300):
            old = [((time % 7, "old"), time, -1)] if time >= 7 else []
            new = ((time % 7, "old"), time, 1)
            await put(controller, ShardWrite(U1, time, time + 1, table([*old, new])))
            if time % 20 == 19:
                read = await controller.downgrade_capability(read, time)
        await controller.settle()
        shard = controller._shards[U1]
        assert shard.durable_since > 200
        assert len(shard.batches) == 1
        assert shard.batches[0].rows < 60  # of 593 updates
        assert len(await contents(controller, read, 299)) == 7
        await collected(controller)
        assert files(controller) == named(controller)
        await controller.close()

    run(main)


def test_a_batch_whose_history_since_has_passed_is_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "WORTH_REWRITING", 10)

    async def main() -> None:
        controller = await open_at(tmp_path)
        read, _ = await controller.create(U1, ROWS)
        changes = [((1, "a"), time, 1 if time % 2 == 0 else -1) for time in range(41)]
        await put(controller, write(U1, 0, 41, *changes))
        await controller.settle()
        assert controller._shards[U1].batches[0].rows == 41
        read = await controller.downgrade_capability(read, 40)
        await controller.settle()
        (batch,) = controller._shards[U1].batches
        assert (batch.rows, batch.since, batch.loose) == (1, 40, 0)
        assert await contents(controller, read, 40) == [(1, "a", 1)]
        await controller.close()

    run(main)


def test_compaction_stops_at_durable_since(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        read, _ = await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 10, ((1, "a"), 1, 1), ((1, "a"), 5, -1)))
        controller._wal._pending.clear()
        shard = controller._shards[U1]
        await controller.downgrade_capability(read, 9)
        assert (shard.since, shard.durable_since) == (9, 0)
        await put(controller, write(U1, 10, 11))
        assert shard.durable_since == 9
        await controller.close()

    run(main)


def test_a_file_stays_until_its_snapshot_is_released(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        read, _ = await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 1, ((1, "a"), 0, 1)))
        await controller.settle()
        snapshot = controller.snapshot(read, 0)
        again = controller.snapshot(read, 0)
        await put(controller, write(U1, 1, 2, ((2, "b"), 1, 1)))
        await controller.settle()
        await controller.drop(U1)
        await controller.settle()
        await collected(controller)
        assert len(files(controller)) == 1
        assert (await snapshot.rows()).num_rows == 1
        snapshot.release()
        snapshot.release()
        await collected(controller)
        assert again.files[0].key in files(controller)
        again.release()
        await collected(controller)
        assert files(controller) == set()
        await controller.close()

    run(main)


def test_drop_frees_files_even_after_kill(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 1, ((1, "a"), 0, 1)))
        await controller.settle()
        controller._compacter.close()
        await controller.drop(U1)
        assert len(files(controller)) == 1
        await abandon(controller)
        controller = await open_at(tmp_path)
        await controller.settle()
        await collected(controller)
        assert files(controller) == set()
        assert controller._compacter.dropping == ()
        await controller.close()

    run(main)


def test_tombstone_is_written_once(tmp_path: Path) -> None:
    async def main() -> None:
        for _ in range(3):
            controller = await open_at(tmp_path)
            if U1 not in controller.retired_ids():
                await controller.create(U1, ROWS)
                await controller.drop(U1)
            await controller.settle()
            head = await controller.consensus.head(key_of(U1))
            assert head is not None
            assert head.seqno == 1
            assert controller.retired_ids() == [U1]
            await controller.close()

    run(main)


def test_change_of_a_trace_waits_for_room_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacter, "RETRY_SECONDS", 0)
    tried: list[TraceState] = []
    change = Register.change

    async def change_at_the_second_try(self: Register[TraceState], new: TraceState) -> None:
        if isinstance(new, TraceState):
            tried.append(new)
            if len(tried) == 1:
                raise DiskFull("no room for the register")
        await change(self, new)

    async def main() -> None:
        controller = await open_at(tmp_path, compacting=False)
        await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 1, ((1, "a"), 0, 1)))
        await controller._wal.seal()
        controller._compacter._asked = True
        with monkeypatch.context() as patch:
            patch.setattr(Register, "change", change_at_the_second_try)
            await controller._compacter._work()
        assert controller._compacter.full is not None
        assert len(tried) == 2
        assert files(controller)
        await controller.close()

    run(main)


def test_tombstone_that_cannot_be_written_holds_up_no_other_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacter, "RETRY_SECONDS", 3600)

    async def fail(self: Compacter, id: GlobalId) -> None:
        raise DataCorrupted(f"the state of {id} is not readable")

    async def main() -> None:
        controller = await open_at(tmp_path, compacting=False)
        for id in (U1, U2):
            await controller.create(id, ROWS)
        await controller.drop(U1)
        await put(controller, write(U2, 0, 1, ((1, "a"), 0, 1)))
        await controller._wal.seal()
        controller._compacter._asked = True
        with monkeypatch.context() as patch:
            patch.setattr(Compacter, "_write_tombstone", fail)
            await controller._compacter._work()
        assert list(controller._compacter.dropping) == [U1]
        assert file_sizes(tmp_path, "**/*.parquet")
        controller._compacter.retries.clear()
        await controller._compacter._work()
        assert list(controller._compacter.dropping) == []
        await controller.close()

    run(main)


def test_compaction_that_fails_after_the_drop_puts_no_tombstone_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacter, "RETRY_SECONDS", 3600)

    async def main() -> None:
        controller = await open_at(tmp_path, compacting=False)
        await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 1, ((1, "a"), 0, 1)))
        await controller._wal.seal()
        controller._compacter._asked = True

        async def fail_after_drop(self: Compacter, shard: Shard, through: int) -> None:
            await controller.drop(shard.id)
            raise DataCorrupted(f"{shard.id} is not readable")

        with monkeypatch.context() as patch:
            patch.setattr(Compacter, "_compact", fail_after_drop)
            await controller._compacter._work()
        assert list(controller._compacter.dropping) == [U1]
        await controller._compacter._work()
        assert list(controller._compacter.dropping) == []
        await controller.close()

    run(main)


def test_late_listener_gets_batches_first(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 5, ((1, "a"), 1, 1), ((2, "b"), 4, 1)))
        await controller.settle()
        await put(controller, write(U1, 5, 6, ((3, "c"), 5, 1)))
        heard: list[ListenEvent] = []
        listen = controller.listen(U1, 3, heard.append)
        assert heard == []
        await put(controller, write(U1, 6, 7, ((4, "d"), 6, 1)))
        controller.advance([U1], 9)
        assert listen.task is not None
        await listen.task
        assert [(e.lower, e.upper) for e in heard] == [(3, 6), (6, 7), (7, 9)]
        updates = updates_of(e.updates for e in heard if e.updates is not None)
        assert updates == [((2, "b"), 4, 1), ((3, "c"), 5, 1), ((4, "d"), 6, 1)]
        await controller.close()

    run(main)


def test_unreferenced_files_are_removed_at_the_start(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path)
        await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 1, ((1, "a"), 0, 1)))
        await controller.settle()
        blob = controller._compacter._blob
        blob.put("u1/000001-000099.parquet", b"named by no state")
        blob.put("u1/999999-000001.parquet", b"of an environment to come")
        blob.put("readme.txt", b"not ours")
        (tmp_path / "log" / "000000000077-000001.log").write_bytes(b"of no log")
        await controller.close()
        controller = await open_at(tmp_path)
        assert files(controller) - named(controller) == {"u1/999999-000001.parquet", "readme.txt"}
        assert len(list((tmp_path / "log").glob("*77-*.log"))) == 0
        await controller.close()

    run(main)


def test_changed_batch_is_detected_before_reading(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        path, whole = await one_batch(tmp_path)
        for offset in range(4, len(whole), 97):
            path.write_bytes(whole[:offset] + bytes([whole[offset] ^ 1]) + whole[offset + 1 :])
            controller = await open_at(tmp_path)
            snapshot = controller.snapshot(await reader(controller, U1), 0)
            with pytest.raises(DataCorrupted, match=path.name):
                ExitStack().enter_context(snapshot.paths())
            with pytest.raises(DataCorrupted, match=path.name):
                await snapshot.rows()
            snapshot.release()
            assert len(await contents(controller, await reader(controller, U2), 0)) == 1
            await controller.close()
        path.write_bytes(whole)
        controller = await open_at(tmp_path)
        read = await reader(controller, U1)
        assert await contents(controller, read, 0) == [(1, "a", 1)]
        path.write_bytes(whole[:60] + bytes([whole[60] ^ 1]) + whole[61:])  # while it runs
        with pytest.raises(DataCorrupted, match=path.name):
            await contents(controller, read, 0)
        shard = controller._shards[U1]
        with pytest.raises(DataCorrupted, match=path.name):  # nor does a merge take it up
            await controller._compacter._merge(shard, shard.batches)
        await controller.close()

    run(main)


def test_file_deleted_by_later_environment_is_not_corruption(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        older = await open_at(tmp_path)
        read, _ = await older.create(U1, ROWS)
        await put(older, write(U1, 0, 1, ((1, "a"), 0, 1)))
        await older.settle()
        snapshot, shard = older.snapshot(read, 0), older._shards[U1]
        newer = await open_at(tmp_path)
        await newer.drop(U1)
        await newer.settle()
        await asyncio.gather(*newer._compacter._deleting)
        assert not files(newer)
        for asked in (snapshot.rows, lambda: older.changes(read, 0, 0)):
            with pytest.raises(Fenced):
                await asked()
        with pytest.raises(Fenced), snapshot.paths():
            pass
        with pytest.raises(Fenced):
            await older.examine([U1])
        with pytest.raises(Fenced):
            await older._compacter._merge(shard, shard.batches)
        assert not older.corruptions.messages
        assert not [r for r in caplog.records if "damaged" in r.message]
        await abandon(older)
        await newer.close()

    run(main)


async def one_batch(directory: Path) -> tuple[Path, bytes]:
    """Leave two shards in batches; return the file of the first and its contents."""
    controller = await open_at(directory)
    await controller.create(U1, ROWS)
    await controller.create(U2, ROWS)
    await put(controller, write(U1, 0, 1, ((1, "a"), 0, 1)), write(U2, 0, 1, ((2, "b"), 0, 1)))
    await controller.settle()
    path = directory / "blob" / controller._shards[U1].batches[0].key
    await controller.close()
    return path, path.read_bytes()


def test_an_older_environment_can_neither_compact_nor_delete(tmp_path: Path) -> None:
    async def main() -> None:
        older = await open_at(tmp_path)
        await older.create(U1, ROWS)
        await put(older, write(U1, 0, 1, ((1, "a"), 0, 1)))
        await older.settle()
        newer = await open_at(tmp_path)
        shard = older._shards[U1]
        with pytest.raises(Fenced):
            await older._compacter._merge(shard, shard.batches)
        with pytest.raises(Fenced):
            await older.append([write(U1, 1, 2)])
        await abandon(older)
        assert named(newer) <= files(newer)
        assert len(await contents(newer, await reader(newer, U1), 0)) == 1
        await newer.close()
        again = await open_at(tmp_path)  # removes what the older one left
        assert files(again) == named(again)
        await again.close()

    run(main)


class Pausing(SqliteConsensus):
    """Consensus of an environment that is suspended before it sets the state of `U1`."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.stands = asyncio.Event()
        self.wakes = asyncio.Event()
        self.has_tried = asyncio.Event()

    async def compare_and_set(
        self, key: str, expected: int | None, new: bytes
    ) -> Committed | Mismatch:
        if key != key_of(U1):
            return await super().compare_and_set(key, expected, new)
        self.stands.set()
        await self.wakes.wait()
        try:
            return await super().compare_and_set(key, expected, new)
        finally:
            self.has_tried.set()


class Watching(SqliteConsensus):
    """Consensus of a new environment; states that it has read are outdated at once."""

    def __init__(self, path: Path, older: Pausing) -> None:
        super().__init__(path)
        self._older = older

    async def heads(self, prefix: str) -> dict[str, Versioned]:
        found = await super().heads(prefix)
        self._older.wakes.set()
        await self._older.has_tried.wait()
        return found


@pytest.mark.parametrize("wakes", ["before the newcomer has begun", "after that"])
@pytest.mark.parametrize("dropped", [False, True])
def test_fenced_environment_cannot_set_first_state_of_shard(
    tmp_path: Path, wakes: str, dropped: bool
) -> None:
    async def over(consensus: SqliteConsensus) -> StorageController:
        blob = FileBlob(tmp_path / "blob")
        return await StorageController.open_services(
            tmp_path, blob, consensus, SystemClock(), StorageConfig()
        )

    async def main() -> None:
        path = tmp_path / "consensus.sqlite"
        first = Pausing(path)
        older = await over(first)
        await older.create(U1, ROWS)
        await older.create(U2, ROWS)
        if dropped:
            await older.drop(U1)
        else:
            await put(older, write(U1, 0, 1, ((1, "a"), 0, 1)))
            settling = asyncio.create_task(older.settle())
        await first.stands.wait()
        if wakes == "after that":
            newer = await over(SqliteConsensus(path))
            if dropped:
                await newer.settle()
            first.wakes.set()
            await first.has_tried.wait()
        else:
            newer = await over(Watching(path, first))
        if not dropped:
            await settling
            await put(newer, write(U1, 1, 2, ((2, "b"), 1, 1)))
        await put(newer, write(U2, 0, 1, ((3, "c"), 0, 1)))
        await newer.settle()
        assert newer._compacter.running
        assert len(newer._wal.segments) == 1
        await abandon(older)
        await newer.close()
        again = await open_at(tmp_path)
        assert not again.corruptions.messages
        assert files(again) == named(again)
        assert again.retired_ids() == ([U1] if dropped else [])
        assert len(await contents(again, await reader(again, U2), 0)) == 1
        if not dropped:
            assert len(await contents(again, await reader(again, U1), 1)) == 2
        await again.close()

    run(main)


@pytest.mark.parametrize("seed", range(4))
def test_faults_of_the_services_lose_and_repeat_nothing(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacter, "RETRY_SECONDS", 0.001)
    monkeypatch.setattr(epoch, "PAUSE_SECONDS", 0.0001)
    monkeypatch.setattr(epoch, "ATTEMPTS", 3)
    monkeypatch.setattr(epoch, "RETRY_SECONDS", 0.001)

    async def main() -> None:
        faults, blob_faults = Faults(seed, Rates()), Faults(seed + 100, Rates())
        consensus = FaultyConsensus(SqliteConsensus(tmp_path / "consensus.sqlite"), faults)
        controller = await StorageController.open_services(
            tmp_path,
            FaultyBlob(FileBlob(tmp_path / "blob"), blob_faults),
            consensus,
            SystemClock(),
            StorageConfig(segment_records=8),
        )
        read, _ = await controller.create(U1, ROWS)
        live: dict[int, int] = {}
        for time in range(60):
            faults.rates = blob_faults.rates = Rates.even(0.3)
            if controller._wal.failure is not None:
                break  # the outcome of a change of the log's state stayed unknown: it has ended
            change = ((time % 5, "x"), time, 1)
            try:
                assert await controller.append([write(U1, time, time + 1, change)]) == Appended()
            except Exception:
                assert controller._wal.failure is not None
                break
            live[time % 5] = live.get(time % 5, 0) + 1
            read = await controller.downgrade_capability(read, max(0, time - 3))
            if time % 6 == 5:
                await controller.settle()
        written = sum(live.values())
        await abandon(controller)
        assert faults.count
        assert blob_faults.count
        controller = await open_at(tmp_path)
        await controller.settle()
        read = await reader(controller, U1)
        upper = controller.upper(U1)
        assert upper >= written
        expected = [(k, "x", n) for k, n in sorted(live.items())]
        found = await contents(controller, read, upper - 1)
        if upper == written:
            assert found == expected
        assert sum(row[-1] for row in found) == upper  # type: ignore[index]
        await collected(controller)
        assert files(controller) == named(controller)
        await controller.close()

    run(main)


def test_states_that_do_not_tile_are_corrupt() -> None:
    def batch(lower: int, upper: int) -> Batch:
        return Batch(f"u1/{lower}", lower, upper, 0, 1, 0, 1, 0)

    state = TraceState(epoch=1, id=U1, schema=b"")
    state = with_batch(with_batch(with_batch(state, batch(0, 4)), batch(4, 5)), batch(5, 9))
    assert state.upper == 9
    merged = with_merged(state, state.batches[1:], batch(4, 9))
    assert [b.lower for b in merged.batches] == [0, 4]
    for gap_or_overlap in (batch(10, 11), batch(8, 11), batch(9, 9)):
        with pytest.raises(DataCorrupted, match="trace of u1"):
            with_batch(state, gap_or_overlap)


def test_merges_are_geometric() -> None:
    from foreshore.storage.shard import Shard
    from foreshore.update import update_schema

    shard = Shard(U1, update_schema(ROWS))
    rewritten = 0
    for i in range(1000):
        shard.batches = (*shard.batches, Batch(str(i), i, i + 1, 0, 10_000, 0, 1, 0))
        if due := due_for_merging(shard):
            rows = sum(b.rows for b in due)
            rewritten += rows
            one = Batch(str(i), due[0].lower, i + 1, 0, rows, 0, 1, 0)
            shard.batches = (*shard.batches[: -len(due)], one)
        assert not due_for_merging(shard)
        assert len(shard.batches) <= 11
    assert rewritten <= 1000 * 10_000 * 11


def written_but_u1(files: LocalFiles, key: str, *rest: Any) -> Batch:
    """Write a batch as usual, but fail for U1."""
    if key.startswith(U1):
        raise pa.ArrowInvalid("a fault of ours")
    return batch.write_batch(files, key, *rest)


async def open_with_two(directory: Path) -> tuple[StorageController, ReadCapability]:
    """Open a directory with the new shards U1 and U2; return also U2's read capability."""
    controller = await open_at(directory, segment_records=1)
    await controller.create(U1, ROWS)
    second, _ = await controller.create(U2, ROWS)
    return controller, second


async def put_in_both(controller: StorageController, time: int) -> None:
    row = ((time, "a"), time, 1)
    async with asyncio.timeout(10):
        await put(controller, *(write(id, time, time + 1, row) for id in (U1, U2)))


async def agrees(directory: Path, times: int) -> None:
    """Assert that both shards have the rows of all `times` after a restart."""
    controller = await open_at(directory)
    for id in (U1, U2):
        found = await contents(controller, await reader(controller, id), times - 1)
        assert found == [(k, "a", 1) for k in range(times)]
    await controller.close()


def test_failing_compaction_of_shard_does_not_block_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacter, "RETRY_SECONDS", 0.001)
    times = 3 * SEGMENTS_BEHIND

    async def main() -> None:
        controller, second = await open_with_two(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(compacter, "write_batch", written_but_u1)
            for time in range(times):
                await put_in_both(controller, time)
            settling = asyncio.create_task(controller.settle())
            async with asyncio.timeout(10):
                while controller.snapshot(second, times - 1).tail:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert not settling.done()
            assert len(controller._wal.segments) > times
        async with asyncio.timeout(10):
            await settling
        assert len(controller._wal.segments) == 1
        await abandon(controller)
        await agrees(tmp_path, times)

    run(main)


def test_while_a_shard_is_put_off_the_others_are_compacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacter, "RETRY_SECONDS", 3600)
    times, failures = 3 * SEGMENTS_BEHIND, 0

    def failing(files: LocalFiles, key: str, *rest: Any) -> Batch:
        nonlocal failures
        if key.startswith(U1):
            failures += 1
        return written_but_u1(files, key, *rest)

    async def main() -> None:
        controller, _ = await open_with_two(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(compacter, "write_batch", failing)
            for time in range(times):
                await put_in_both(controller, time)
                assert len(controller._shards[U2].tail) <= SEGMENTS_BEHIND + 2
            assert failures == 1
            await controller.drop(U1)
            async with asyncio.timeout(10):
                await controller.settle()
            assert len(controller._wal.segments) == 1
        await controller.close()

    run(main)


def test_a_shard_that_cannot_be_merged_keeps_none_of_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacter, "RETRY_SECONDS", 0.001)
    merge, times = compacter.Compacter._merge, 3 * SEGMENTS_BEHIND

    async def failing(self: Any, shard: Shard, batches: tuple[Batch, ...]) -> None:
        if shard.id == U1:
            raise pa.ArrowInvalid("a fault of ours")
        await merge(self, shard, batches)

    async def main() -> None:
        controller, _ = await open_with_two(tmp_path)
        with monkeypatch.context() as patch:
            patch.setattr(compacter.Compacter, "_merge", failing)
            for time in range(times):
                await put_in_both(controller, time)
            settling = asyncio.create_task(controller.settle())
            async with asyncio.timeout(10):
                while len(list((tmp_path / "log").glob("*.log"))) > 1:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert not settling.done()
            assert len(controller._wal.segments) == 1
        async with asyncio.timeout(10):
            await settling
        await abandon(controller)
        await agrees(tmp_path, times)

    run(main)


def test_a_shard_that_cannot_be_sealed_keeps_the_log_from_there_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacter, "RETRY_SECONDS", 0.001)
    early, times = SEGMENTS_BEHIND, 3 * SEGMENTS_BEHIND

    async def main() -> None:
        controller, _ = await open_with_two(tmp_path)
        with monkeypatch.context() as patch:
            for time in range(times):
                if time == early:
                    await controller.settle()
                    patch.setattr(compacter, "write_batch", written_but_u1)
                await put_in_both(controller, time)
            settling = asyncio.create_task(controller.settle())
            first, second = (controller._shards[id] for id in (U1, U2))
            async with asyncio.timeout(10):
                while second.tail:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert controller._wal.segments[0].number == first.tail[0].segment
            assert sum(part.updates.num_rows for part in first.tail) == times - early
            settling.cancel()
            await abandon(controller)
        await agrees(tmp_path, times)

    run(main)
