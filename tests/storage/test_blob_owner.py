"""A blob store outside of the data directory serves one of the directory's copies only."""

import asyncio
import shutil
from pathlib import Path

import pytest

from foreshore.clock import SystemClock
from foreshore.errors import Fenced, ObjectNotInPrerequisiteState
from foreshore.storage import blob_owner
from foreshore.storage.blob import FileBlob
from foreshore.storage.blob_owner import BlobOwner, Marker
from foreshore.storage.controller import StorageConfig, StorageController
from foreshore.storage.epoch import EpochState
from foreshore.storage.fault import Determinate
from tests.storage.harness import ROWS, U1, abandon, put, reader, run, write

LATER = f"{10**11:012}"  # an epoch
OWNED = "another copy of this data directory owns the blob store"
# Segments of one record are compacted, and removed, at once.
CONFIG = StorageConfig(segment_records=1)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let owners beat often; a copy sees a live one at its next beat and waits no longer."""
    monkeypatch.setattr(blob_owner, "BEAT_SECONDS", 0.02)
    monkeypatch.setattr(blob_owner, "WAIT_SECONDS", 30.0)


async def serve(directory: Path, store: Path) -> StorageController:
    return await StorageController.open(
        data_dir=directory,
        blob=f"file://{store}",
        consensus=None,
        clock=SystemClock(),
        config=CONFIG,
    )


async def make(directory: Path, store: Path) -> StorageController:
    """Return a served database with a row in a batch."""
    served = await serve(directory, store)
    await served.create(U1, ROWS)
    await add(served, 0)
    return served


async def add(served: StorageController, time: int) -> None:
    await put(served, write(U1, time, time + 1, ((time, "a"), time, 1)))
    await served.settle()


async def count(served: StorageController, time: int) -> int:
    snapshot = served.snapshot(await reader(served, U1), time)
    try:
        return int((await snapshot.rows()).num_rows)
    finally:
        snapshot.release()


def move(directory: Path, to: Path) -> None:
    shutil.copytree(directory, to)
    shutil.rmtree(directory)


def files(store: Path) -> set[str]:
    return {path.name for path in store.rglob("*.parquet")}


def test_copy_beside_a_live_original_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        one, copy, store = tmp_path / "one", tmp_path / "copy", tmp_path / "store"
        original = await make(one, store)
        shutil.copytree(one, copy)
        before = files(store)
        for _ in range(2):
            with pytest.raises(ObjectNotInPrerequisiteState, match=OWNED) as refused:
                await serve(copy, store)
            assert refused.value.hint is not None
        assert before
        assert files(store) >= before
        await add(original, 1)
        assert await count(original, 1) == 2
        await original.close()
        again = await serve(one, store)
        assert await count(again, 1) == 2
        await again.close()

    run(main)


@pytest.mark.parametrize("is_killed", [False, True])
def test_stale_copy_is_refused_though_the_original_has_ended(
    tmp_path: Path, is_killed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_owner, "BEAT_SECONDS", 1000.0)

    async def main() -> None:
        one, copy, store = tmp_path / "one", tmp_path / "copy", tmp_path / "store"
        original = await make(one, store)
        shutil.copytree(one, copy)
        await add(original, 1)
        assert original._owner is not None
        await asyncio.to_thread(original._owner._beat, is_over=False)
        await (abandon if is_killed else StorageController.close)(original)
        before = files(store)
        with pytest.raises(ObjectNotInPrerequisiteState, match=OWNED):
            await serve(copy, store)
        assert files(store) == before
        again = await serve(one, store)
        assert await count(again, 1) == 2
        await again.close()

    run(main)


def test_directory_that_was_moved_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        one, moved, store = tmp_path / "one", tmp_path / "moved", tmp_path / "store"
        await (await make(one, store)).close()
        move(one, moved)
        served = await serve(moved, store)  # at once: the original has ended
        await add(served, 1)
        await abandon(served)
        move(moved, tmp_path / "again")
        monkeypatch.setattr(blob_owner, "WAIT_SECONDS", 0.1)
        served = await serve(tmp_path / "again", store)  # after a look for a live one
        assert await count(served, 1) == 2
        await served.close()

    run(main)


@pytest.mark.parametrize("is_killed", [False, True])
def test_copy_is_refused_while_the_original_is_there(tmp_path: Path, is_killed: bool) -> None:
    async def main() -> None:
        one, copy, store = tmp_path / "one", tmp_path / "copy", tmp_path / "store"
        await (abandon if is_killed else StorageController.close)(await make(one, store))
        shutil.copytree(one, copy)
        with pytest.raises(ObjectNotInPrerequisiteState, match=OWNED) as refused:
            await serve(copy, store)
        assert str(one) in (refused.value.detail or "")
        assert "remove the other" in (refused.value.hint or "")
        again = await serve(one, store)
        assert await count(again, 0) == 1
        await again.close()

    run(main)


def test_original_is_told_which_copy_of_another_machine_has_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        one, copy, store = tmp_path / "one", tmp_path / "copy", tmp_path / "store"
        await (await make(one, store)).close()
        shutil.copytree(one, copy)
        with monkeypatch.context() as patch:
            patch.setattr("platform.node", lambda: "elsewhere")
            await (await serve(copy, store)).close()
        with pytest.raises(ObjectNotInPrerequisiteState, match=OWNED) as refused:
            await serve(one, store)
        assert f'"{copy}" of elsewhere has taken' in (refused.value.detail or "")

    run(main)


def test_new_directory_over_a_used_store_is_no_copy(tmp_path: Path) -> None:
    async def main() -> None:
        one, new, store = tmp_path / "one", tmp_path / "new", tmp_path / "store"
        for make_used in (serve, make):  # without and with batches
            await (await make_used(one, store)).close()
            with pytest.raises(
                ObjectNotInPrerequisiteState, match="belongs to another data directory"
            ) as refused:
                await serve(new, store)
            assert str(one) in (refused.value.detail or "")
            assert "--blob that is empty" in (refused.value.hint or "")
        await (await serve(one, store)).close()
        served = await serve(new, tmp_path / "empty")  # as the hint says
        await served.close()

    run(main)


def test_copy_waits_for_a_beat_of_the_original(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_owner, "BEAT_SECONDS", 1000.0)
    monkeypatch.setattr(blob_owner, "WAIT_SECONDS", 1.0)
    wait = BlobOwner._wait_for_beat

    async def main() -> None:
        one, copy, store = tmp_path / "one", tmp_path / "copy", tmp_path / "store"
        original = await make(one, store)
        shutil.copytree(one, copy)
        monkeypatch.setattr(blob_owner, "_is_there", lambda found: False)  # it is elsewhere

        async def wait_beside_a_beat(self: BlobOwner, found: Marker) -> None:
            assert original._owner is not None
            await asyncio.to_thread(original._owner._beat, is_over=False)
            await wait(self, found)

        monkeypatch.setattr(BlobOwner, "_wait_for_beat", wait_beside_a_beat)
        with pytest.raises(ObjectNotInPrerequisiteState, match=OWNED) as refused:
            await serve(copy, store)
        assert "It is being served" in (refused.value.detail or "")
        await original.close()

    run(main)


def test_directory_that_moves_after_a_start_without_the_store_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_owner, "WAIT_SECONDS", 0.1)

    def is_away(self: FileBlob, key: str, data: bytes) -> bool:
        raise Determinate("the store is away")

    async def main() -> None:
        one, moved, store = tmp_path / "one", tmp_path / "moved", tmp_path / "store"
        await abandon(await make(one, store))
        with monkeypatch.context() as patch:
            patch.setattr(FileBlob, "create", is_away)
            with pytest.raises(Determinate):
                await serve(one, store)
        move(one, moved)
        served = await serve(moved, store)
        assert await count(served, 0) == 1
        await served.close()

    run(main)


def test_owner_goes_on_beating_after_an_unreadable_marker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a copy would take it for dead."""
    beat = BlobOwner._beat

    async def main() -> None:
        loop, goes_on = asyncio.get_running_loop(), asyncio.Event()
        served = await make(tmp_path / "one", tmp_path / "store")
        marker = tmp_path / "store" / "owner" / LATER

        def beat_and_tell(self: BlobOwner, *, is_over: bool) -> None:
            was_wrong = marker.exists()
            try:
                beat(self, is_over=is_over)
            finally:
                marker.unlink(missing_ok=True)
            if not was_wrong:
                loop.call_soon_threadsafe(goes_on.set)

        marker.write_bytes(b"no marker")
        monkeypatch.setattr(BlobOwner, "_beat", beat_and_tell)
        await goes_on.wait()
        await add(served, 1)
        await served.close()

    run(main)


