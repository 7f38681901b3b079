"""What statements need, and the check of it: tables, columns, views, cached plans."""

from pathlib import Path

from tests.adapter.harness import TestEnvironment, in_environment
from tests.adapter.rights.script import DENIED as SCRIPT
from tests.adapter.rights.script import ran, steps

DENIED = "ERROR 42501: permission denied for table t"


async def _tables(env: TestEnvironment) -> None:
    await env.ran(
        "admin",
        "CREATE TABLE t (id int PRIMARY KEY, a int, b text)",
        "CREATE TABLE u (id int)",
        "INSERT INTO t VALUES (1, 10, 'x')",
    )
    await env.ran("admin", "CREATE ROLE reader")
    await env.ran("reader", "SET SESSION AUTHORIZATION reader")


def test_select_without_rights_is_refused_until_they_are_granted(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await _tables(env)
        for sql in ("SELECT * FROM t", "SELECT a FROM t WHERE id = 1", "SELECT count(*) FROM t"):
            assert await env.query("reader", sql) == DENIED, sql
        await env.ran("admin", "GRANT SELECT ON t TO reader")
        assert await env.query("reader", "SELECT a FROM t WHERE id = 1") == "10\nSELECT 1"
        await env.ran("admin", "REVOKE SELECT ON t FROM reader")
        assert await env.query("reader", "SELECT a FROM t WHERE id = 1") == DENIED

    in_environment(tmp_path, scenario)


def test_insert_needs_the_columns_that_it_gives(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await _tables(env)
        await env.ran("admin", "GRANT INSERT (id, a) ON t TO reader")
        for given in ("VALUES (2, 1)", "VALUES (3)", "VALUES (4, 1), (5, 2)", "SELECT 6, 1"):
            assert (await env.query("reader", f"INSERT INTO t {given}")).startswith("INSERT"), given
        for given in ("VALUES (7, 1, 'x')", "VALUES (7, 1, DEFAULT)", "SELECT 7, 1, 'x'"):
            assert await env.query("reader", f"INSERT INTO t {given}") == DENIED, given

    in_environment(tmp_path, scenario)


def test_columns_of_windows_of_time_and_joins_by_time_are_needed(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await _tables(env)
        await env.ran("admin", "ALTER TABLE t ADD COLUMN at timestamp")
        await env.ran("admin", "GRANT SELECT (id, at) ON t TO reader")
        window = "TUMBLE(t, at, INTERVAL '1 minute') AS w"
        join = "t AS w ASOF JOIN t AS o ON w.id = o.id AND w.at >= o.at"
        for source in (window, join):
            assert await env.query("reader", f"SELECT w.id FROM {source}") == "SELECT 0"
            for sql in (f"SELECT w.a FROM {source}", f"SELECT w.* FROM {source}"):
                assert await env.query("reader", sql) == DENIED, sql
        excluded = "SELECT * EXCLUDE (a, b) FROM t WHERE id = 2"
        assert await env.query("reader", excluded) == "SELECT 0"
        by_a = "SELECT w.id FROM t AS w ASOF JOIN t AS o ON w.a = o.a AND w.at >= o.at"
        assert await env.query("reader", by_a) == DENIED

    in_environment(tmp_path, scenario)


def test_views_and_functions_need_the_columns_they_read_under_other_names(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await _tables(env)
        await env.ran("admin", "CREATE SCHEMA mine AUTHORIZATION reader")
        await env.ran("admin", "GRANT SELECT (id) ON t TO reader")
        await env.ran(
            "reader",
            "CREATE VIEW mine.of_id AS SELECT id FROM t",
            "CREATE VIEW mine.of_a AS SELECT a FROM t",
            "CREATE FUNCTION mine.f() RETURNS int LANGUAGE sql AS 'SELECT max(id) FROM t'",
            "CREATE FUNCTION mine.g() RETURNS int LANGUAGE sql AS 'SELECT max(a) FROM t'",
            "CREATE VIEW mine.call_id AS SELECT mine.f()",
            "CREATE VIEW mine.call_a AS SELECT mine.g()",
        )
        for change in (
            "SELECT 1",
            "ALTER TABLE t RENAME id TO was_id",
            "ALTER TABLE t RENAME a TO id",
            "ALTER TABLE t RENAME was_id TO a",
            "ALTER TABLE t DROP COLUMN b",
        ):
            await env.ran("admin", change)
            for source in ("mine.of_id", "mine.f()", "mine.call_id"):
                assert await env.query("reader", f"SELECT * FROM {source}") == "1\nSELECT 1", change
            for source in ("mine.of_a", "mine.g()", "mine.call_a"):
                assert await env.query("reader", f"SELECT * FROM {source}") == DENIED, change
            await env.reopen()
            await env.session("reader")
            await env.ran("reader", "SET SESSION AUTHORIZATION reader")

    in_environment(tmp_path, scenario)


def test_roles_are_refused_what_postgresql_refuses(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        differing = [
            f"{role}: {sql}\n  -> {answer}\n  PG {expected}"
            for role, sql, expected in steps(SCRIPT)
            if (answer := await ran(env, role, sql)) != expected
        ]
        assert not differing, "\n".join(differing)

    in_environment(tmp_path, scenario)


def test_security_invoker_of_a_view_is_shown_and_kept(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await _tables(env)
        option = "WITH (security_invoker = true)"
        await env.ran(
            "admin", f"CREATE VIEW v (x) {option} AS SELECT a FROM t", "CREATE VIEW w AS SELECT 1"
        )
        await env.ran("admin", "GRANT SELECT ON v TO reader")
        await env.reopen()
        await env.session("reader")
        await env.ran("reader", "SET SESSION AUTHORIZATION reader")
        assert await env.query("reader", "SELECT * FROM v") == DENIED
        shown = await env.ran("admin", "SHOW CREATE VIEW v")
        assert f"CREATE VIEW foreshore.public.v (x) {option} AS SELECT a" in shown, shown
        options = "SELECT relname, reloptions FROM pg_class WHERE relname IN ('v', 'w') ORDER BY 1"
        answer = await env.ran("admin", options)
        assert answer == "v|{security_invoker=true}\nw|NULL\nSELECT 2", answer
        await env.ran("admin", "ALTER VIEW v RESET (security_invoker)")
        assert await env.query("reader", "SELECT * FROM v") == "10\nSELECT 1"
        assert option not in await env.ran("admin", "SHOW CREATE VIEW v")

    in_environment(tmp_path, scenario)
