"""Inspection: it shows a data directory's contents, and names any corrupt file."""

from __future__ import annotations

import json
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from foreshore.server.main import main
from foreshore.storage.directory import read_states
from foreshore.storage.inspection import BatchCheck, Checked, Inspection, inspect
from foreshore.storage.segment import FILLING
from tests.files.writing import busy, create, written
from tests.harness import file_sizes, until
from tests.storage.harness import ROWS, U1, U2, abandon, open_at, put, run, write


async def fill(directory: Path) -> None:
    """Make a database as after a kill: batches, sealed segments, an open one, a dropped shard."""
    controller = await open_at(directory, segment_records=3)
    await controller.create(U1, ROWS)
    await controller.create(U2, ROWS)
    for time in range(30):
        await put(controller, write(U1, time, time + 1, ((time % 7, "x" * time), time, 1)))
    await controller.settle()
    await controller.drop(U2)
    await controller.close()
    controller = await open_at(directory, segment_records=3, compacting=False)
    for time in range(30, 35):  # the last segment is left short of full: none is begun behind it
        await put(controller, write(U1, time, time + 1, ((time, "tail"), time, 1)))
    await abandon(controller)
    await controller._consensus.close()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("inspected") / "data"
    run(lambda: fill(directory))
    return directory


def command(directory: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["inspect", str(directory), *options])


def test_inspect_shows_contents(filled: Path) -> None:
    before = {p: p.read_bytes() for p in filled.rglob("*") if p.is_file()}
    result = command(filled, "--verify")
    assert result.exit_code == 0, result.output
    assert "verified: all data is intact" in result.output
    shown = json.loads(command(filled, "--verify", "--json").output)
    (shard,) = shown["collections"]
    assert (shard["id"], shard["since"], shard["upper"]) == (U1, 0, 35)
    assert (shard["rows"], shard["times"]) == (35, [0, 34])
    assert sum(batch["rows"] for batch in shard["batches"]) + shard["tail_rows"] == 35
    assert {grant["mode"] for grant in shard["capabilities"]} == {"read", "write"}
    assert shard["columns"] == {"k": "int64", "v": "string"}
    assert shown["epoch"] == 2
    assert not shown["segments"][-1]["sealed"]
    assert not shown["damages"]
    assert not shown["unreferenced"]
    assert {p: p.read_bytes() for p in filled.rglob("*") if p.is_file()} == before


def test_inspect_says_what_it_has_not_read(filled: Path) -> None:
    lines = command(filled).output.splitlines()
    assert lines[-1] == (
        "the states and the log are intact; --verify checks the contents of batches, too"
    )


