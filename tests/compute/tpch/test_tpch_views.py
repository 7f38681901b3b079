"""TPC-H's 22 queries as maintained views are what DuckDB computes, at each of several times.

On an embedded engine, hydrated by DuckDB and by Spark, and on Spark.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from foreshore.compute.bulk import spark_files
from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.bulk.spark import SparkEngine
from foreshore.compute.engine import Engine
from foreshore.compute.flow import hydration, spine
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.flow.operators import reduce
from foreshore.compute.hydrate.engines import BulkEngines
from foreshore.compute.hydrate.lend import SparkLender
from foreshore.compute.hydrate.policy import Machines
from foreshore.compute.spark.options import SparkOptions
from tests.compute.tpch.queries import QUERIES
from tests.compute.tpch.refreshed_views import ID, check_view
from tests.harness import java

SAMPLE = ("q16", "q19", "q21")
ALL = pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.full if name in SAMPLE else pytest.mark.slow)
        for name in QUERIES
    ],
)
ON_SPARK = pytest.mark.parametrize(  # minutes
    "name",
    [pytest.param(name, marks=[pytest.mark.slow, pytest.mark.timeout(1800)]) for name in QUERIES],
)


@pytest.fixture(scope="module")
def lender(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkLender]:
    """Yield one Spark for all views; skip if there is no Java."""
    java()
    options = SparkOptions(tmp_path_factory.mktemp("spark"), "local[2]", 1024)
    lender = SparkLender(options, 3600)
    yield lender
    lender.close()


@pytest.fixture
def in_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hydrate in bulk whatever can be, however few rows there are."""
    monkeypatch.setattr(hydration, "BULK_ROWS", 0)
    monkeypatch.setattr(spine, "SORTED_BY_BLOCKS", 0)
    monkeypatch.setattr(reduce, "SORTED_GROUPS", 0)
    monkeypatch.setattr(spark_files, "LARGE_INPUT", 0)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[DuckDbEngine]:
    """Yield an engine for the bulk work of this process."""
    engine = DuckDbEngine(directories=[str(tmp_path)], threads=1)
    yield engine
    engine.close()


def check(engine: Engine, name: str, folder: Path) -> None:
    """Assert that a view is right, and that it has rows, else it shows nothing."""
    assert check_view(engine, name, folder, seed=1) > 0


@ALL
@pytest.mark.usefixtures("in_bulk")
def test_view_hydrated_by_duckdb(local: DuckDbEngine, tmp_path: Path, name: str) -> None:
    check(FlowEngine(local), name, tmp_path)


@ON_SPARK
@pytest.mark.usefixtures("in_bulk")
def test_view_hydrated_by_spark(
    local: DuckDbEngine, lender: SparkLender, tmp_path: Path, name: str
) -> None:
    engine = FlowEngine(local, BulkEngines(local, lender, "spark", Machines()))
    check(engine, name, tmp_path)
    assert "duckdb" not in [each.engine for each in engine.hydrations(ID)]


@ON_SPARK
def test_view_on_spark(lender: SparkLender, tmp_path: Path, name: str) -> None:
    with lender.lent("views") as engine:
        assert isinstance(engine, SparkEngine)
        check(engine, name, tmp_path)
