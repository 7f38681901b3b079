"""Statements that are shown: without constants, of each kind of object, in the catalog."""

from pathlib import Path

from tests.adapter.harness import TestEnvironment, in_environment

SECRET = "hush"
CREATED = {
    "TABLE t": f"CREATE TABLE t (a int DEFAULT 4711, b numeric(10, 2), c varchar(30) DEFAULT '{SECRET}',"
    f" CHECK (c <> E'{SECRET}' AND a < 4711))",
    "VIEW v": f"CREATE VIEW v AS SELECT a + 4711 AS x, $${SECRET}$$ AS y FROM t -- {SECRET}\n",
    "MATERIALIZED VIEW mv": f"CREATE MATERIALIZED VIEW mv AS SELECT * FROM t WHERE c = '{SECRET}'",
    "INDEX i": f"CREATE INDEX i ON t ((c || '{SECRET}'))",
    "TYPE m": f"CREATE TYPE m AS ENUM ('{SECRET}')",
    "CLUSTER k": f"CREATE CLUSTER k (REPLICATION FACTOR = 0, WORKLOAD CLASS = '{SECRET}')",
    "CONNECTION c": f"CREATE CONNECTION c TO KAFKA (BROKER '{SECRET}:4711') WITH (VALIDATE = false)",
    "SOURCE s": "CREATE SOURCE s FROM LOAD GENERATOR COUNTER (TICK INTERVAL '4711s')",
}


def test_redacted_statement_shows_no_constant(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        for name, create in CREATED.items():
            await env.ran("a", create)
            shown = await env.ran("a", f"SHOW CREATE {name}")
            assert SECRET in shown or "4711" in shown, shown
            redacted = await env.ran("a", f"SHOW REDACTED CREATE {name}")
            assert SECRET not in redacted, redacted
            assert "4711" not in redacted, redacted
            assert "'<REDACTED>'" in redacted
        table = await env.ran("a", "SHOW REDACTED CREATE TABLE t")
        assert "b numeric(10,2)" in table
        assert "c character varying(30)" in table

    in_environment(tmp_path, scenario)


def test_catalog_has_the_statements_of_sources_and_their_tables(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran(
            "a",
            "CREATE SOURCE s FROM LOAD GENERATOR COUNTER",
            "CREATE SOURCE g FROM LOAD GENERATOR AUCTION FOR ALL TABLES",
            "CREATE CONNECTION c TO KAFKA (BROKER 'localhost:9092') WITH (VALIDATE = false)",
        )
        for relation, kind, name in (
            ("mz_sources", "SOURCE", "s"),
            ("mz_sources", "SOURCE", "g"),
            ("mz_connections", "CONNECTION", "c"),
            ("mz_tables", "TABLE", "bids"),
        ):
            shown = await env.ran("a", f"SHOW CREATE {kind} {name}")
            sql = f"SELECT create_sql FROM {relation} WHERE name = '{name}'"
            statement = (await env.ran("a", sql)).split("\n")[0]
            assert statement in shown, (relation, name)
        missing = "SELECT name FROM mz_sources WHERE create_sql IS NULL"
        assert await env.query("a", missing) == "SELECT 0"
        tables = (
            "SELECT t.name FROM mz_tables t JOIN mz_sources s ON s.id = t.source_id"
            " WHERE s.name = 'g' ORDER BY t.name"
        )
        assert "bids" in await env.ran("a", tables)
        await env.ran("a", "ALTER SOURCE g RENAME TO h")
        sql = "SELECT create_sql FROM mz_tables WHERE name = 'bids'"
        assert "public.h " in await env.ran("a", sql)

    in_environment(tmp_path, scenario)


def test_workload_class_is_kept_and_replaces_no_replica(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        replicas = "SELECT id FROM mz_cluster_replicas ORDER BY id"
        classes = "SELECT c.workload_class FROM mz_internal.mz_cluster_workload_classes c JOIN"
        classes += " mz_clusters USING (id) WHERE name = 'k'"
        await env.ran("a", "CREATE CLUSTER k (WORKLOAD CLASS = 'batch')")
        before = await env.ran("a", replicas)
        assert (await env.ran("a", classes)).startswith("batch\n")
        await env.ran("a", "ALTER CLUSTER k SET (WORKLOAD CLASS = 'it''s')")
        assert "WORKLOAD CLASS = 'it''s'" in await env.ran("a", "SHOW CREATE CLUSTER k")
        assert await env.ran("a", replicas) == before
        await env.reopen()
        assert (await env.ran("a", classes)).startswith("it's\n")
        await env.ran("a", "ALTER CLUSTER k RESET (WORKLOAD CLASS)")
        assert (await env.ran("a", classes)).startswith("NULL\n")
        assert await env.ran("a", replicas) == before

    in_environment(tmp_path, scenario)
