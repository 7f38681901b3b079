"""Temporary objects belong to their session and end with it."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from foreshore.adapter.ddl.temporary import sweep
from foreshore.catalog.durable import CATALOG_SHARD, load
from foreshore.errors import Unavailable
from foreshore.ids import is_user, temporary_schema
from tests.adapter.harness import TestEnvironment, until


def with_environment(data_dir: Path, body: Callable[[TestEnvironment], Awaitable[None]]) -> None:
    async def run() -> None:
        env = TestEnvironment(data_dir)
        await env.open()
        try:
            await body(env)
        finally:
            await env.close()

    asyncio.run(run())


def shards(env: TestEnvironment) -> set[str]:
    return {str(id) for id in env.storage.ids() if is_user(id)}


async def own_schema(env: TestEnvironment, name: str) -> str:
    return temporary_schema((await env.session(name)).pid)


def test_temporary_objects_are_protected_from_other_sessions(tmp_path: Path) -> None:
    async def body(env: TestEnvironment) -> None:
        await env.query("a", "CREATE TEMP TABLE t (a int); INSERT INTO t VALUES (1)")
        schema = await own_schema(env, "a")
        refused = "ERROR 0A000: cannot access temporary tables of other sessions"
        for sql in (
            "SELECT * FROM {}.t",
            "INSERT INTO {}.t VALUES (2)",
            "DELETE FROM {}.t",
            "TRUNCATE {}.t",
            "ALTER TABLE {}.t ALTER a SET NOT NULL",
            "CREATE INDEX ON {}.t (a)",
            "CREATE VIEW v AS SELECT * FROM {}.t",
            "COMMENT ON TABLE {}.t IS 'mine'",
            "DROP TABLE {}.t",
        ):
            assert await env.query("b", sql.format(schema)) == refused, sql
        for sql in ("CREATE TABLE {}.u (a int)", "CREATE VIEW {}.u AS SELECT 1"):
            answer = await env.query("b", sql.format(schema))
            assert "42P16: cannot create relations in temporary schemas of other" in answer
        for name in ("a", "b"):
            answer = await env.query(name, f"DROP SCHEMA {schema} CASCADE")
            assert answer.startswith("ERROR 2BP01: cannot drop schema"), answer
            answer = await env.query(name, f"ALTER TABLE {schema}.t RENAME TO u; SELECT * FROM t")
            assert (answer == refused) is (name == "b"), answer

    with_environment(tmp_path, body)


def test_temporary_objects_end_with_their_session(tmp_path: Path) -> None:
    async def body(env: TestEnvironment) -> None:
        await env.query("a", "CREATE TABLE kept (a int)")
        before = shards(env)
        await env.query("b", "CREATE TEMP TABLE t (id serial PRIMARY KEY, a int)")
        await env.query("b", "INSERT INTO t (a) SELECT g FROM generate_series(1, 10) AS g")
        await env.query("b", "CREATE VIEW v AS SELECT a FROM t; CREATE INDEX i ON v (a)")
        await env.query("b", "BEGIN; INSERT INTO t (a) VALUES (0)")
        assert len(shards(env)) == len(before) + 1
        await env.sessions.pop("b").close()
        await until(lambda: shards(env) == before)
        await env.environment.coordinator.check_settled()
        assert await env.query("a", "SELECT count(*) FROM pg_class WHERE relpersistence = 't'") == (
            "0\nSELECT 1"
        )
        assert await env.query("a", "SELECT count(*) FROM pg_namespace") == "6\nSELECT 1"

    with_environment(tmp_path, body)


def test_statement_ending_after_session_leaves_no_temporary_objects(tmp_path: Path) -> None:
    async def body(env: TestEnvironment) -> None:
        before = shards(env)
        storage, create = env.storage, env.storage.create
        begun, closed = asyncio.Event(), asyncio.Event()

        async def created(*args: Any) -> Any:
            begun.set()
            await closed.wait()
            return await create(*args)

        storage.create = created  # type: ignore[assignment, method-assign]
        creating = asyncio.ensure_future(env.query("a", "CREATE TEMP TABLE t (a int)", alone=False))
        async with asyncio.timeout(30):
            await begun.wait()
        await env.sessions.pop("a").close()
        await sweep(env.environment.coordinator, env.environment.sessions)
        closed.set()
        await creating
        await until(lambda: shards(env) == before)
        await env.environment.coordinator.check_settled()
        assert len(env.environment.coordinator.state.parts) == 1

    with_environment(tmp_path, body)


def test_failed_drop_of_temporary_objects_is_retried(tmp_path: Path) -> None:
    async def body(env: TestEnvironment) -> None:
        await env.query("a", "CREATE TEMP TABLE t (a int)")
        await env.query("b", "CREATE TEMP TABLE t (a int)")
        commits = env.environment.coordinator.catalog_commits
        commit, failed = commits.commit, asyncio.Event()

        async def fails(*_: object, **__: object) -> int:
            failed.set()
            raise Unavailable("not now")

        commits.commit = fails  # type: ignore[method-assign]
        for name in ("a", "b"):
            await env.sessions.pop(name).close()
        async with asyncio.timeout(30):
            await failed.wait()
        commits.commit = commit  # type: ignore[method-assign]
        await until(lambda: not shards(env))
        await env.environment.coordinator.check_settled()

    with_environment(tmp_path, body)


def test_temporary_objects_are_not_durable(tmp_path: Path) -> None:
    async def leave(env: TestEnvironment) -> None:
        await env.query("a", "CREATE TABLE kept (a int); INSERT INTO kept VALUES (1)")
        await env.query("a", "CREATE TEMP TABLE t (id serial PRIMARY KEY, a int)")
        await env.query("a", "INSERT INTO t (a) VALUES (5)")
        await env.query("a", "CREATE TEMP VIEW v AS SELECT a FROM t; CREATE INDEX ON t (a)")
        await env.query("a", "COMMENT ON TABLE t IS 'mine'; ALTER TABLE t ALTER a SET NOT NULL")
        assert len(shards(env)) == 2
        read, _ = env.environment.coordinator.capabilities[CATALOG_SHARD]
        snapshot = env.storage.snapshot(read, env.storage.upper(CATALOG_SHARD) - 1)
        try:
            state = load([await snapshot.rows()])
        finally:
            snapshot.release()
        assert state is not None
        assert [item.name for item in state.items() if is_user(item.id)] == ["kept"]

    async def find(env: TestEnvironment) -> None:
        assert len(shards(env)) == 1
        assert await env.query("a", "SELECT * FROM kept") == "1\nSELECT 1"
        assert await env.query("a", "SELECT relname FROM pg_class WHERE relpersistence = 't'") == (
            "SELECT 0"
        )
        # The name of the schema is given out again, and nothing is in it.
        assert await env.query("a", "CREATE TEMP TABLE t (a text); SELECT * FROM t") == (
            "CREATE TABLE\nSELECT 0"
        )

    with_environment(tmp_path, leave)
    with_environment(tmp_path, find)


def test_temporary_objects_of_others_do_not_invalidate_plans(tmp_path: Path) -> None:
    async def body(env: TestEnvironment) -> None:
        await env.query("a", "CREATE TABLE t (a int)")
        session = await env.session("a")
        prepared = await session.extended.parse("p", "SELECT * FROM t", ())
        plan = prepared.made.plan
        await env.query("b", "CREATE TEMP TABLE t (a text); DROP TABLE t")
        await session.planner.ready(prepared)
        assert prepared.made.plan is plan
        await env.query("a", "CREATE TEMP TABLE t (a int)")
        await session.planner.ready(prepared)
        assert prepared.made.plan is not plan
        await session.extended.close_statement("p")

    with_environment(tmp_path, body)


def test_temporary_table_can_be_subscribed_to(tmp_path: Path) -> None:
    async def body(env: TestEnvironment) -> None:
        await env.query("a", "CREATE TEMP TABLE t (a int); INSERT INTO t VALUES (7)")
        await env.query("a", "CREATE VIEW v AS SELECT a + 1 AS b FROM t; CREATE INDEX ON v (b)")
        for relation, value in (("t", 7), ("v", 8)):
            await env.query("a", f"BEGIN; DECLARE c CURSOR FOR SUBSCRIBE {relation}")
            found = await env.query("a", "FETCH 1 c WITH (timeout = '30s')")
            assert found.splitlines()[0].endswith(f"|1|{value}"), found
            await env.query("a", "COMMIT")
        await env.query("a", "BEGIN; DECLARE c CURSOR FOR SUBSCRIBE t; FETCH 1 c")
        await env.sessions.pop("a").close()
        await until(lambda: not shards(env))
        await env.environment.coordinator.check_settled()

    with_environment(tmp_path, body)


def test_show_create_shows_temporary(tmp_path: Path) -> None:
    async def body(env: TestEnvironment) -> None:
        await env.query("a", "CREATE TEMP TABLE t (a int DEFAULT 1) ON COMMIT DELETE ROWS")
        await env.query("a", "CREATE TEMP VIEW v AS SELECT a FROM t")
        schema = await own_schema(env, "a")
        assert await env.query("a", "SHOW CREATE TABLE t") == (
            f"foreshore.{schema}.t|CREATE TEMPORARY TABLE t (a integer DEFAULT 1) "
            "ON COMMIT DELETE ROWS\nSHOW"
        )
        assert await env.query("a", "SHOW CREATE VIEW v") == (
            f"foreshore.{schema}.v|CREATE TEMPORARY VIEW v AS SELECT a FROM foreshore.{schema}.t"
            "\nSHOW"
        )
        await env.query("a", "CREATE INDEX i ON t (a)")
        shown = f"foreshore.{schema}.i|CREATE INDEX i IN CLUSTER quickstart ON "
        assert (await env.query("a", "SHOW CREATE INDEX i")).startswith(shown)

    with_environment(tmp_path, body)


def test_name_in_regclass_constant_is_a_dependency(tmp_path: Path) -> None:
    """A view is planned at each start: what it names by a constant has to be there."""

    async def make(env: TestEnvironment) -> None:
        await env.query("a", "CREATE SCHEMA o; CREATE TABLE o.kept (a int)")
        await env.query("a", "CREATE TEMP TABLE t (a int)")
        answer = await env.query("a", "CREATE VIEW v AS SELECT 't'::regclass AS c")
        assert answer == 'CREATE VIEW\nNOTICE: view "v" will be a temporary view'
        answer = await env.query("a", "CREATE MATERIALIZED VIEW m AS SELECT 't'::regclass::oid")
        assert answer == "ERROR 0A000: materialized views must not use temporary tables or views"
        await env.query("a", "SET search_path = o, public")
        await env.query("a", "CREATE VIEW public.w AS SELECT regclass 'kept' AS c, 'kept' AS d")
        answer = await env.query("a", "DROP TABLE kept")
        assert answer.startswith("ERROR 2BP01: cannot drop table kept because other objects")
        await env.query("a", "ALTER TABLE kept RENAME TO renamed; RESET search_path")
        assert await env.query("a", "SELECT c::text, d FROM w") == "o.renamed|kept\nSELECT 1"
        assert await env.query("a", "SHOW CREATE VIEW w") == (
            "foreshore.public.w|CREATE VIEW foreshore.public.w AS "
            "SELECT regclass 'foreshore.o.renamed' AS c, 'kept' AS d\nSHOW"
        )

    async def find(env: TestEnvironment) -> None:
        assert await env.query("a", "SELECT c::text, d FROM w") == "o.renamed|kept\nSELECT 1"
        assert (await env.query("a", "SELECT * FROM v")).startswith("ERROR 42P01")

    with_environment(tmp_path, make)
    with_environment(tmp_path, find)


def test_temporary_relation_is_in_schema_0_of_mz_relations(tmp_path: Path) -> None:
    async def body(env: TestEnvironment) -> None:
        await env.query("a", "CREATE TEMP VIEW v AS SELECT 1 AS n, now() AS t; CREATE TABLE r ()")
        columns = (
            "SELECT c.name, c.type_oid FROM mz_columns c JOIN mz_relations r ON c.id = r.id"
            " WHERE r.schema_id = '0' AND r.name = 'v' ORDER BY c.position"
        )
        assert await env.query("a", columns) == "n|23\nt|1184\nSELECT 2"
        named = (
            "SELECT s.name FROM mz_relations r JOIN mz_schemas s ON s.id = r.schema_id"
            " LEFT JOIN mz_sources o ON o.id = r.id LEFT JOIN mz_sinks k ON k.id = r.id"
            " WHERE r.name = 'r' AND o.type IS NULL AND k.type IS NULL"
        )
        assert await env.query("a", named) == "public\nSELECT 1"

    with_environment(tmp_path, body)
