"""Views on an embedded engine that Spark hydrates are exact at every time.

Each plan is packed with many cases (tests/compute/packing.py), so that a few jobs hydrate them all.
"""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foreshore.compute.bulk import spark_files
from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Cancellation, Input
from foreshore.compute.flow import hydration, spine
from foreshore.compute.flow.bulk_hydration import WritesRuns
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.flow.operators import reduce
from foreshore.compute.hydrate import shards
from foreshore.compute.hydrate.engines import BulkEngines
from foreshore.compute.hydrate.lend import SparkLender
from foreshore.compute.hydrate.policy import Machines
from foreshore.compute.spark.options import SparkOptions
from foreshore.ids import GlobalId
from foreshore.storage.batch import BatchMetadata, write_batch
from foreshore.storage.blob import FileBlob
from foreshore.storage.consolidate import consolidate, merge
from foreshore.storage.local_files import LocalFiles
from foreshore.storage.trace import Batch
from foreshore.update import update_schema
from tests.bench import tpch
from tests.compute.cases import START, rows_of, schema_of, updates
from tests.compute.hydrate.refreshes import check_refreshes
from tests.compute.packing import check_packed
from tests.compute.plans import PLANS, U2
from tests.harness import java

pytestmark = pytest.mark.full

CASES = 25


@pytest.fixture(scope="module")
def lender(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkLender]:
    """Yield one Spark for all cases; skip if there is no Java."""
    java()
    lender = SparkLender(SparkOptions(tmp_path_factory.mktemp("spark"), "local[2]", 1024), 600)
    yield lender
    lender.close()


@pytest.fixture(scope="module")
def engine(lender: SparkLender) -> Iterator[FlowEngine]:
    local = DuckDbEngine(threads=1)
    yield FlowEngine(local, BulkEngines(local, lender, "spark", Machines()))
    local.close()


@pytest.fixture(autouse=True)
def in_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hydrate in bulk whatever can be, by files that tasks write, however few rows there are."""
    monkeypatch.setattr(hydration, "BULK_ROWS", 0)
    monkeypatch.setattr(spine, "SORTED_BY_BLOCKS", 0)
    monkeypatch.setattr(reduce, "SORTED_GROUPS", 0)
    monkeypatch.setattr(spark_files, "LARGE_INPUT", 0)


SAMPLE = ("join", "count and sum by key", "sums of numerics by key", "a left join", "map")


@pytest.mark.parametrize(
    "name",
    [name if name in SAMPLE else pytest.param(name, marks=pytest.mark.slow) for name in PLANS],
)
def test_each_operator_is_exact_at_every_time(engine: FlowEngine, name: str) -> None:
    check_packed(engine, PLANS[name], Random(name), CASES)


def test_rows_of_tasks_are_read_once_and_their_files_removed(
    lender: SparkLender, tmp_path: Path
) -> None:
    path = str(tmp_path / "batch.parquet")
    rows = [((i, i % 7), START, 1) for i in range(5000)]
    pq.write_table(updates(U2.columns, rows), path, row_group_size=500)
    inputs = {U2.id: Input(schema_of(U2.columns), (path,))}
    with lender.lent("a test") as lent:
        tables = list(lent.evaluate_parts(U2, inputs, START, Cancellation()))
        left = lent.evaluate_parts(U2, inputs, START, Cancellation())
        next(left)
        left.close()
    assert sum(table.num_rows for table in tables) == 5000
    found = sum((rows_of(table, U2.columns) for table in tables), start=rows_of(tables[0][:0], ()))
    assert found == {row: 1 for row, _, _ in rows}
    assert not list(lender.scratch.glob("results*"))


@pytest.mark.slow  # another JVM
def test_an_engine_that_ended_is_started_again(lender: SparkLender, engine: FlowEngine) -> None:
    with lender.lent("a test") as lent:
        process = lent.service.session().sparkContext._gateway.proc
        process.kill()
        process.wait()
    check_packed(engine, PLANS["join"], Random(1), 2)
    assert [each.engine for each in engine.hydrations(GlobalId("t1"))] == ["spark"]


def test_a_collection_is_sorted_by_tasks(
    lender: SparkLender, engine: FlowEngine, tmp_path: Path
) -> None:
    """Its rows, with retractions in another file, are looked up by a join as if sorted here."""
    paths = [str(tmp_path / f"{name}.parquet") for name in ("many", "less")]
    rows = [((i, i % 5), START, 1) for i in range(2000)]
    pq.write_table(updates(U2.columns, rows), paths[0])
    pq.write_table(updates(U2.columns, [(row, START, -1) for row, _, _ in rows[::2]]), paths[1])
    inputs = {U2.id: Input(schema_of(U2.columns), tuple(paths))}
    assert engine._choice is not None
    chosen = engine._choice.for_hydration(GlobalId("t9"), "spark")
    assert isinstance(chosen, WritesRuns)
    found = chosen.sorted_run(U2, inputs, (1,), 7, START, Cancellation())
    assert found is not None
    (status,) = engine.hydrations(GlobalId("t9"))
    assert (status.engine, status.updates, status.rows) == ("spark", 3000, 1000)
    assert sorted(found.words[:, -2].tolist()) == list(range(1, 2000, 2))
    assert found.hashes.tolist() == sorted(found.hashes.tolist())
    assert not list(lender.scratch.glob("run-*"))


def test_batches_merged_by_tasks_are_the_same_to_the_byte(
    lender: SparkLender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shards, "RANGE_BYTES", 4000)
    schema = update_schema(schema_of(U2.columns))
    random, runs, paths = Random(1), [], []
    for number in range(3):
        rows = [((random.randrange(900), 1), random.randrange(9), 1) for _ in range(2000)]
        pieces = consolidate(updates(U2.columns, rows).to_batches(), schema, 0, tmp_path)
        runs.append(list(pieces))
        paths.append(str(tmp_path / f"{number}.parquet"))
        whole = pa.Table.from_batches(runs[-1], schema)
        pq.write_table(whole, paths[-1], row_group_size=300)
    files = LocalFiles(FileBlob(tmp_path / "blob"), tmp_path / "cache")

    def written(name: str, rows: Iterator[pa.RecordBatch]) -> Batch:
        metadata = BatchMetadata("u1", 0, 10, 5)
        return write_batch(files, f"u1/{name}", tmp_path / "scratch", schema, metadata, rows)

    merger = shards.SparkMerger(lender, 0)
    there = written("there", merger.merged(paths, schema, 5, tmp_path))
    here = written("here", merge([iter(run) for run in runs], schema, 5, tmp_path))
    assert (there.checksum, there.bytes, there.rows) == (here.checksum, here.bytes, here.rows)
    assert not list(lender.scratch.glob("merge-*"))


@pytest.mark.slow
@pytest.mark.parametrize("name", [*tpch.VIEWS, *tpch.MORE_VIEWS])
def test_a_view_of_tpch_follows_refreshes(lender: SparkLender, tmp_path: Path, name: str) -> None:
    local = DuckDbEngine(directories=[str(tmp_path)], threads=1)
    engine = FlowEngine(local, BulkEngines(local, lender, "spark", Machines()))
    check_refreshes(engine, name, tmp_path, 1)
    assert "duckdb" not in [each.engine for each in engine.hydrations(GlobalId("t1"))]
    local.close()
