"""Lease files: live leases protect files, others do not, and no invalid file does harm."""

import asyncio
import itertools
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from foreshore.clock import Clock, ManualClock, SystemClock
from foreshore.ids import GlobalId
from foreshore.storage import garbage
from foreshore.storage.blob import FileBlob
from foreshore.storage.controller import StorageController
from foreshore.storage.garbage import Garbage
from foreshore.storage.lease_file import (
    DIRECTORY,
    EVERYTHING,
    MAX_LEASE_MS,
    LeaseFile,
    decode,
    find_leases,
    holding,
)
from foreshore.storage.local_files import LocalFiles
from tests.effort import examples
from tests.storage.harness import ROWS, U1, U2, abandon, open_at, put, run, write

NOW = 1_700_000_000_000
PATHS = [
    *("blob/u1/000001-000001.parquet", "blob/u1/000001-000002.parquet"),
    *("blob/u10/000001-000003.parquet", "log/000000000001-000001.log"),
]
FORM = st.fixed_dictionaries(
    {
        "holds": st.lists(st.sampled_from(["blob", "blob/", "log", "blob/u1", *PATHS, "", "x"])),
        "lease_ms": st.sampled_from([1, 60_000, MAX_LEASE_MS, 10**12]),
    },
    optional={"holder": st.text(), "more": st.none()},
)


def lease(directory: Path, name: str, *holds: str, lease_ms: int = 60_000) -> Path:
    """Take a lease that was renewed just now."""
    return put_there(directory, name, json.dumps({"holds": holds, "lease_ms": lease_ms}).encode())


def put_there(directory: Path, name: str, data: bytes) -> Path:
    path = directory / DIRECTORY / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(data)
    return path


def let_end(path: Path) -> None:
    """Make the lease look expired."""
    os.utime(path, (0, 0))


# --- what a lease file says ----------------------------------------------------------------


@given(st.binary() | st.recursive(st.none(), st.lists).map(lambda v: json.dumps(v).encode()))
@example(b'{"x":' + b"[" * 100_000)
@example(b'{"holds": [], "lease_ms": 0}')
@example(b'{"holds": "blob", "lease_ms": 1}')
@example(b'{"holds": [], "lease_ms": 1}{')
def test_invalid_lease_holds_everything(data: bytes) -> None:
    found = decode("name", NOW, data)
    assert found.problem is not None
    assert (found.holds, found.lease_ms) == (EVERYTHING, MAX_LEASE_MS)
    assert all(map(holding([found]), PATHS))


@given(FORM, st.data())
def test_a_torn_lease_holds_everything(form: dict[str, object], data: st.DataObject) -> None:
    whole = json.dumps(form).encode()
    found = decode("name", NOW, whole)
    assert found.problem is None
    assert list(found.holds) == form["holds"]
    assert found.lease_ms <= MAX_LEASE_MS
    torn = whole[: data.draw(st.integers(0, len(whole) - 1))]
    assert decode("name", NOW, torn).holds == EVERYTHING


@given(st.lists(FORM), st.sampled_from(PATHS))
def test_path_holds_itself_and_everything_below(forms: list[dict[str, object]], path: str) -> None:
    found = [decode("name", NOW, json.dumps(form).encode()) for form in forms]
    holds = [each.rstrip("/") for one in found for each in one.holds]
    expected = any(each == "" or f"{path}/".startswith(f"{each}/") for each in holds)
    assert holding(found)(path) == expected


def test_lease_is_live_near_its_mtime() -> None:
    found = LeaseFile("name", NOW, 10, ())
    alive = [time - NOW for time in range(NOW - 20, NOW + 21) if found.lives(time)]
    assert alive == list(range(-9, 10))  # a clock that was set back keeps nothing for ever either


def test_directory_entry_that_is_no_file_is_no_lease(tmp_path: Path) -> None:
    assert find_leases(tmp_path) == []
    (tmp_path / DIRECTORY).write_bytes(b"")
    assert find_leases(tmp_path) == []
    (tmp_path / DIRECTORY).unlink()
    lease(tmp_path, "one", "blob")
    (tmp_path / DIRECTORY / "folder").mkdir()
    (tmp_path / DIRECTORY / "link").symlink_to("nowhere")
    os.mkfifo(tmp_path / DIRECTORY / "pipe")  # to be read only with somebody who writes
    assert [found.name for found in find_leases(tmp_path)] == ["one"]


# --- the collector -------------------------------------------------------------------------


def collector(directory: Path, clock: Clock) -> Garbage:
    blob = FileBlob(directory / "blob")
    return Garbage(directory, blob, LocalFiles(blob, directory / "cache"), clock)


def touch(path: Path, clock: Clock) -> None:
    os.utime(path, ns=(clock.now() * 1_000_000,) * 2)


def fill(directory: Path) -> None:
    for path in PATHS:
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_bytes(b"content")


