"""Files of checkpoints are there while a manifest names them, and are taken by the same code only."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from foreshore.compute.checkpoint.manifest import (
    FORMAT,
    Manifest,
    SavedDataflow,
    SavedState,
    digest_of,
    engine_version,
    fingerprint,
)
from foreshore.compute.checkpoint.state import Arrays, Captured
from foreshore.compute.checkpoint.store import CheckpointStore
from foreshore.compute.flow.batch import Batch
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.run import Run
from foreshore.compute.flow.spine import Spine
from foreshore.compute.protocol import DataflowDescription
from foreshore.expr.ir import Get
from foreshore.ids import GlobalId
from foreshore.storage.blob import FileBlob
from foreshore.storage.local_files import LocalFiles

ID = GlobalId("u1")
NONE = np.empty(0, np.int64)


def manifest_of(*states: SavedState) -> Manifest:
    dataflows = tuple(SavedDataflow(ID, "", 1, 1, 1, 0, each) for each in states)
    return Manifest(FORMAT, "", "", 0, 0, 0, (), (), dataflows)


def test_a_run_whose_file_was_deleted_is_written_again(tmp_path: Path) -> None:
    blob = FileBlob(tmp_path / "blobs")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    store = CheckpointStore(blob, LocalFiles(blob, scratch), scratch, "c", "r")
    numbers = np.arange(3, dtype=np.int64)
    arrays = {
        "hashes": numbers.astype(np.uint64), "words": numbers.reshape(3, 1),
        "times": numbers, "diffs": numbers,
    }  # fmt: skip
    run = Run.of(Arrays(arrays), [np.array([0])], np.uint64(0))
    captured = Captured(runs={"rows": run})
    for manifest in (manifest_of(store.write(captured)), manifest_of()):  # then without it
        store.put(manifest)
        store.collect(manifest)
    again = store.write(captured)
    store.put(manifest_of(again))
    assert store.write(captured).runs == again.runs  # it is written once
    assert np.array_equal(store.read(again).run_arrays["rows"]["times"], numbers)


def test_runs_are_read_from_files_that_were_written(tmp_path: Path) -> None:
    blob = FileBlob(tmp_path / "blobs")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    store = CheckpointStore(blob, LocalFiles(blob, scratch), scratch, "c", "r")
    keys = [np.array([0]), np.array([1])]
    words = np.arange(20_000, dtype=np.int64).reshape(-1, 2)
    batch = Batch(words, np.ones(len(words), np.int64), np.ones(len(words), np.int64))
    spine = Spine(keys, np.zeros(2, np.int64), Interner(), 1)
    (one, other) = (spine.sorted(batch.take(slice(0, 6_000))), spine.sorted(batch))
    _ = other.indexes[0].hashes  # which is made
    before = [{k: a.copy() for k, a in run.arrays().items()} for run in (one, other)]
    stored = store.write(Captured(runs={"one": one, "other": other}))
    _ = one.indexes[0].hashes  # after the run was written
    store.put(manifest_of(stored))
    store.collect(manifest_of(stored))
    store.map_runs()
    assert [is_in_file(run.words) for run in (one, other)] == [False, True]
    assert is_in_file(other.indexes[0].places)
    for run, arrays in zip((one, other), before, strict=True):
        for name, array in arrays.items():
            assert np.array_equal(run.arrays()[name], array), name
    spine.add_run(other)
    wanted = Batch(words[:9, 1:].copy(), batch.times[:9], batch.diffs[:9])
    found = spine.joined(1, wanted, NONE, np.array([0]), 2)
    assert sorted(found.words[:, 0].tolist()) == words[:9, 0].tolist()
    again = store.write(Captured(runs={"one": one, "other": other}))
    store.put(manifest_of(again))
    store.collect(manifest_of(again))
    assert again.runs["other"] == stored.runs["other"]
    store.map_runs()
    assert is_in_file(one.words)


def is_in_file(array: Any) -> bool:
    """Whether memory is a mapped file."""
    address = array.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        begin, end = (int(part, 16) for part in line.split()[0].split("-"))
        if begin <= address < end:
            return line.endswith(".arrow")
    raise AssertionError(address)


@pytest.mark.parametrize(
    "changed",
    ["foreshore/types.py", "foreshore/expr/functions/text.py", "compute/a.py", "compute/flow/b.py"],
)
def test_the_version_of_the_engine_covers_what_it_evaluates_with(
    tmp_path: Path, changed: str
) -> None:
    for name in ("foreshore/a.py", "foreshore/expr/a.py", "compute/flow/a.py", changed):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("one")
    roots = tmp_path / "foreshore", tmp_path / "compute"
    before = digest_of(*roots)
    (tmp_path / changed).write_text("two")
    assert digest_of(*roots) != before
    (tmp_path / changed).write_text("one")
    assert digest_of(*roots) == before


def test_a_memory_limit_is_no_part_of_the_plan() -> None:
    one = DataflowDescription(ID, Get(ID, ()), (ID,), (), 1)
    other = msgspec.structs.replace(one, as_of=2, memory_limit=1 << 30)
    assert fingerprint(one) == fingerprint(other)
    assert fingerprint(one) != fingerprint(msgspec.structs.replace(one, imports=()))


def test_the_version_of_the_engine_is_the_same_from_any_directory(tmp_path: Path) -> None:
    code = "from foreshore.compute.checkpoint.manifest import engine_version as v; print(v())"
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert found.stdout.strip() == engine_version()