def test_owner_that_was_replaced_writes_and_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blob_owner, "BEAT_SECONDS", 1000.0)

    async def main() -> None:
        one, copy, store = tmp_path / "one", tmp_path / "copy", tmp_path / "store"
        original = await make(one, store)
        shutil.copytree(one, copy)
        for marker in (store / "owner").iterdir():  # as the operator who wants the copy does
            marker.unlink()
        other = await serve(copy, store)
        with pytest.raises(Fenced):
            original._garbage.check_owner()
        before = files(store)
        await original._garbage.collect([])
        with pytest.raises(Fenced):
            await original._garbage.collect([f"blob/{U1}/{name}" for name in before])
        assert files(store) == before
        assert original._owner is not None
        assert original._owning is not None
        original._owner.close()  # with a beat, which tells it
        await original._owning
        with pytest.raises(Fenced):
            await put(original, write(U1, 1, 2, ((2, "b"), 1, 1)))
        await original.close()
        await add(other, 1)
        await other.close()
        with pytest.raises(ObjectNotInPrerequisiteState, match=OWNED):
            await serve(one, store)

    run(main)


def test_one_of_several_takers_gets_the_store(tmp_path: Path) -> None:
    store = FileBlob(tmp_path / "store")
    owners = []
    for name in "abc":
        (tmp_path / name).mkdir()
        owners.append(BlobOwner(store, tmp_path / name))
    owners[0].claim(EpochState(epoch=7, taker="0"))
    owners[0].claim(EpochState(epoch=7, taker="0"))  # an answer was lost
    for number, owner in enumerate(owners[1:], start=1):
        with pytest.raises(ObjectNotInPrerequisiteState, match=OWNED):
            owner.claim(EpochState(epoch=7, taker=str(number)))
    owners[0].check()


def test_same_directory_is_served_again_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        one, store = tmp_path / "one", tmp_path / "store"
        served = await make(one, store)
        for epoch in range(2, 5):
            await abandon(served)
            served = await serve(one, store)
            assert await count(served, 0) == 1
            assert [path.name for path in (store / "owner").iterdir()] == [f"{epoch:012}"]
        await served.close()

    run(main)


def test_store_within_the_directory_is_copied_with_it(tmp_path: Path) -> None:
    async def main() -> None:
        one, copy = tmp_path / "one", tmp_path / "copy"
        await (await make(one, one / "blob")).close()
        shutil.copytree(one, copy)
        for directory in (one, copy):
            served = await serve(directory, directory / "blob")
            assert await count(served, 0) == 1
            await served.close()
        assert not (one / "blob" / "owner").exists()

    run(main)