NAMES = st.sampled_from(["a", "b", ".b"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("condemn"), st.sampled_from(PATHS)),
        st.tuples(st.just("take"), NAMES, FORM),
        st.tuples(st.just("garbage"), NAMES, st.binary(max_size=3)),
        st.tuples(st.just("release"), NAMES),
        st.tuples(st.just("renew"), NAMES),
        st.tuples(st.just("pass"), st.sampled_from([1, 60_000, MAX_LEASE_MS, -60_000])),
        st.tuples(st.just("collect")),
    ),
    max_size=30,
)


@settings(max_examples=examples(200))
@given(STEPS)
def test_collector_deletes_only_files_without_live_lease(steps: list[tuple[object, ...]]) -> None:
    """The collector against a model: leases as (renewed, length, holds)."""
    clock = ManualClock(NOW)
    leases: dict[str, tuple[int, int, list[str]]] = {}
    condemned: set[str] = set()
    there = set(PATHS)

    def alive(name: str) -> bool:
        renewed, length, _ = leases[name]
        return abs(clock.time - renewed) < length

    def held(path: str) -> bool:
        return any(
            each.rstrip("/") in ("", path) or path.startswith(f"{each.rstrip('/')}/")
            for name, (_, _, holds) in leases.items()
            if alive(name) and not name.startswith(".")
            for each in holds
        )

    async def main(directory: Path) -> None:
        fill(directory)
        tried = collector(directory, clock)
        tried.prepare()
        for step in steps:
            match step:
                case ("condemn", str(path)) if path not in there:
                    continue  # what has been removed is not condemned again
                case ("condemn", str(path)):
                    condemned.add(path)
                    await tried.collect([path])
                case ("take", str(name), dict(form)):
                    touch(put_there(directory, name, json.dumps(form).encode()), clock)
                    length = MAX_LEASE_MS if name == ".b" else min(form["lease_ms"], MAX_LEASE_MS)
                    leases[name] = clock.time, length, form["holds"]
                case ("garbage", str(name), bytes(data)):
                    touch(put_there(directory, name, data), clock)
                    leases[name] = clock.time, MAX_LEASE_MS, [""]
                case ("release", str(name)):
                    (directory / DIRECTORY / name).unlink(missing_ok=True)
                    leases.pop(name, None)
                case ("renew", str(name)):
                    if name in leases:
                        touch(directory / DIRECTORY / name, clock)
                        leases[name] = clock.time, *leases[name][1:]
                case ("pass", int(ms)):
                    clock.advance(ms)
                case ("collect",):
                    await tried.collect()
            if step[0] == "condemn" or (step[0] == "collect" and condemned & there):
                there.difference_update(path for path in condemned & there if not held(path))
                for name in [name for name in leases if not alive(name)]:
                    del leases[name]
            assert {path for path in PATHS if (directory / path).exists()} == there, step
            assert {path.name for path in (directory / DIRECTORY).iterdir()} == leases.keys()

    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(main(Path(directory)))


@pytest.mark.parametrize("order", sorted(set(itertools.permutations("RRRRCCC"))), ids="".join)
def test_no_order_of_steps_deletes_file_under_reader(
    tmp_path: Path, order: tuple[str, ...]
) -> None:
    """A reader: takes a lease, reads the state, holds what it names, reads. The collector: commits
    a state without the file, looks at the leases, deletes."""
    file, other = PATHS[:2]
    state = {file}
    seen: set[str] = set()
    found: list[bytes] = []
    reader: list[Callable[[], object]] = [
        lambda: lease(tmp_path, "reader", *EVERYTHING),
        lambda: seen.update(state),
        lambda: lease(tmp_path, "reader", *seen, other),
        lambda: found.extend((tmp_path / path).read_bytes() for path in seen),
    ]
    upcoming = iter(order)

    def read_until_the_collector_is_next() -> None:
        for who in upcoming:
            if who == "C":
                return
            reader.pop(0)()

    def look(directory: Path) -> list[LeaseFile]:
        read_until_the_collector_is_next()
        leases = find_leases(directory)
        read_until_the_collector_is_next()
        return leases

    async def main() -> None:
        fill(tmp_path)
        read_until_the_collector_is_next()
        state.discard(file)
        with patch.object(garbage, "find_leases", look):
            await collector(tmp_path, SystemClock()).collect([file])
        read_until_the_collector_is_next()
        assert not reader
        assert found == [b"content"] * len(seen)

    run(main)


def test_file_condemned_during_lease_check_waits(tmp_path: Path) -> None:
    first, second = PATHS[:2]

    async def main() -> None:
        fill(tmp_path)
        tried = collector(tmp_path, SystemClock())
        loop = asyncio.get_running_loop()
        condemned: list[asyncio.Task[None]] = []

        async def condemn() -> None:
            condemned.append(loop.create_task(tried.collect([second])))
            await asyncio.sleep(0)

        def look(directory: Path) -> list[LeaseFile]:
            leases = find_leases(directory)
            if not condemned:  # somebody reads the second, and then it is replaced
                lease(directory, "reader", second)
                asyncio.run_coroutine_threadsafe(condemn(), loop).result()
            return leases

        with patch.object(garbage, "find_leases", look):
            await tried.collect([first])
            await asyncio.gather(*condemned)
        assert not (tmp_path / first).exists()
        assert (tmp_path / second).exists()

    run(main)


