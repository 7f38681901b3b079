"""The beginnings of statements as SHOW CREATE writes them."""

from foreshore.sql.rewrite import statement_heads as heads
from foreshore.sql.rewrite.object_options import maintained_options, with_clause


def test_definition_gets_another_name() -> None:
    sql = 'CREATE TABLE foreshore."a.b".t (i integer)'
    assert heads.with_name(sql, "foreshore.public.n") == (
        "CREATE TABLE foreshore.public.n (i integer)"
    )
    assert heads.with_temporary_name(sql, '"N"') == 'CREATE TEMPORARY TABLE "N" (i integer)'


def test_index_gets_name_and_cluster() -> None:
    for sql in (
        "CREATE INDEX ON foreshore.public.t (i)",
        "CREATE INDEX x ON foreshore.public.t (i)",
        'CREATE INDEX "IN" IN CLUSTER c ON foreshore.public.t (i)',
        "CREATE INDEX IN CLUSTER c ON foreshore.public.t (i)",
    ):
        assert heads.index_in_cluster(sql, "n", "Large") == (
            'CREATE INDEX n IN CLUSTER "Large" ON foreshore.public.t (i)'
        )
    default = heads.index_in_cluster("CREATE DEFAULT INDEX ON a.b.v", "n", "c")
    assert default == "CREATE DEFAULT INDEX n IN CLUSTER c ON a.b.v"


def test_materialized_view_gets_name_cluster_and_options() -> None:
    sql = "CREATE MATERIALIZED VIEW a.b.m (x, y) IN CLUSTER c AS SELECT 1, 2"
    options = with_clause(maintained_options(3_600_000))
    assert heads.materialized_view_in_cluster(sql, "a.b.n", "d", options) == (
        "CREATE MATERIALIZED VIEW a.b.n (x, y) IN CLUSTER d"
        " WITH (RETAIN HISTORY FOR '01:00:00') AS SELECT 1, 2"
    )
    plain = heads.materialized_view_in_cluster(
        "CREATE MATERIALIZED VIEW a.b.m AS SELECT 1", "a.b.m", "c", with_clause([])
    )
    assert plain == "CREATE MATERIALIZED VIEW a.b.m IN CLUSTER c AS SELECT 1"


def test_cluster_and_replica_have_their_options() -> None:
    assert heads.create_cluster("c", "embedded", 2, {}) == (
        "CREATE CLUSTER c (SIZE = 'embedded', REPLICATION FACTOR = 2)"
    )
    assert heads.create_cluster("C", "duckdb", 0, {"tick_interval_ms": "100"}) == (
        "CREATE CLUSTER \"C\" (SIZE = 'duckdb', REPLICATION FACTOR = 0, TICK INTERVAL = '100ms')"
    )
    assert heads.create_cluster("c", "duckdb", 1, {"threads": "2", "memory_limit": "4GB"}) == (
        "CREATE CLUSTER c (SIZE = 'duckdb', REPLICATION FACTOR = 1, THREADS = 2, "
        "MEMORY LIMIT = '4GB')"
    )
    spark = {
        "master": "spark://h:7077", "driver_memory": "2GB", "executor_memory": "4GB",
        "shuffle_partitions": "16",
    }  # fmt: skip
    assert heads.create_cluster("c", "spark", 1, spark) == (
        "CREATE CLUSTER c (SIZE = 'spark', REPLICATION FACTOR = 1, MASTER = 'spark://h:7077', "
        "DRIVER MEMORY = '2GB', EXECUTOR MEMORY = '4GB', SHUFFLE PARTITIONS = 16)"
    )
    assert heads.create_unmanaged_cluster("c", [("r1", "duckdb"), ("R", "embedded")]) == (
        "CREATE CLUSTER c REPLICAS (r1 (SIZE = 'duckdb'), \"R\" (SIZE = 'embedded'))"
    )
    assert heads.create_replica("c", "r1", "embedded", "h:1") == (
        "CREATE CLUSTER REPLICA c.r1 (SIZE = 'embedded', ADDRESS = 'h:1')"
    )
