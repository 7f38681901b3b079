"""Relations of objects show their statements with and without literals."""

from pathlib import Path

from tests.adapter.harness import TestEnvironment, in_environment

STATEMENTS = {
    "mz_tables": ("t", "CREATE TABLE t (a int DEFAULT 7, b text DEFAULT 'hidden')"),
    "mz_views": ("v", "CREATE VIEW v AS SELECT a FROM t WHERE b = 'hidden'"),
    "mz_materialized_views": ("m", "CREATE MATERIALIZED VIEW m AS SELECT 'hidden' AS h FROM t"),
    "mz_indexes": ("i", "CREATE INDEX i ON t ((b || 'hidden'))"),
    "mz_subscriptions": ("s", "CREATE SUBSCRIPTION s FOR (SELECT a FROM t WHERE b = 'hidden')"),
    "mz_connections": (
        "c",
        "CREATE CONNECTION c TO KAFKA (BROKER 'hidden:1') WITH (VALIDATE = false)",
    ),
    "mz_sources": ("l", "CREATE SOURCE l FROM LOAD GENERATOR COUNTER (TICK INTERVAL '700ms')"),
    "mz_types": ("y", "CREATE TYPE y AS (a int)"),
}


def test_each_relation_of_objects_has_statements_without_literals(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        for relation, (name, statement) in STATEMENTS.items():
            await env.ran("a", statement)
            shown = await env.ran(
                "a",
                f"SELECT create_sql <> redacted_create_sql, redacted_create_sql FROM {relation}"
                f" WHERE name = '{name}'",
            )
            assert shown.startswith("t|CREATE ") or relation == "mz_types", (relation, shown)
            assert ("'<REDACTED>'" in shown) == (relation != "mz_types"), shown
            assert "hidden" not in shown, shown
            assert "700" not in shown, shown

    in_environment(tmp_path, scenario)
