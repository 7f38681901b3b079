"""Relations that Materialize's tools query have its columns, and rows where there is something."""

import pytest

from tests.adapter.harness import TestEnvironment

OBJECTS = (
    "CREATE TABLE t (a int, b text)",
    "CREATE VIEW v AS SELECT a FROM t",
    "CREATE MATERIALIZED VIEW m AS SELECT count(*) AS n FROM v",
    "CREATE INDEX m_n ON m (n)",
    "CREATE TYPE some_ints AS LIST (ELEMENT TYPE = int4)",
)
ANSWERS = {
    "SELECT o.name, r.name FROM mz_internal.mz_object_transitive_dependencies d"
    " JOIN mz_objects o ON o.id = d.object_id JOIN mz_objects r ON r.id = d.referenced_object_id"
    " WHERE o.name = 'm_n' ORDER BY r.name": "m_n|m\nm_n|t\nm_n|v",
    "SELECT o.name, r.name FROM mz_internal.mz_compute_dependencies d"
    " JOIN mz_objects o ON o.id = d.object_id JOIN mz_objects r ON r.id = d.dependency_id"
    " ORDER BY 1": "m|t\nm_n|m",
    "SELECT schema_name, database_name, object_type FROM"
    " mz_internal.mz_object_fully_qualified_names WHERE name = 'm'": (
        "public|foreshore|materialized-view"
    ),
    "SELECT t.name, e.name FROM mz_list_types l JOIN mz_types t ON t.id = l.id"
    " JOIN mz_types e ON e.id = l.element_id": "some_ints|int4",
    "SELECT t.category, s.name FROM mz_types t JOIN mz_schemas s ON s.id = t.schema_id"
    " WHERE t.name = '_text'": "array|pg_catalog",
    "SELECT r.name FROM mz_functions f JOIN mz_types r ON r.id = f.return_type_id"
    " JOIN mz_types a ON a.id = f.argument_type_ids[1]"
    " WHERE f.name = 'upper' AND a.name = 'text'": "text",
    "SELECT count(*) > 500 FROM mz_operators": "t",
    "SELECT count(*) FROM mz_sources so FULL JOIN mz_sinks si USING (id)": "0",
    "SELECT count(*) FROM mz_internal.mz_notices": "0",
    "SELECT count(*) > 400 FROM mz_timezone_names": "t",
    "SELECT utc_offset, dst FROM mz_timezone_abbreviations WHERE abbreviation = 'CEST'": (
        "02:00:00|t"
    ),
    "SELECT count(*) > 0 FROM mz_recent_storage_usage WHERE size_bytes IS NOT NULL": "t",
    "SELECT type FROM mz_internal.mz_cluster_schedules LIMIT 1": "manual",
}


async def test_relations_have_rows_of_what_there_is(own_env: TestEnvironment) -> None:
    await own_env.ran("a", *OBJECTS)
    for query, rows in ANSWERS.items():
        answer = await own_env.ran("a", query)
        assert answer.rpartition("\n")[0] == rows, query


async def test_source_and_its_tables_are_sources_everywhere(own_env: TestEnvironment) -> None:
    generator = "FROM LOAD GENERATOR AUCTION (UP TO 1) FOR TABLES (bids)"
    await own_env.ran("a", f"CREATE SOURCE house {generator}")
    for relation in ("mz_objects", "mz_relations"):
        query = f"SELECT name, type FROM {relation} WHERE name IN ('bids', 'house') ORDER BY 1"
        assert (await own_env.ran("a", query)).startswith("bids|source\nhouse|source\n")
    query = (
        "SELECT name, object_type FROM mz_internal.mz_object_fully_qualified_names"
        " WHERE name IN ('bids', 'house') ORDER BY 1"
    )
    assert (await own_env.ran("a", query)).startswith("bids|source\nhouse|source\n")


@pytest.mark.parametrize("what", ["SOURCES", "SINKS", "CONNECTIONS", "TYPES", "NETWORK POLICIES"])
async def test_show_of_each_kind(env: TestEnvironment, what: str) -> None:
    assert "ERROR" not in await env.query("a", f"SHOW {what}")