@pytest.mark.full
@pytest.mark.parametrize("options", [[], ["--json"], ["--verify"]])
def test_end_of_the_reader_is_no_corruption(filled: Path, options: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as output:
        arguments = ["-m", "foreshore.server.main", "inspect", str(filled), *options]
        ended = subprocess.run(
            [sys.executable, *arguments], stdout=output, stderr=subprocess.PIPE, check=False
        )
    assert ended.returncode == 128 + signal.SIGPIPE
    assert ended.stderr == b""


def test_inspect_shows_live_leases_and_files_kept_by_them_alone(
    filled: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "copy"
    shutil.copytree(filled, directory)
    (directory / "blob" / "u9").mkdir()
    for name in ("kept", "left"):
        (directory / "blob" / "u9" / f"{name}.parquet").write_bytes(b"")
    form = {"holds": ["blob/u9/kept.parquet", *map(str, range(20))], "lease_ms": 60_000}
    (directory / "leases" / "one").write_text(json.dumps({**form, "holder": "somebody"}))
    (directory / "leases" / "ended").write_text(json.dumps(form))
    os.utime(directory / "leases" / "ended", (0, 0))
    shown = json.loads(command(directory, "--json").output)
    (lease,) = shown["leases"]
    assert (lease["file"], lease["holder"], lease["holds"], lease["amiss"]) == (
        *("leases/one", "somebody", form["holds"]),
        None,
    )
    assert lease["ends"] == (directory / "leases" / "one").stat().st_mtime_ns // 10**6 + 60_000
    result = command(directory)
    assert result.exit_code == 0, result.output
    assert "lease 'leases/one' of 'somebody', until " in result.output
    assert "\n    and 13 more\n" in result.output
    assert "not named by any state: blob/u9/kept.parquet, held by a lease\n" in result.output
    assert "not named by any state: blob/u9/left.parquet\n" in result.output
    (directory / "leases" / "one").write_bytes(b"torn")
    result = command(directory)
    assert result.exit_code == 0, result.output
    assert "lease 'leases/one' that is not readable, until " in result.output
    assert "not named by any state: blob/u9/left.parquet, held by a lease\n" in result.output


def kinds(directory: Path) -> dict[str, Path]:
    """Return a file of each kind."""
    log = sorted((directory / "log").glob("*.log"))
    return {
        "batch": next((directory / "blob").rglob("*.parquet")),
        "sealed": log[0],
        "open": log[-1],
        "fence": directory / "log" / "fence",
        "consensus": directory / "consensus.sqlite",
        "mark of the log": directory / "log" / "database",
        "mark of the batches": directory / "blob" / "database",
    }


def size_of(data: bytes | bytearray) -> int:
    """Return the size of a file's contents, without the filling of a segment, which says nothing."""
    return len(data.rstrip(FILLING))


def flip(path: Path) -> None:
    """Change a bit in the middle of the file; in consensus, one in each state."""
    data = bytearray(path.read_bytes())
    states = [found.end() for found in re.finditer(rb'"upper":', data)]
    for offset in states or [size_of(data) // 2]:
        data[offset] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: 50 if path.suffix == ".log" else len(data) // 2])


DAMAGES: dict[str, Callable[[Path], None]] = {"flip": flip, "cut": cut, "remove": Path.unlink}


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize(
    "kind",
    [
        *("batch", "sealed", "open", "fence", "consensus"),
        *("mark of the log", "mark of the batches"),
    ],
)
def test_inspect_names_corrupt_file(filled: Path, tmp_path: Path, kind: str, how: str) -> None:
    directory = tmp_path / "data"
    shutil.copytree(filled, directory)
    path = kinds(directory)[kind]
    DAMAGES[how](path)
    result = command(directory, "--verify", "--json")
    assert result.exit_code == 1, result.output
    assert isinstance(result.exception, SystemExit), result.exc_info
    corruptions = json.loads(result.output)["damages"]
    named = [d for d in corruptions if d["file"] == path.relative_to(directory).as_posix()]
    assert named, corruptions
    assert {d["collection"] for d in named} == {U1 if kind == "batch" else None}
    if kind in ("batch", "sealed", "open") and how != "remove":
        size = max(path.stat().st_size, kinds(filled)[kind].stat().st_size)
        assert all(0 <= d["offset"] <= size for d in named), named
    text = command(directory, "--verify")
    assert text.exit_code == 1
    assert f"DAMAGED {named[0]['file']}" in text.output
    assert ("of u1  (in no catalog)\n" in text.output) == (kind == "batch")


def summary(found: Inspection) -> object:
    assert found.states is not None
    states = found.states
    return (states.log, states.epoch, states.identity, states.traces, found.segments, found.shards)


@pytest.mark.parametrize("kind", ["batch", "sealed", "open", "consensus"])
def test_inspect_notices_any_flipped_bit(filled: Path, tmp_path: Path, kind: str) -> None:
    directory = tmp_path / "data"
    shutil.copytree(filled, directory)
    path = kinds(directory)[kind]
    whole = path.read_bytes()
    right = summary(inspect(filled, verify=True))
    chosen = random.Random(kind)
    flips = 8 if kind == "batch" else 60  # each is looked at in a process of its own
    for offset in sorted(chosen.sample(range(size_of(whole)), flips)):
        damaged = bytearray(whole)
        damaged[offset] ^= 1 << chosen.randrange(8)
        path.write_bytes(damaged)
        found = inspect(directory, verify=True)
        if not found.corruptions:  # SQLite's files have bytes that mean nothing
            assert kind == "consensus"
            assert summary(found) == right, offset


def test_batches_are_checked_in_other_processes(filled: Path, tmp_path: Path) -> None:
    """Checks are sent as Spark sends them; what they find is the same."""
    directory = tmp_path / "copy"
    shutil.copytree(filled, directory)

    def sent(checks: Sequence[BatchCheck]) -> Sequence[Checked]:
        asked.append(len(checks))
        return [pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(each))())) for each in checks]

    asked: list[int] = []
    assert summary(inspect(directory, verify=True, run=sent)) == summary(
        inspect(directory, verify=True)
    )
    batch = next((directory / "blob").rglob("*.parquet"))
    content = bytearray(batch.read_bytes())
    content[len(content) // 2] ^= 1
    batch.write_bytes(content)
    found = inspect(directory, verify=True, run=sent)
    assert [each.file for each in found.corruptions] == [batch.relative_to(directory).as_posix()]
    assert found.corruptions == inspect(directory, verify=True).corruptions
    assert len(read_states(directory).batches) in asked


def test_inspect_lists_orphan_without_calling_it_corrupt(filled: Path, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    shutil.copytree(filled, directory)
    for orphan in ("blob/u9/000001-000001.parquet", "log/000000000099-000001.log"):
        (directory / orphan).parent.mkdir(exist_ok=True)
        (directory / orphan).write_bytes(b"left behind")
    result = command(directory, "--json")
    assert result.exit_code == 0
    assert json.loads(result.output)["unreferenced"] == [
        "blob/u9/000001-000001.parquet",
        "log/000000000099-000001.log",
    ]


def test_inspect_notices_negative_multiplicity(tmp_path: Path) -> None:
    async def main() -> None:
        controller = await open_at(tmp_path / "data")
        await controller.create(U1, ROWS)
        row = (1, "a")
        await put(controller, write(U1, 0, 9, (row, 2, 1), (row, 4, -2), (row, 6, 1)))
        await controller.close()

    run(main)
    assert not inspect(tmp_path / "data").corruptions
    (corruption,) = inspect(tmp_path / "data", verify=True).corruptions
    assert corruption.message == "u1 has a row -1 times"


def test_inspect_of_no_data_directory_is_refused(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nowhere"):
        result = command(place)
        assert result.exit_code == 1
        assert "is not a data directory" in result.output
        assert isinstance(result.exception, SystemExit)


def test_inspect_of_live_directory_finds_no_corruption(data_dir: Path) -> None:
    with busy(data_dir) as server:
        with server.connect() as connection:
            create(connection)
        with written(server):
            until(lambda: bool(file_sizes(data_dir / "blob", "**/*.parquet")), "it compacts", 60)
            for _ in range(5):
                found = inspect(data_dir, verify=True)
                assert found.corruptions == []
                assert read_states(data_dir).epoch == 1
        shown = json.loads(command(data_dir, "--json").output)
    names = {shard["name"] for shard in shown["collections"]}
    assert {"foreshore.public.every", "foreshore.public.sums", "the catalog"} <= names
    stopped = command(data_dir, "--verify")
    assert stopped.exit_code == 0, stopped.output
