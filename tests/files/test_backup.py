"""Backups: each is one moment of the database, also under writes, and its copy can be served."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from foreshore.clock import SystemClock
from foreshore.errors import (
    DatabaseError,
    DataCorrupted,
    DuplicateFile,
    ObjectNotInPrerequisiteState,
    UndefinedFile,
)
from foreshore.ids import GlobalId, number_of
from foreshore.storage import backup, directory
from foreshore.storage.backup import LOCK_FILES, back_up, read_backup, restore
from foreshore.storage.consensus import Versioned, checksum_of
from foreshore.storage.controller import StorageController
from foreshore.storage.directory import read_states
from foreshore.storage.epoch import Register, State
from foreshore.storage.inspection import inspect
from tests.files.writing import ACCOUNTS, TOTAL, busy, create, written
from tests.harness import file_sizes, until
from tests.storage.harness import ROWS, U1, U2, open_at, put, run, write

# --- of a database that serves -------------------------------------------------------------


def foreshore(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "foreshore.server.main", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def check_whole(connection: psycopg.Connection[Any]) -> None:
    """Assert that no transfer is there in part, and that the view equals its query."""
    sums = connection.execute("SELECT count(*), sum(balance) FROM account").fetchone()
    assert sums == (ACCOUNTS, TOTAL)
    direct = "SELECT k, count(*) AS n FROM every GROUP BY k"
    for one, other in ((direct, "SELECT * FROM sums"), ("SELECT * FROM sums", direct)):
        assert connection.execute(f"{one} EXCEPT ALL {other}".encode()).fetchall() == []


def test_backup_under_writes_is_one_moment(tmp_path: Path) -> None:
    source, place, copy = tmp_path / "data", tmp_path / "backup", tmp_path / "copy"
    with busy(source) as server:
        with server.connect() as connection:
            create(connection)
            connection.execute("CREATE TABLE gone (i int)")
            connection.execute("DROP TABLE gone")
        with written(server):
            until(
                lambda: bool(file_sizes(source / "blob", "**/*.parquet")),
                "something is compacted",
                60,
            )
            first = foreshore("backup", "--from", str(source), str(place))
            assert first.returncode == 0, first.stderr
            old = {file.stored for file in read_backup(place).files}
            with server.connect() as connection:
                connection.execute("INSERT INTO account VALUES (-1, 0)")
                connection.execute("DELETE FROM account WHERE id = -1")
                connection.execute("CREATE TABLE acknowledged (i int)")
                connection.execute("INSERT INTO acknowledged VALUES (7)")
            second = foreshore("backup", "--from", server.url, str(place))
            assert second.returncode == 0, second.stderr
        new = {file.stored for file in read_backup(place).files}
        assert new != old
        found = {p.relative_to(place).as_posix() for p in place.rglob("*") if p.is_file()}
        assert found == new | {"backup.json"}  # the files of the first are gone
    restored = foreshore("restore", str(place), str(copy))
    assert restored.returncode == 0, restored.stderr
    states, before = read_states(copy), read_states(source)
    assert states.identity is not None
    assert before.identity is not None
    assert states.restored_from == before.identity != states.identity
    with busy(copy) as server, server.connect() as connection:
        check_whole(connection)
        assert connection.execute("SELECT i FROM acknowledged").fetchall() == [(7,)]
        now = connection.execute("SELECT mz_now()::text FROM account LIMIT 1").fetchone()
        with written(server):
            time.sleep(1)
        check_whole(connection)
        connection.execute("CREATE TABLE fresh (i int)")
        ids = connection.execute("SELECT id, name FROM mz_catalog.mz_tables WHERE id LIKE 'u%'")
        numbers = {name: number_of(GlobalId(id)) for id, name in ids.fetchall()}
        assert numbers["fresh"] == max(numbers.values())
        assert now is not None
        later = connection.execute("SELECT mz_now()::text FROM account LIMIT 1").fetchone()
        assert later is not None
        assert int(later[0]) >= int(now[0])
        assert read_states(copy).epoch > states.epoch


# --- of files ------------------------------------------------------------------------------


async def fill(directory: Path) -> None:
    """Make a database with batches, a log and the id of a dropped shard."""
    controller = await open_at(directory, segment_records=3)
    await controller.create(U1, ROWS)
    await controller.create(U2, ROWS)
    for time_ in range(9):
        await put(controller, write(U1, time_, time_ + 1, ((time_, "x"), time_, 1)))
    await controller.settle()
    await put(controller, write(U1, 9, 10, ((9, "tail"), 9, 1)))
    await controller.drop(U2)
    await controller.close()


async def contents(directory: Path) -> list[int | None]:
    controller = await open_at(directory)
    read = (await controller.acquire_capabilities([U1]))[U1][0]
    snapshot = controller.snapshot(read, controller.upper(U1) - 1)
    rows = (await snapshot.rows()).column("k").to_pylist()
    snapshot.release()
    assert U2 in controller.retired_ids()
    await controller.close()
    return sorted(rows)


class Killed(BaseException):
    """Simulates SIGKILL: no code of the backup runs after it."""


@contextlib.contextmanager
def killed_at(monkeypatch: pytest.MonkeyPatch, name: str, call: int) -> Iterator[None]:
    """Raise Killed at the `call`-th call of `backup.name` in the block, if there is one."""
    calls = [0]
    real = getattr(backup, name)

    def counting(*arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == call:
            raise Killed
        return real(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(backup, name, counting)
        with contextlib.suppress(Killed):
            yield


def steps(
    monkeypatch: pytest.MonkeyPatch,
    work: Callable[[Path, Path], object],
    source: Path,
    target: Path,
) -> list[tuple[str, int]]:
    """Return all points at which a backup, or a restore, can be interrupted."""
    calls: list[tuple[str, int]] = []

    def counting(name: str, real: Callable[..., Any], *arguments: Any) -> Any:
        calls.append((name, 1 + sum(name == called for called, _ in calls)))
        return real(*arguments)

    with monkeypatch.context() as patch:
        for name in ("_take", "_write", "_verify", "sync_directory"):
            patch.setattr(backup, name, partial(counting, name, getattr(backup, name)))
        work(source, target)
    return calls


def test_interrupted_first_backup_is_refused_by_restore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(lambda: fill(tmp_path / "data"))
    moments = steps(monkeypatch, back_up, tmp_path / "data", tmp_path / "whole")
    assert len(moments) > 8
    for i, (name, call) in enumerate(moments):
        place = tmp_path / f"backup{i}"
        with killed_at(monkeypatch, name, call):
            back_up(tmp_path / "data", place)
        if (name, call) != moments[-1]:  # the last syncs the name of what is complete
            with pytest.raises(UndefinedFile, match="no complete backup"):
                restore(place, tmp_path / f"copy{i}")
            assert not (tmp_path / f"copy{i}").exists()
        back_up(tmp_path / "data", place)  # takes up what is there
        restore(place, tmp_path / f"copy{i}")
    run(lambda: _equal(tmp_path / "data", tmp_path / "copy0"))


def test_restore_fills_empty_directory_in_place(tmp_path: Path) -> None:
    run(lambda: fill(tmp_path / "data"))
    back_up(tmp_path / "data", tmp_path / "backup")
    copy = tmp_path / "copy"
    copy.mkdir()
    mounted = copy.stat().st_ino
    restore(tmp_path / "backup", copy)
    assert copy.stat().st_ino == mounted
    assert {path.name for path in copy.iterdir()} == {"blob", "log", "consensus.sqlite"}
    (copy / ".restoring").mkdir()  # as if it had been killed at its very end
    run(partial(_open, copy))
    assert not (copy / ".restoring").exists()
    run(lambda: _equal(tmp_path / "data", copy))


@pytest.mark.parametrize("exists", [False, True])
def test_one_of_two_restores_to_a_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool
) -> None:
    run(lambda: fill(tmp_path / "data"))
    place, copy = tmp_path / "backup", tmp_path / "copy"
    back_up(tmp_path / "data", place)
    if exists:
        copy.mkdir()
    restore_to, errors = backup._restore_to, []

    def with_another(*args: Any) -> None:
        with pytest.raises(ObjectNotInPrerequisiteState, match="is under way") as caught:
            restore(place, copy)
        errors.append(caught.value)
        restore_to(*args)

    monkeypatch.setattr(backup, "_restore_to", with_another)
    restore(place, copy)
    assert len(errors) == 1
    run(lambda: _equal(tmp_path / "data", copy))
    with pytest.raises(DuplicateFile, match="is not empty"):
        restore(place, copy)


def test_interrupted_restore_is_refused_and_next_restore_clears_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(lambda: fill(tmp_path / "data"))
    place, whole = tmp_path / "backup", tmp_path / "whole"
    back_up(tmp_path / "data", place)
    whole.mkdir()
    moments = steps(monkeypatch, restore, place, whole)
    assert len(moments) > 8
    for i, (name, call) in enumerate(moments[:-1]):  # the last syncs what is complete
        copy = tmp_path / f"copy{i}"
        copy.mkdir()
        with monkeypatch.context() as patch, killed_at(patch, name, call):
            patch.setattr(backup, "_clear", lambda _: None)
            restore(place, copy)
        if any(copy.iterdir()):
            with pytest.raises(ObjectNotInPrerequisiteState, match="was not completed"):
                run(partial(_open, copy))
            with pytest.raises(ObjectNotInPrerequisiteState, match="was not completed"):
                read_states(copy)
        restore(place, copy)
        assert not (copy / ".restoring").exists()
    run(lambda: _equal(tmp_path / "data", tmp_path / "copy0"))


def test_restore_interrupted_after_last_step_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(lambda: fill(tmp_path / "data"))
    copy = tmp_path / "copy"
    copy.mkdir()
    back_up(tmp_path / "data", tmp_path / "backup")
    replace = Path.replace

    def interrupted(path: Path, target: Path) -> None:
        replace(path, target)
        if target == copy / "consensus.sqlite":
            raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        restore(tmp_path / "backup", copy)
    monkeypatch.undo()
    run(partial(_open, copy))
    assert not (copy / ".restoring").exists()
    run(lambda: _equal(tmp_path / "data", copy))


def test_server_starts_before_restore_has_cleaned_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(lambda: fill(tmp_path / "data"))
    copy = tmp_path / "copy"
    copy.mkdir()
    back_up(tmp_path / "data", tmp_path / "backup")
    rmtree = shutil.rmtree

    def late(path: Path) -> None:
        rmtree(path)  # as the server does
        rmtree(path)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", late)
        restore(tmp_path / "backup", copy)
    run(lambda: _equal(tmp_path / "data", copy))


def test_restore_treats_new_file_system_as_empty(tmp_path: Path) -> None:
    run(lambda: fill(tmp_path / "data"))
    place, copy = tmp_path / "backup", tmp_path / "copy"
    for mounted in (place, copy):
        (mounted / "lost+found").mkdir(parents=True)
    for name in LOCK_FILES:  # a server was refused here before it made a database
        (copy / name).touch()
    back_up(tmp_path / "data", place)
    (copy / "lost+found" / "#12").write_text("found")
    with pytest.raises(DuplicateFile, match="not empty"):
        restore(place, copy)
    (copy / "lost+found" / "#12").unlink()
    restore(place, copy)
    assert (copy / "lost+found").is_dir()
    run(lambda: _equal(tmp_path / "data", copy))


async def _open(data_dir: Path) -> None:
    controller = await StorageController.open(
        data_dir=data_dir, blob=None, consensus=None, clock=SystemClock()
    )
    await controller.close()


async def _equal(one: Path, other: Path) -> None:
    assert await contents(one) == await contents(other) == list(range(10))


def test_interrupted_backup_leaves_previous_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def more() -> None:
        controller = await open_at(tmp_path / "data", segment_records=3)
        lower = controller.upper(U1)
        await put(controller, write(U1, lower, lower + 1, ((lower, "y"), lower, 1)))
        await controller.settle()
        await controller.close()

    run(lambda: fill(tmp_path / "data"))
    back_up(tmp_path / "data", tmp_path / "first")
    run(more)
    shutil.copytree(tmp_path / "first", tmp_path / "again")
    moments = steps(monkeypatch, back_up, tmp_path / "data", tmp_path / "again")
    for i, (name, call) in enumerate(moments[:-2]):
        place = tmp_path / f"backup{i}"
        shutil.copytree(tmp_path / "first", place)
        with killed_at(monkeypatch, name, call):
            back_up(tmp_path / "data", place)
        restore(place, tmp_path / f"copy{i}")
    run(lambda: _holds(tmp_path / "copy0", 10))
    restore(tmp_path / "again", tmp_path / "last")
    run(lambda: _holds(tmp_path / "last", 11))


async def _holds(directory: Path, rows: int) -> None:
    assert len(await contents(directory)) == rows


class Last(State, frozen=True, kw_only=True):
    """The end of the numbers given out, which is durable before a row has one of them."""

    last: int


@pytest.mark.parametrize("segment_records", [1, 1000])
@pytest.mark.parametrize("at", range(1, 6))
def test_backup_of_consensus_and_log_is_of_one_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int, segment_records: int
) -> None:
    looks = 0

    async def main() -> None:
        controller = await open_at(tmp_path / "data", segment_records=segment_records)
        await controller.create(U1, ROWS)
        register = Register(controller.consensus, "numbers", Last)
        await register.claim(controller.epoch, Last(epoch=controller.epoch, last=-1))

        async def give_out() -> None:
            for _ in range(2):
                number = controller.upper(U1)
                await register.change(Last(epoch=controller.epoch, last=number))
                await put(controller, write(U1, number, number + 1, ((number, "x"), number, 1)))

        loop = asyncio.get_running_loop()

        def disturbed(read: Callable[[Path], object], data_dir: Path) -> object:
            nonlocal looks
            looks += 1
            found = read(data_dir)
            if looks == at:
                asyncio.run_coroutine_threadsafe(give_out(), loop).result()
            return found

        monkeypatch.setattr(directory, "read_heads", partial(disturbed, directory.read_heads))
        monkeypatch.setattr(backup, "read_registers", partial(disturbed, directory.read_registers))
        await give_out()
        taken = await asyncio.to_thread(back_up, tmp_path / "data", tmp_path / "backup")
        await controller.close()
        monkeypatch.undo()
        await asyncio.to_thread(restore, tmp_path / "backup", tmp_path / "copy")
        copy = await open_at(tmp_path / "copy")
        last = msgspec.json.decode(taken.states["numbers"], type=Last).last
        assert copy.upper(U1) == last + 1 >= 2
        await copy.close()

    asyncio.run(main())
    assert looks >= 3


@pytest.mark.parametrize(("log_changes", "expected"), [(False, 3), (True, 4)])
def test_backup_ends_while_times_are_reserved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log_changes: bool, expected: int
) -> None:
    run(lambda: fill(tmp_path / "data"))
    read_heads = directory.read_heads
    looks = 0

    def slow(data_dir: Path) -> dict[str, Versioned]:
        """Simulate reading very many shards, while consensus goes on."""
        nonlocal looks
        looks += 1
        assert looks <= expected, "the backup does not end"
        heads = read_heads(data_dir)
        changes = {"oracle": Versioned(looks, str(looks).encode())}
        if log_changes and looks == 2:  # then shards must be read again: these go with its segments
            changes["log"] = Versioned(heads["log"].seqno + 1, heads["log"].data)
        with closing(sqlite3.connect(data_dir / "consensus.sqlite")) as connection, connection:
            for key, new in changes.items():
                row = (key, new.seqno, new.data, checksum_of(key, new.seqno, new.data))
                connection.execute("INSERT INTO version VALUES (?, ?, ?, ?)", row)
        return heads

    monkeypatch.setattr(directory, "read_heads", slow)
    taken = back_up(tmp_path / "data", tmp_path / "backup")
    assert looks == expected
    assert int(taken.states["oracle"]) == looks - 1  # the last look is behind the copy


@pytest.mark.parametrize("step", ["read_log", "link"])
def test_backup_retries_when_file_is_removed_during_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    module = backup if step == "read_log" else os
    real = getattr(module, step)
    compacted = False

    async def main() -> None:
        controller = await open_at(tmp_path / "data", segment_records=3)
        await controller.create(U1, ROWS)

        async def grow() -> None:
            lower = controller.upper(U1)
            for time_ in range(lower, lower + 4):
                await put(controller, write(U1, time_, time_ + 1, ((time_, "x"), time_, 1)))
            await controller.settle()

        loop = asyncio.get_running_loop()

        def late(*arguments: Any) -> Any:
            """Simulate another file system, and a compaction at the worst moment."""
            nonlocal compacted
            found = real(*arguments) if step == "read_log" else None
            if not compacted:
                compacted = True
                before = file_sizes(tmp_path / "data", "**/*-*")
                asyncio.run_coroutine_threadsafe(grow(), loop).result()
                until(lambda: any(not path.exists() for path in before), "a file has gone", 30)
            if step == "link":
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            return found

        await grow()
        with monkeypatch.context() as patch:
            patch.setattr(module, step, late)
            await asyncio.to_thread(back_up, tmp_path / "data", tmp_path / "backup")
        await asyncio.to_thread(restore, tmp_path / "backup", tmp_path / "copy")
        copy = await open_at(tmp_path / "copy")
        assert copy.upper(U1) >= 4
        await copy.close()
        await controller.close()

    asyncio.run(main())
    assert compacted


def test_second_backup_copies_only_new_files(tmp_path: Path) -> None:
    run(lambda: fill(tmp_path / "data"))
    back_up(tmp_path / "data", tmp_path / "backup")
    batches = {path: path.stat() for path in (tmp_path / "backup" / "blob").rglob("*.parquet")}
    assert batches
    for path, found in batches.items():  # links, as both are on one file system
        assert found.st_nlink == 2, path
        path.unlink()
        shutil.copy(tmp_path / "data" / path.relative_to(tmp_path / "backup"), path)
        os.utime(path, (1, 1))
    back_up(tmp_path / "data", tmp_path / "backup")
    assert all(path.stat().st_mtime == 1 for path in batches)


def test_second_backup_replaces_corrupt_files(tmp_path: Path) -> None:
    run(lambda: fill(tmp_path / "data"))
    place = tmp_path / "backup"
    back_up(tmp_path / "data", place)
    for path in (place / "blob").rglob("*.parquet"):
        whole = path.read_bytes()
        for damaged in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1])):
            path.unlink()  # it is a link to the source's
            path.write_bytes(damaged)
            back_up(tmp_path / "data", place)
            assert path.read_bytes() == whole
    restore(place, tmp_path / "copy")
    run(lambda: _equal(tmp_path / "data", tmp_path / "copy"))


def test_restore_names_corrupt_file_of_backup(tmp_path: Path) -> None:
    run(lambda: fill(tmp_path / "data"))
    place = tmp_path / "backup"
    for file in back_up(tmp_path / "data", place).files:
        path = place / file.stored
        whole = path.read_bytes()
        for damaged in (whole[:-1], whole[:-1] + bytes([whole[-1] ^ 1]), None):
            path.unlink()  # it may be a link to the source's
            if damaged is not None:
                path.write_bytes(damaged)
            with pytest.raises(DataCorrupted, match=path.name):
                restore(place, tmp_path / "copy")
            assert not (tmp_path / "copy").exists()
            path.write_bytes(whole)
    manifest = place / "backup.json"
    whole = manifest.read_bytes()
    for offset in range(len(whole)):
        flipped = bytearray(whole)
        flipped[offset] ^= 1
        manifest.write_bytes(flipped)
        with pytest.raises(DatabaseError):
            restore(place, tmp_path / "copy")
    manifest.write_bytes(whole)
    restore(place, tmp_path / "copy")
    assert not inspect(tmp_path / "copy", verify=True).corruptions  # before anybody has served it
    assert json.loads(whole)["backup"]["version"] == 1


def test_backup_to_foreign_place_is_refused(tmp_path: Path) -> None:
    run(lambda: fill(tmp_path / "data"))
    run(lambda: fill(tmp_path / "other"))
    back_up(tmp_path / "data", tmp_path / "backup")
    with pytest.raises(DuplicateFile, match="another database"):
        back_up(tmp_path / "other", tmp_path / "backup")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    with pytest.raises(DuplicateFile, match="not empty"):
        back_up(tmp_path / "data", tmp_path / "full")
    with pytest.raises(DuplicateFile, match="not empty"):
        restore(tmp_path / "backup", tmp_path / "full")
    restore(tmp_path / "backup", tmp_path / "copy")
    with pytest.raises(DuplicateFile, match="another database"):
        back_up(tmp_path / "copy", tmp_path / "backup")
    refused = foreshore("restore", str(tmp_path / "data"), str(tmp_path / "new"))
    assert refused.returncode == 1
    assert "no complete backup" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("compacted", [False, True])
def test_backup_of_other_history_is_refused(tmp_path: Path, compacted: bool) -> None:
    data, place = tmp_path / "data", tmp_path / "backup"

    async def grow(value: str) -> None:
        controller = await open_at(data, segment_records=1 if compacted else 1000)
        lower = controller.upper(U1)
        await put(controller, write(U1, lower, lower + 1, ((lower, value), lower, 1)))
        if compacted:
            await controller.settle()
        await controller.close()

    run(lambda: fill(data))
    shutil.copytree(data, tmp_path / "old")
    run(lambda: grow("y"))
    first = back_up(data, place)
    kept = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    shutil.rmtree(data)
    shutil.copytree(tmp_path / "old", data)  # which has no identity of its own
    run(lambda: grow("z"))
    with pytest.raises(DuplicateFile, match="another history"):
        back_up(data, place)
    assert {path: path.read_bytes() for path in place.rglob("*") if path.is_file()} == kept
    restore(place, tmp_path / "copy")
    second = back_up(data, tmp_path / "elsewhere")
    assert {file.stored for file in first.files} & {file.stored for file in second.files}