def test_ended_lease_that_cannot_be_removed_still_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fill(tmp_path)
    clock = SystemClock()
    let_end(lease(tmp_path, "theirs", PATHS[0]))
    unlink = Path.unlink

    def refused(path: Path, missing_ok: bool = False) -> None:
        if path.parent.name == DIRECTORY:
            raise PermissionError(1, "Operation not permitted")
        unlink(path, missing_ok=missing_ok)

    async def scenario() -> None:
        garbage = collector(tmp_path, clock)
        with monkeypatch.context() as patched:
            patched.setattr(Path, "unlink", refused)
            await garbage.collect(PATHS)
            await garbage.collect()
        assert [(tmp_path / path).exists() for path in PATHS] == [True, False, False, False]
        await garbage.collect()  # whoever keeps its reader from it has let go
        assert not (tmp_path / PATHS[0]).exists()

    asyncio.run(scenario())
    assert sum("cannot be removed" in record.message for record in caplog.records) == 1


# --- of an environment ---------------------------------------------------------------------


def stored(directory: Path) -> set[str]:
    """Return the paths of all batches and segments."""
    found = [*(directory / "blob").rglob("*.parquet"), *(directory / "log").glob("*.log")]
    return {path.relative_to(directory).as_posix() for path in found}


async def deleted(directory: Path, paths: set[str]) -> None:
    deadline = time.monotonic() + 60
    while stored(directory) & paths:
        assert time.monotonic() < deadline, stored(directory) & paths
        await asyncio.sleep(0.01)


async def rewrite(
    controller: StorageController, at: int, ids: tuple[GlobalId, ...] = (U1, U2)
) -> None:
    """Replace all batches of shards, and all segments."""
    for id in ids:
        await put(controller, write(id, at, at + 1, ((at, "a"), at, 1)))
    await controller.settle()
    await asyncio.gather(*controller._compacter._deleting)


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "LOOK_SECONDS", 0.01)


async def two_shards(directory: Path) -> StorageController:
    controller = await open_at(directory)
    await controller.create(U1, ROWS)
    await controller.create(U2, ROWS)
    await rewrite(controller, 0)
    return controller


def test_leased_files_survive_compaction_drop_and_restart(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await two_shards(tmp_path)
        taken = lease(tmp_path, "reader", "blob/u1", "log")
        before = stored(tmp_path)
        await rewrite(controller, 1)
        (other,) = before - stored(tmp_path)
        assert other.startswith("blob/u2/")
        held = before - {other}
        assert {path.partition("/")[0] for path in held} == {"blob", "log"}
        after = stored(tmp_path)
        await controller.drop(U1)
        await rewrite(controller, 2, (U2,))
        assert held < stored(tmp_path)
        await abandon(controller)
        controller = await open_at(tmp_path)
        assert held < stored(tmp_path)
        let_end(taken)
        await deleted(tmp_path, held | {path for path in after if path.startswith("blob/u1/")})
        assert not taken.exists()
        await controller.close()

    run(main)


def test_lease_ended_while_server_was_down_holds_nothing(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        controller = await two_shards(tmp_path)
        taken = lease(tmp_path, "reader", *EVERYTHING)
        before = stored(tmp_path)
        await rewrite(controller, 1)
        assert before < stored(tmp_path)
        await controller.close()
        let_end(taken)
        controller = await open_at(tmp_path)
        assert not before & stored(tmp_path)  # already when it is open
        assert not taken.exists()
        await controller.close()

    run(main)


def test_unreadable_lease_is_logged_once_and_holds_until_old(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        controller = await two_shards(tmp_path)
        torn = put_there(tmp_path, "torn", b'{"holds": []')
        before = stored(tmp_path)
        for at in range(1, 4):
            await rewrite(controller, at)
        assert before < stored(tmp_path)
        complaints = [each for each in caplog.messages if "'torn'" in each]
        assert len(complaints) == 1, complaints
        assert "it holds everything for 3600 s" in complaints[0]
        let_end(torn)
        await deleted(tmp_path, before)
        assert not torn.exists()
        await controller.close()

    run(main)


def test_nothing_is_deleted_while_the_leases_cannot_be_listed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def denied(directory: Path) -> list[LeaseFile]:
        raise PermissionError(13, "Permission denied")

    async def main() -> None:
        controller = await two_shards(tmp_path)
        before = stored(tmp_path)
        with patch.object(garbage, "find_leases", denied):
            await rewrite(controller, 1)
            assert before < stored(tmp_path)
        await deleted(tmp_path, before)
        assert len([each for each in caplog.messages if "Permission denied" in each]) == 1
        await controller.close()

    run(main)


def test_server_starts_without_lease_directory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        (tmp_path / DIRECTORY).write_bytes(b"in the way")
        controller = await two_shards(tmp_path)
        assert "no leases can be taken" in caplog.text
        before = stored(tmp_path)
        await rewrite(controller, 1)
        assert not before & stored(tmp_path)
        await controller.close()

    run(main)
