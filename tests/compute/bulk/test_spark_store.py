"""Spark's store, as far as it works without Spark: tails, buckets, saved files."""

import gc
from itertools import count
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foreshore.compute.bulk import spark_store
from foreshore.compute.bulk.spark_contents import (
    Clustering,
    Contents,
    StateFile,
    clustering_of,
    written_files,
)
from foreshore.compute.bulk.spark_files import Results
from foreshore.compute.bulk.spark_store import SparkStore
from foreshore.compute.bulk.step_log import StepLog
from foreshore.compute.checkpoint.kept_file import KeptFile
from foreshore.compute.checkpoint.state import Captured, Mismatch, Reader, Writer
from foreshore.compute.checkpoint.store import CheckpointStore
from foreshore.compute.delta.tables import Layout
from foreshore.compute.delta.touched import Touch
from foreshore.compute.spark.buckets import buckets_of
from foreshore.errors import QueryCanceled
from foreshore.storage.blob import FileBlob
from foreshore.storage.local_files import LocalFiles
from foreshore.types import INT8, ColumnType

SCHEMA = pa.schema([("c0", pa.int64()), ("d", pa.int64())])
LAYOUT = Layout((("c0", "BIGINT"),), (("c0",),), (("d", "BIGINT"),))
BY_NUMBER = Clustering((0,), (ColumnType(INT8),), 8)


