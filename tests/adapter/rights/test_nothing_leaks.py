"""What a role without rights sees of rows that it may not read."""

from pathlib import Path

import pytest

from foreshore.adapter.client import Startup
from foreshore.catalog.builtin.registry import BUILTINS
from foreshore.catalog.rights import FOR_STATISTICS, FOR_SUPERUSERS
from foreshore.errors import InsufficientPrivilege
from tests.adapter.harness import TestEnvironment, in_environment

HIDDEN = "4471kingfisher"  # a value in rows that others may not read


async def _rows(env: TestEnvironment) -> None:
    await env.ran(
        "admin",
        "CREATE TABLE t (id int PRIMARY KEY, a text NOT NULL, n int, CHECK (n > 0))",
        f"INSERT INTO t VALUES (1, '{HIDDEN}', 1)",
        "CREATE TABLE u (id int REFERENCES t)",
        "INSERT INTO u VALUES (1)",
        "CREATE MATERIALIZED VIEW broken AS SELECT a::int AS i FROM t",
        "CREATE ROLE reader",
    )
    await env.ran("reader", "SET SESSION AUTHORIZATION reader")


def test_system_relations_show_no_rows_of_others(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await _rows(env)
        refused = set()
        for name in ("mz_internal.mz_materialized_view_errors", "mz_catalog.mz_audit_events"):
            answer = await env.query("reader", f"SELECT * FROM {name}")
            assert answer.startswith("ERROR 42501: permission denied for table"), answer
        for each in sorted(BUILTINS.values(), key=lambda each: (each.schema, each.name)):
            answer = await env.query("reader", f"SELECT * FROM {each.schema}.{each.name}")
            assert HIDDEN not in answer, (each.name, answer)
            if any(line.startswith("ERROR ") for line in answer.splitlines()):
                assert answer.startswith("ERROR 42501: permission denied for "), answer
                refused.add(each.name)
        assert refused == (FOR_SUPERUSERS | FOR_STATISTICS) & {
            each.name for each in BUILTINS.values()
        }

    in_environment(tmp_path, scenario)


def test_details_of_broken_constraints_have_no_values_of_unreadable_columns(
    tmp_path: Path,
) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await _rows(env)
        await env.ran("admin", "GRANT INSERT, UPDATE, DELETE ON t, u TO reader")
        for sql, detail in (
            ("INSERT INTO t VALUES (1, 'x', 1)", None),
            ("INSERT INTO t VALUES (2, NULL, 1)", None),
            ("UPDATE t SET n = -1", None),
            ("INSERT INTO u VALUES (7)", 'Key is not present in table "t".'),
            ("DELETE FROM t", 'Key is still referenced from table "u".'),
        ):
            answer = await env.query("reader", sql)
            assert answer.startswith("ERROR 23"), answer
            assert HIDDEN not in answer, answer
            assert ("DETAIL" in answer) == (detail is not None), answer
            assert detail is None or detail in answer, answer
        await env.ran("admin", "GRANT SELECT (id, n) ON t TO reader")
        answer = await env.query("reader", "UPDATE t SET n = -1")
        assert "DETAIL: Failing row contains (id, n) = (1, -1)." in answer, answer
        answer = await env.query("reader", "INSERT INTO t VALUES (1, 'x', 1)")
        assert "DETAIL: Key (id)=(1) already exists." in answer, answer

    in_environment(tmp_path, scenario)


def test_sessions_of_other_roles_show_no_statements(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await _rows(env)
        await env.ran("admin", f"SELECT '{HIDDEN}'")
        shown = "SELECT query, state FROM pg_stat_activity WHERE usename <> current_user"
        assert await env.query("reader", shown) == "<insufficient privilege>|NULL\nSELECT 1"
        signal = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'foreshore'"
        )
        answer = await env.query("reader", signal)
        assert answer == "ERROR 42501: must be a superuser to terminate superuser process"

    in_environment(tmp_path, scenario)


def test_rights_are_checked_again_where_a_plan_is_known(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await _rows(env)
        await env.ran("admin", "GRANT SELECT ON t TO reader")
        session = await env.session("reader")
        queries = ("SELECT a FROM t WHERE id = 1", "SELECT a FROM t", "SELECT count(*) FROM t, u")
        await env.ran("admin", "GRANT SELECT ON u TO reader", *queries)
        await env.ran("reader", *queries, "PREPARE p AS SELECT a FROM t WHERE id = $1")
        prepared = await session.extended.parse("named", queries[0], ())
        await session.extended.sync()
        await session.extended.run(prepared, [()], (), 0, last=True)
        await session.extended.sync()
        await env.ran("admin", "REVOKE SELECT ON t FROM reader")
        await session.extended.ready(prepared)
        with pytest.raises(InsufficientPrivilege):
            await session.extended.run(prepared, [()], (), 0, last=True)
        await session.fail()
        await session.extended.sync()
        for sql in (*queries, "EXECUTE p(1)", "EXPLAIN EXECUTE p(1)"):
            answer = await env.query("reader", sql)
            assert answer.startswith("ERROR 42501: permission denied for table t") or (
                sql.startswith("EXPLAIN EXECUTE") and "ERROR 0A000" in answer
            ), (sql, answer)

    in_environment(tmp_path, scenario)


def test_settings_sequences_and_definitions_are_shown_to_those_with_rights(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await _rows(env)
        await env.ran(
            "admin",
            "CREATE SEQUENCE q",
            "SELECT nextval('q')",
            "CREATE TABLE d (x int DEFAULT 4471, y int)",
            "CREATE VIEW v AS SELECT 4471 AS x",
        )
        assert str(tmp_path) in await env.ran("admin", "SHOW ALL")
        assert str(tmp_path) not in await env.ran("reader", "SHOW ALL")
        for call in ("'data_directory'", "'data_directory', true", "lower('DATA_DIRECTORY')"):
            answer = await env.query("reader", f"SELECT current_setting({call})")
            assert answer.startswith("ERROR 42501: must be superuser or have"), answer
        last = "SELECT last_value, pg_sequence_last_value('q') FROM pg_sequences"
        assert await env.ran("reader", last) == "NULL|NULL\nSELECT 1"
        await env.ran("admin", "GRANT USAGE ON SEQUENCE q TO reader")
        assert await env.ran("reader", last) == "1|1\nSELECT 1"
        named = "FROM information_schema.{} WHERE table_name IN ('d', 'v')"
        tables = f"SELECT table_name {named.format('tables')} ORDER BY 1"
        columns = f"SELECT column_name, column_default {named.format('columns')} ORDER BY 1"
        views = f"SELECT view_definition {named.format('views')}"
        for sql in (tables, columns, views):
            assert await env.ran("reader", sql) == "SELECT 0"
        await env.ran("admin", "GRANT SELECT (x) ON d TO reader", "GRANT INSERT ON v TO reader")
        assert await env.ran("reader", tables) == "d\nv\nSELECT 2"
        assert await env.ran("reader", columns) == "x|NULL\nx|NULL\nSELECT 2"
        assert await env.ran("reader", views) == "NULL\nSELECT 1"
        assert await env.ran("admin", columns) == "x|4471\nx|NULL\ny|NULL\nSELECT 3"

    in_environment(tmp_path, scenario)


def test_constraints_are_shown_to_those_with_rights_on_their_tables(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await _rows(env)
        await env.ran("admin", "CREATE SCHEMA unseen")
        listed = "SELECT count(*) FROM information_schema.{} WHERE constraint_schema = 'public'"
        counts = {
            "table_constraints": (5, 4),  # t has a key, a check and two NOT NULLs, u a foreign key
            "key_column_usage": (2, 1),
            "constraint_column_usage": (3, 0),
            "referential_constraints": (1, 0),
        }
        for relation in counts:
            sql = listed.format(relation)
            assert await env.ran("reader", sql) == "0\nSELECT 1", relation
        await env.ran("admin", "GRANT SELECT ON t TO reader")
        assert await env.ran("reader", listed.format("table_constraints")) == "0\nSELECT 1"
        assert await env.ran("reader", listed.format("key_column_usage")) == "1\nSELECT 1"
        await env.ran("admin", "GRANT INSERT ON t TO reader")
        for relation, (of_all, of_t) in counts.items():
            sql = listed.format(relation)
            shown = await env.ran("admin", sql), await env.ran("reader", sql)
            assert shown == (f"{of_all}\nSELECT 1", f"{of_t}\nSELECT 1"), relation
        schemas = "SELECT schema_name FROM information_schema.schemata WHERE schema_name ~ '^[pu]u'"
        assert await env.ran("reader", schemas) == "public\nSELECT 1"
        schemas = schemas.replace("'^[pu]u'", "'^unseen'")
        assert await env.ran("reader", schemas) == "SELECT 0"
        await env.ran("admin", "GRANT USAGE ON SCHEMA unseen TO reader")
        assert await env.ran("reader", schemas) == "unseen\nSELECT 1"

    in_environment(tmp_path, scenario)


def test_session_restricted_to_user_objects_reads_no_system_relation(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran(
            "admin",
            "CREATE ROLE agent LOGIN",
            "ALTER ROLE agent SET restrict_to_user_objects = on",
            "CREATE TABLE t (x int)",
            "CREATE VIEW names AS SELECT relname FROM pg_class WHERE relname = 't'",
            "GRANT SELECT ON t, names TO agent",
        )
        env.sessions["agent"] = await env.environment.connect(Startup("agent", "foreshore", {}))
        refused = "ERROR 42501: system relation"
        for each in sorted(BUILTINS.values(), key=lambda each: (each.schema, each.name)):
            answer = await env.query("agent", f"SELECT count(*) FROM {each.schema}.{each.name}")
            is_shown = each.schema == "information_schema"
            assert answer.startswith(refused) != is_shown, (each.name, answer)
        for sql in (
            "SHOW TABLES",
            "SELECT (SELECT count(*) FROM pg_class)",
            "WITH c AS (TABLE pg_class) SELECT count(*) FROM c",
            "INSERT INTO t SELECT 1 FROM pg_class",
            "COPY (TABLE pg_class) TO STDOUT",
            "EXPLAIN SELECT * FROM pg_class",
            "CREATE TEMP VIEW v AS TABLE pg_class",
            "CREATE TEMP TABLE v AS TABLE pg_class",
            "DECLARE c CURSOR WITH HOLD FOR TABLE pg_class",
            "TABLE mz_catalog.mz_audit_events",
            "SET restrict_to_user_objects = off",
            "ALTER ROLE agent RESET restrict_to_user_objects",
        ):
            assert "ERROR" in await env.query("agent", sql), sql
        await env.ran("agent", "PREPARE p AS SELECT count(*) FROM pg_class", "RESET ALL")
        assert (await env.query("agent", "EXECUTE p")).startswith(refused)
        assert await env.ran("agent", "TABLE t") == "SELECT 0"
        assert await env.ran("agent", "TABLE names") == "t\nSELECT 1"

    in_environment(tmp_path, scenario)
