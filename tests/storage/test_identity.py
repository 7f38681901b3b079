"""The parts of a database are distinguished from those of another before any change."""

import shutil
from pathlib import Path

import pytest

from foreshore.clock import SystemClock
from foreshore.errors import DataCorrupted, ObjectNotInPrerequisiteState
from foreshore.storage.blob import FileBlob
from foreshore.storage.consensus import SqliteConsensus
from foreshore.storage.controller import StorageConfig, StorageController
from foreshore.storage.identity import NAME, identify
from tests.storage.harness import ROWS, U1, open_at, put, reader, run, write


async def open_with(log: Path, blob: Path, consensus: Path) -> StorageController:
    return await StorageController.open_services(
        log,
        FileBlob(blob / "blob"),
        SqliteConsensus(consensus / "c"),
        SystemClock(),
        StorageConfig(),
    )


async def make(directory: Path) -> None:
    """Leave a database with a row in a batch and one in the log."""
    controller = await open_with(directory, directory, directory)
    await controller.create(U1, ROWS)
    await put(controller, write(U1, 0, 1, ((1, "a"), 0, 1)))
    await controller.settle()
    await put(controller, write(U1, 1, 2, ((2, "b"), 1, 1)))
    await controller.close()


async def check(directory: Path) -> None:
    """Open the database twice, because the second start removes files of the first."""
    for _ in range(2):
        controller = await open_with(directory, directory, directory)
        snapshot = controller.snapshot(await reader(controller, U1), 1)
        assert (await snapshot.rows()).num_rows == 2
        snapshot.release()
        await controller.close()


@pytest.mark.parametrize("wrong", ["log", "blob", "consensus"])
@pytest.mark.parametrize("new", [False, True])
def test_part_of_other_database_is_refused_and_unchanged(
    tmp_path: Path, wrong: str, new: bool
) -> None:
    async def main() -> None:
        one, other = tmp_path / "one", tmp_path / "other"
        await make(one)
        if not new:
            await make(other)
        running = await open_with(one, one, one)
        places = {name: one for name in ("log", "blob", "consensus")} | {wrong: other}
        for _ in range(3):
            with pytest.raises(ObjectNotInPrerequisiteState):
                await open_with(**places)
        await put(running, write(U1, 2, 3))  # nobody has taken it over
        await running.close()
        await check(one)
        if not new:
            await check(other)

    run(main)


def test_a_start_that_died_while_marking_is_continued(tmp_path: Path) -> None:
    async def main() -> None:
        FileBlob(tmp_path / "blob").create(NAME, b"drawn")
        consensus = SqliteConsensus(tmp_path / "consensus.sqlite")
        await identify(consensus, FileBlob(tmp_path / "blob"), FileBlob(tmp_path / "log"))
        head = await consensus.head(NAME)
        assert head is not None
        assert head.data == b"drawn"
        assert (tmp_path / "log" / NAME).read_bytes() == b"drawn"
        await consensus.close()
        await (await open_at(tmp_path)).close()

    run(main)


def test_a_database_made_before_there_were_ids_gets_one(tmp_path: Path) -> None:
    async def main() -> None:
        await make(tmp_path)
        for part in ("log", "blob"):
            (tmp_path / part / NAME).unlink()
            shutil.rmtree(tmp_path / part / ".scratch")
        consensus = SqliteConsensus(tmp_path / "c")
        await consensus._query("DELETE FROM version WHERE key = ?", NAME)
        await consensus.close()
        await check(tmp_path)

    run(main)


@pytest.mark.parametrize("mark", [b"\xff\x00", b"", b"0123456789abcdef"])
@pytest.mark.parametrize("part", ["log", "blob"])
def test_corrupt_mark_is_reported(tmp_path: Path, part: str, mark: bytes) -> None:
    async def main() -> None:
        await make(tmp_path)
        (tmp_path / part / NAME).write_bytes(mark)
        with pytest.raises(DataCorrupted, match='"database" of the .* is damaged'):
            await open_with(tmp_path, tmp_path, tmp_path)

    run(main)