@pytest.fixture(autouse=True)
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing ask Spark for the types of Arrow."""
    monkeypatch.setattr(spark_store, "arrow_schema", lambda columns: SCHEMA)


def entries(*numbers: int) -> pa.Table:
    return pa.table({"c0": pa.array(numbers, pa.int64()), "d": pa.array([1] * len(numbers))})


class StoreWithoutSpark(SparkStore):
    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._contents = {}
        self._changes = {}
        self._updates = {}
        self._saved = {}
        self._views = set()
        self._in_spark = {}
        self.local = None
        self._opened = None
        self.log = StepLog()
        self._results = Results(lambda: scratch)
        self._resting = 0
        self._generations = count()

    def hold_files(self, name: str, contents: Contents, *tables: pa.Table) -> None:
        """Hold contents with a file, in a bucket, for each table."""
        directory = self._directory()
        for table in tables:
            (bucket,) = buckets_of([table["c0"]], BY_NUMBER.count)
            path = directory / f"b={bucket}" / "part-0.parquet"
            path.parent.mkdir(parents=True)
            pq.write_table(table, path)
        contents.files = written_files(directory) if tables else []
        self._contents[name] = contents


class StoreOfAFullDisk(StoreWithoutSpark):
    def _write_tail(self, contents: Contents) -> None:
        raise OSError("no space left on device")

    def _consolidate(self, name: str) -> None:
        raise OSError("no space left on device")


def test_step_succeeds_when_contents_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_store, "TAIL_ENTRIES", 1)
    contents = Contents(LAYOUT)
    store = StoreOfAFullDisk(tmp_path)
    store.hold_files("s0", contents)
    store._changes["d0"] = entries(1, 2)
    store.absorb("s0", "d0")
    store.commit()  # a repeated step would add its changes twice
    store.rollback()  # of a later step without work
    assert [table.num_rows for table in contents.tail] == [2]


def test_consolidation_that_fails_is_tried_again_some_steps_later(tmp_path: Path) -> None:
    contents = Contents(LAYOUT)
    store = StoreOfAFullDisk(tmp_path)
    store.hold_files("s0", contents)
    contents.added = [StateFile(KeptFile(tmp_path / "added.parquet"), None, 1 << 20)]
    assert store.maintenance_due
    assert not store.maintain()
    for _ in range(spark_store.REST_STEPS):
        assert not store.maintenance_due
        store.commit()
    assert store.maintenance_due


def test_consolidation_that_is_cancelled_ends_and_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def cancelled(self: StoreWithoutSpark, name: str) -> None:
        raise QueryCanceled

    monkeypatch.setattr(StoreWithoutSpark, "_consolidate", cancelled)
    contents = Contents(LAYOUT)
    store = StoreWithoutSpark(tmp_path)
    store.hold_files("s0", contents)
    contents.added = [StateFile(KeptFile(tmp_path / "added.parquet"), None, 1 << 20)]
    with pytest.raises(QueryCanceled):
        store.maintain()
    assert not caplog.records
    assert store.maintenance_due


def test_a_large_tail_is_written_and_many_small_files_become_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_store, "TAIL_ENTRIES", 1)
    contents = Contents(LAYOUT)
    store = StoreWithoutSpark(tmp_path)
    store.hold_files("s0", contents)
    for number in range(spark_store.TAIL_FILES + 1):
        store._changes["d0"] = entries(2 * number, 2 * number + 1)
        store.absorb("s0", "d0")
        store.commit()
    (file,) = contents.added
    assert (file.rows, contents.tail) == (18, [])
    assert pq.read_table(file.path)["c0"].to_pylist() == list(range(18))
    assert store.maintenance_due  # all was added by ticks


def test_changes_touch_the_files_of_their_buckets_and_those_without(tmp_path: Path) -> None:
    store, contents = StoreWithoutSpark(tmp_path), Contents(LAYOUT, BY_NUMBER)
    store.hold_files("s0", contents, entries(1), entries(2), entries(3))
    contents.added = [StateFile(KeptFile(tmp_path / "added.parquet"), None, 1)]
    store._changes["d0"] = pa.table({"c0": [7], "c1": pa.array([2], pa.int64())})
    assert len(contents.paths(None)) == 4
    buckets = store._buckets(contents, (Touch("d0", (1,)),))
    assert [file.rows for file in contents.files if file.path in contents.paths(buckets)] == [1]
    assert contents.paths(buckets)[-1] == str(tmp_path / "added.parquet")
    assert store._buckets(contents, None) is None
    store._changes["d0"] = entries(*range(1000))
    assert store._buckets(contents, (Touch("d0", (0,)),)) is None


def test_buckets_are_for_large_inputs_and_keys() -> None:
    columns = (ColumnType(INT8),)
    assert clustering_of((0,), columns, 1 << 20) is None
    assert clustering_of((), columns, 1 << 40) is None
    found = clustering_of((0,), columns, 100 << 20)
    assert found is not None
    assert found.count == 32


def test_contents_are_saved_and_taken_over(tmp_path: Path) -> None:
    blob = FileBlob(tmp_path / "blob")
    for name in ("scratch", "one", "two"):
        (tmp_path / name).mkdir()
    local = LocalFiles(blob, tmp_path / "scratch" / "batches")
    checkpoints = CheckpointStore(blob, local, tmp_path / "scratch", "c", "r")
    store, contents = StoreWithoutSpark(tmp_path / "one"), Contents(LAYOUT, BY_NUMBER)
    store.hold_files("s0", contents, entries(1), entries(2))
    contents.tail = [entries(3)]
    saved = checkpoints.write(captured(store))
    assert checkpoints.write(captured(store)).kept == saved.kept  # files are stored once
    (path, _) = contents.paths(None)
    store.close()
    del store, contents
    gc.collect()
    assert not Path(path).exists()

    again = StoreWithoutSpark(tmp_path / "two")
    again.load_contents(Reader(checkpoints.read(saved)), "s0", LAYOUT, BY_NUMBER)
    found = again._contents["s0"]
    assert sorted(file.rows for file in found.files) == [1, 1]
    assert {file.bucket for file in found.files} == {
        bucket for n in (1, 2) for bucket in buckets_of([entries(n)["c0"]], 8)
    }
    assert [table["c0"].to_pylist() for table in found.tail] == [[3]]
    assert checkpoints.write(captured(again)).kept == saved.kept  # and not once more

    blob.delete(next(iter(saved.kept.values())).key)
    with pytest.raises(Mismatch):
        checkpoints.read(saved)


def captured(store: SparkStore) -> Captured:
    to = Writer()
    store.save(to)
    return to.captured


def test_a_captured_file_outlives_its_contents(tmp_path: Path) -> None:
    store, contents = StoreWithoutSpark(tmp_path), Contents(LAYOUT, BY_NUMBER)
    store.hold_files("s0", contents, entries(1))
    taken = captured(store)
    (path,) = contents.paths(None)
    contents.files = []  # consolidated
    gc.collect()
    assert Path(path).exists()
    del taken
    gc.collect()
    assert not Path(path).exists()
