"""Corrupt or outdated consensus is refused, and nothing is deleted."""

import asyncio
import random
import shutil
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copy as copy_file

import pytest

from foreshore.errors import DatabaseError, DataCorrupted
from foreshore.storage.consensus import SqliteConsensus, Versioned
from foreshore.storage.directory import read_heads
from foreshore.storage.fault import Determinate
from tests.harness import ROOT
from tests.storage.harness import (
    ROWS,
    U1,
    abandon,
    open_at,
    put,
    reader,
    run,
    write,
)

sys.path.append(str(ROOT / "docs" / "open"))
import foreshore_files

TIMES = 40
DATABASE = "consensus.sqlite"


async def fill(directory: Path, past: Path) -> None:
    """Make a database with several segments and batches, in two epochs, as a kill leaves it.

    `past` receives a copy of consensus at each time.
    """
    for times in (range(TIMES // 2), range(TIMES // 2, TIMES)):
        controller = await open_at(directory, segment_records=6)
        if not controller.exists(U1):
            await controller.create(U1, ROWS)
        for time in times:
            await put(controller, write(U1, time, time + 1, ((time, "x" * 50), time, 1)))
            if time % 8 == 0:
                await controller.settle()  # what is sealed so far is in batches
            shutil.copy(directory / DATABASE, past / f"{time:04}")
        await abandon(controller)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a database as a kill left it, and the directory of earlier states of consensus."""
    place = tmp_path_factory.mktemp("filled")
    (place / "past").mkdir()
    asyncio.run(fill(place / "data", place / "past"))
    return place / "data", place / "past"


async def contents(directory: Path) -> list[tuple[int, str]]:
    """Open the database, return its rows, and leave it as a kill does."""
    controller = await open_at(directory, compacting=False)
    try:
        snapshot = controller.snapshot(await reader(controller, U1), TIMES - 1)
        rows = (await snapshot.rows()).to_pylist()
        snapshot.release()
        return [(row["k"], row["v"]) for row in rows]
    finally:
        await abandon(controller)


def data_of(directory: Path) -> set[str]:
    return {
        path.relative_to(directory).as_posix()
        for pattern in ("*.log", "*.parquet")
        for path in directory.rglob(pattern)
    }


async def refused(directory: Path) -> bool:
    """Assert that two starts each give everything or refuse; return whether the last refused."""
    there = data_of(directory)
    for _ in range(2):
        try:
            found = await contents(directory)
        except DatabaseError:
            assert there <= data_of(directory), "a start that was refused has deleted data"
            outcome = True
        else:
            assert found == [(time, "x" * 50) for time in range(TIMES)]
            outcome = False
    return outcome


def test_flipped_bit_of_consensus_loses_nothing(filled: tuple[Path, Path], tmp_path: Path) -> None:
    async def main() -> None:
        source = random.Random(5)
        size = (filled[0] / DATABASE).stat().st_size
        outcomes = set()
        for number in range(25):
            directory = tmp_path / str(number)
            shutil.copytree(filled[0], directory)
            data = bytearray((directory / DATABASE).read_bytes())
            data[source.randrange(size)] ^= 1 << source.randrange(8)
            (directory / DATABASE).write_bytes(data)
            outcomes.add(await refused(directory))
            shutil.rmtree(directory)
        assert outcomes == {True, False}  # there are bytes that mean nothing

    run(main)


def test_foreign_file_in_log_is_ignored(filled: tuple[Path, Path], tmp_path: Path) -> None:
    async def main() -> None:
        shutil.copytree(filled[0], tmp_path / "data")
        notes = tmp_path / "data" / "log" / "my-notes.log"
        notes.write_text("not a segment")
        assert not await refused(tmp_path / "data")
        assert notes.read_text() == "not a segment"

    run(main)


def test_older_consensus_is_refused_or_loses_nothing(
    filled: tuple[Path, Path], tmp_path: Path
) -> None:
    async def main() -> None:
        outcomes = []
        for earlier in sorted(filled[1].iterdir()):
            directory = tmp_path / earlier.name
            shutil.copytree(filled[0], directory)
            shutil.copy(earlier, directory / DATABASE)
            outcomes.append(await refused(directory))
        assert all(outcomes[: TIMES // 2])  # of another epoch
        assert not outcomes[-1]

    run(main)


def test_truncated_consensus_is_refused(filled: tuple[Path, Path], tmp_path: Path) -> None:
    async def main() -> None:
        for length in (0, 50, 4096, 10_000):
            directory = tmp_path / str(length)
            shutil.copytree(filled[0], directory)
            with (directory / DATABASE).open("r+b") as file:
                file.truncate(length)
            assert await refused(directory), length

    run(main)


def heads_by_server(directory: Path) -> dict[str, Versioned]:
    async def main() -> dict[str, Versioned]:
        consensus = SqliteConsensus(directory / DATABASE)
        try:
            return await consensus.heads("")
        finally:
            await consensus.close()

    return asyncio.run(main())


@pytest.mark.parametrize("read", [heads_by_server, read_heads, foreshore_files.states])
def test_flipped_bit_does_not_expose_earlier_version(
    tmp_path: Path, read: Callable[[Path], object]
) -> None:
    """A key or a number may change with all pages valid: `log` may become `lof`."""
    path = tmp_path / DATABASE

    async def main() -> None:
        consensus = SqliteConsensus(path)
        for number in range(3):
            for key in ("epoch", "log", "shard/u1"):
                await consensus.compare_and_set(key, number or None, b"[%d]" % number)
        await consensus.close()

    asyncio.run(main())
    whole = path.read_bytes()
    right = read(tmp_path)
    refused = unharmed = 0
    for offset in range(100, len(whole)):  # behind the file's header
        if not whole[offset]:
            continue
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[offset] ^= 1 << bit
            path.write_bytes(damaged)
            try:
                assert read(tmp_path) == right, (offset, bit)
            except (DatabaseError, Determinate, foreshore_files.Unreadable):
                refused += 1
            else:
                unharmed += 1  # a letter of the table's definition, say
    assert refused > unharmed


def kill_in_a_commit(path: Path, to: Path) -> None:
    """Make consensus at `path`, and leave it in directory `to` as a kill during a commit does."""
    to.mkdir()

    async def main() -> None:
        consensus = SqliteConsensus(path)
        await consensus.compare_and_set("log", None, b"[]")
        for number in range(200):
            await consensus.compare_and_set(f"k{number:03}", None, b"x" * 2_000)
        await consensus.close()

    run(main)
    with sqlite3.connect(path, isolation_level=None) as connection:
        connection.execute("PRAGMA journal_mode = TRUNCATE")
        connection.execute("PRAGMA cache_size = 2")  # so that pages are written before the commit
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("UPDATE version SET data = zeroblob(length(data))")
        for each in (path, Path(f"{path}-journal")):
            shutil.copy(each, to)
    connection.close()


def test_journal_of_killed_commit_rolls_it_back(tmp_path: Path) -> None:
    copies = tmp_path / "killed"
    kill_in_a_commit(tmp_path / DATABASE, copies)
    before = {each.name: each.read_bytes() for each in copies.iterdir()}
    assert {head.data for head in read_heads(copies).values()} == {b"x" * 2_000, b"[]"}
    assert {each.name: each.read_bytes() for each in copies.iterdir()} == before
    journal = copies / f"{DATABASE}-journal"
    for damaged in (b"no journal", b""):
        journal.write_bytes(damaged)
        with pytest.raises(DataCorrupted):
            read_heads(copies)
        with pytest.raises(DataCorrupted):
            SqliteConsensus(copies / DATABASE)


@pytest.mark.parametrize("moment", [0, 1, 2])
@pytest.mark.parametrize("read", [read_heads, foreshore_files.states])
def test_server_may_roll_back_during_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    read: Callable[[Path], object],
    moment: int,
) -> None:
    """It comes before, between or after the copies of the database and of its journal."""
    directory = tmp_path / "killed"
    kill_in_a_commit(tmp_path / DATABASE, directory)
    copied: list[Path] = []

    def take_back() -> None:
        run(SqliteConsensus(directory / DATABASE).close)

    def copy(source: Path, to: Path) -> None:
        if len(copied) == moment:
            take_back()
        copied.append(source)
        copy_file(source, to)
        if len(copied) == moment == 2:
            take_back()

    monkeypatch.setattr(shutil, "copy", copy)
    read(directory)
    assert copied
