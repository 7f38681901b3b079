"""The catalog lock: one transaction at a time changes permanent objects, others wait for it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from foreshore.adapter.session.transactions import Transactions
from foreshore.errors import QueryCanceled
from tests.adapter.harness import TestEnvironment, until

BASE = (
    "CREATE TABLE t (id int PRIMARY KEY, v int)",
    "CREATE TABLE u (id int PRIMARY KEY, v int)",
    "CREATE VIEW vv AS SELECT v FROM t",
    "CREATE SEQUENCE n",
    "CREATE SCHEMA made",
    "CREATE CLUSTER c (SIZE 'embedded', REPLICATION FACTOR 0)",
)


class Database:
    """A database of its own in the shared environment, with sessions of its own."""

    def __init__(self, env: TestEnvironment, name: str) -> None:
        self._env = env
        self.name = name

    async def open(self) -> None:
        await self._env.query(self.name, f"CREATE DATABASE {self.name}")
        await self.ran("s", *(each.replace("CLUSTER c", f"CLUSTER {self.name}") for each in BASE))

    async def query(self, session: str, sql: str) -> str:
        name = f"{self.name}.{session}"
        if name not in self._env.sessions:
            await self._env.query(name, f"SET database = {self.name}", alone=False)
        return await self._env.query(name, sql.replace(" c.", f" {self.name}."), alone=False)

    async def ran(self, session: str, *statements: str) -> None:
        for sql in statements:
            answer = await self.query(session, sql)
            assert "ERROR" not in answer, (sql, answer)

    async def waits(self, session: str, sql: str) -> "asyncio.Task[str]":
        """Return the task of a statement that waits for a lock."""
        await self.query(session, "SELECT 1")
        waiting = self._env.environment.coordinator.locks._waiting
        before = len(waiting)
        task = asyncio.ensure_future(self.query(session, sql))
        await until(lambda: task.done() or len(waiting) > before, 5)
        assert not task.done(), task.result()
        return task

    def transactions(self, session: str) -> Transactions:
        return self._env.sessions[f"{self.name}.{session}"].transactions

    def interrupt(self, session: str) -> None:
        self._env.sessions[f"{self.name}.{session}"].interrupts.request(QueryCanceled())


def run(
    runner: asyncio.Runner, env: TestEnvironment, scenario: Callable[[Database], Awaitable[None]]
) -> None:
    async def main() -> None:
        database = Database(env, f"lock{len(env.sessions)}")
        await database.open()
        await scenario(database)

    runner.run(main())


@pytest.mark.parametrize(
    ("own", "others", "answer"),
    [
        (
            "CREATE UNIQUE INDEX k ON t (v)",
            "ALTER TABLE u ADD CONSTRAINT k UNIQUE (v)",
            'ERROR 42P07: relation "k" already exists',
        ),
        (
            "CREATE VIEW k AS SELECT 1",
            "CREATE UNIQUE INDEX k ON t (v)",
            'ERROR 42P07: relation "k" already exists',
        ),
        ("DROP SCHEMA made", "CREATE TABLE made.y (i int)", "ERROR 3F000"),
        ("CREATE TABLE made.y (i int)", "DROP SCHEMA made", "ERROR 2BP01"),
        ("DROP TABLE u", "CREATE SEQUENCE q OWNED BY u.v", "ERROR 42P01"),
        ("ALTER TABLE u DROP v", "ALTER SEQUENCE n OWNED BY u.v", "ERROR 42703"),
        ("ALTER TABLE u RENAME v TO w", "CREATE INDEX i ON u (v)", "ERROR 42703"),
        ("ALTER TABLE u ADD w int", "ALTER TABLE u ADD w int", "ERROR 42701"),
        ("ALTER TABLE u ADD w int", "CREATE VIEW w AS SELECT v FROM u", "CREATE VIEW"),
        ("CREATE VIEW a AS SELECT 1", "CREATE VIEW b AS SELECT 1", "CREATE VIEW"),
    ],
)
def test_second_ddl_waits_for_first_transaction_and_sees_its_outcome(
    runner: asyncio.Runner, env: TestEnvironment, own: str, others: str, answer: str
) -> None:
    async def main(database: Database) -> None:
        await database.ran("s", "BEGIN", own)
        waiting = await database.waits("other", others)
        await database.ran("s", "COMMIT")
        assert (await waiting).startswith(answer)

    run(runner, env, main)


@pytest.mark.parametrize("end", ["ROLLBACK", "ROLLBACK TO a"])
def test_rollback_releases_catalog_lock(
    runner: asyncio.Runner, env: TestEnvironment, end: str
) -> None:
    async def main(database: Database) -> None:
        await database.ran("s", "BEGIN", "SAVEPOINT a", "CREATE VIEW k AS SELECT 1")
        waiting = await database.waits("other", "CREATE VIEW k AS SELECT 2 AS a")
        await database.ran("s", end)
        assert await waiting == "CREATE VIEW"
        await database.ran("s", "COMMIT")
        assert await database.query("s", "SELECT a FROM k") == "2\nSELECT 1"

    run(runner, env, main)


def test_wait_for_catalog_lock_ends_with_lock_timeout_and_cancel(
    runner: asyncio.Runner, env: TestEnvironment
) -> None:
    async def main(database: Database) -> None:
        await database.ran("s", "BEGIN", "DROP VIEW vv")
        await database.ran("other", "SET lock_timeout = '50ms'")
        assert (await database.query("other", "CREATE VIEW k AS SELECT 1")).startswith(
            "ERROR 55P03"
        )
        await database.ran("other", "SET lock_timeout = 0")
        waiting = await database.waits("other", "CREATE VIEW k AS SELECT 1")
        database.interrupt("other")
        assert (await waiting).startswith("ERROR 57014")
        await database.ran("s", "ROLLBACK")
        await database.ran("other", "CREATE VIEW k AS SELECT 1")

    run(runner, env, main)


def test_transaction_is_overdue_once_others_wait_for_its_catalog_lock(
    runner: asyncio.Runner, env: TestEnvironment
) -> None:
    async def main(database: Database) -> None:
        await database.ran("s", "SET max_catalog_lock_time = '1ms'", "BEGIN", "DROP VIEW vv")
        holder = database.transactions("s")
        await until(
            lambda: env.environment.coordinator.clock.now() > 1 + holder.begin().started // 1000, 5
        )
        assert not holder.is_overdue
        waiting = await database.waits("other", "CREATE VIEW k AS SELECT 1")
        assert holder.is_overdue
        await database.ran("s", "SET max_catalog_lock_time = 0")
        assert not holder.is_overdue
        await database.ran("s", "SET max_transaction_time = '1ms'")
        assert holder.is_overdue
        await database.ran("s", "ROLLBACK")
        assert await waiting == "CREATE VIEW"

    run(runner, env, main)


# Statements of each kind that changes permanent objects, but for what a role may do for itself.
CHANGES = (
    "CREATE VIEW l AS SELECT 1",
    "COMMENT ON TABLE u IS 'x'",
    "ALTER TABLE u OWNER TO foreshore",
    "GRANT SELECT ON u TO PUBLIC",
    "GRANT USAGE ON SCHEMA made TO PUBLIC",
    "CREATE ROLE created",
    "ALTER ROLE known RENAME TO renamed",
    "DROP ROLE known",
    "GRANT known TO other",
    "REVOKE known FROM other",
    "ALTER SYSTEM SET DateStyle = 'ISO'",
    "CREATE NETWORK POLICY made (RULES ())",
    "CREATE POLICY p ON u",
)


async def with_roles(database: Database) -> None:
    for role in ("known", "other"):
        if "t" not in await database.query(
            "s", f"SELECT true FROM pg_roles WHERE rolname = '{role}'"
        ):
            await database.ran("s", f"CREATE ROLE {role}")


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_of_permanent_objects_waits_for_the_lock(
    runner: asyncio.Runner, env: TestEnvironment, change: str
) -> None:
    async def main(database: Database) -> None:
        await with_roles(database)
        await database.ran("s", "BEGIN", "CREATE VIEW k AS SELECT 1")
        await database.ran("other", "BEGIN")
        waiting = await database.waits("other", change)
        await database.ran("s", "COMMIT")
        assert not (await waiting).startswith("ERROR"), await waiting
        await database.query("other", "ROLLBACK")

    run(runner, env, main)


@pytest.mark.parametrize("first", ["s", "other"])
@pytest.mark.parametrize("change", CHANGES)
def test_deadlock_between_catalog_and_table_is_detected(
    runner: asyncio.Runner, env: TestEnvironment, change: str, first: str
) -> None:
    async def main(database: Database) -> None:
        await with_roles(database)
        await database.ran("s", "BEGIN", change)
        await database.ran("other", "BEGIN", "LOCK TABLE t")
        waits = {"s": "ALTER TABLE t ADD w int", "other": "CREATE VIEW v AS SELECT 1"}
        second = "other" if first == "s" else "s"
        waiting = await database.waits(first, waits[first])
        answer = await database.query(second, waits[second])
        assert answer.startswith("ERROR 40P01")
        await database.ran(second, "ROLLBACK")
        assert "ERROR" not in await waiting
        await database.ran(first, "ROLLBACK")

    run(runner, env, main)


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TEMP TABLE k (i int)",
        "CREATE TEMP VIEW k AS SELECT 1",
        "CREATE TABLE IF NOT EXISTS t (i int)",
        "CREATE SCHEMA IF NOT EXISTS made",
        "DROP TABLE IF EXISTS nosuch",
        "SELECT * FROM t",
        "INSERT INTO t VALUES (7, 7)",
    ],
)
def test_statement_without_permanent_change_does_not_wait(
    runner: asyncio.Runner, env: TestEnvironment, sql: str
) -> None:
    async def main(database: Database) -> None:
        await database.ran("s", "BEGIN", "CREATE VIEW k AS SELECT 1")
        await database.ran("other", sql)
        await database.ran("s", "COMMIT")

    run(runner, env, main)


@pytest.mark.parametrize(
    "change",
    [
        "DROP VIEW vv",
        "CREATE OR REPLACE VIEW vv AS SELECT v + 1 AS v FROM t",
        "DROP TABLE t CASCADE",
    ],
)
def test_temporary_view_conflicts_with_change_of_what_it_reads(
    runner: asyncio.Runner, env: TestEnvironment, change: str
) -> None:
    async def main(database: Database) -> None:
        await database.ran("s", "BEGIN", "CREATE TEMP VIEW k AS SELECT * FROM vv")
        await database.ran("other", change)
        for catalog in ("information_schema.columns", "pg_class", "pg_views", "pg_depend"):
            answer = await database.query("s", f"SELECT count(*) >= 0 FROM {catalog}")
            assert answer == "t\nSELECT 1\nT"
        answer = await database.query("s", "COMMIT")
        assert answer.startswith("ERROR 40001: could not serialize access")

    run(runner, env, main)


def test_temporary_objects_follow_unrelated_changes(
    runner: asyncio.Runner, env: TestEnvironment
) -> None:
    async def main(database: Database) -> None:
        await database.ran("s", "BEGIN", "CREATE TEMP TABLE k (i int)", "SAVEPOINT a")
        await database.ran("other", "CREATE VIEW later AS SELECT 5 AS i", "DROP TABLE u")
        await database.ran("s", "INSERT INTO k SELECT i FROM later", "CREATE TEMP TABLE l (i int)")
        await database.ran("s", "ROLLBACK TO a", "INSERT INTO k SELECT i + 1 FROM later", "COMMIT")
        assert await database.query("s", "SELECT * FROM k") == "6\nSELECT 1"

    run(runner, env, main)


@pytest.mark.parametrize(
    ("reads", "answer"),
    [
        ("SELECT count(*) FROM t", "ERROR 40001: could not serialize access due to concurrent"),
        ("SELECT v FROM t WHERE id = 1", "ERROR 40001: could not serialize access due to concurr"),
        ("SELECT v FROM t WHERE id = 2", "COMMIT"),
        ("SELECT v FROM u", "COMMIT"),
    ],
)
def test_ddl_after_read_conflicts_with_concurrent_write_to_what_it_read(
    runner: asyncio.Runner, env: TestEnvironment, reads: str, answer: str
) -> None:
    async def main(database: Database) -> None:
        await database.ran("s", "BEGIN", reads, "ALTER TABLE u ADD COLUMN w int DEFAULT 0")
        await database.ran("other", "INSERT INTO t VALUES (1, 1)")
        assert (await database.query("s", "COMMIT")).startswith(answer)

    run(runner, env, main)


# What a role that may only log in can run, and what it is refused.
OF_A_ROLE = (
    "ALTER ROLE {me} SET timezone = 'UTC'",
    "ALTER ROLE {me} PASSWORD 'x'",
    "ALTER ROLE {me} RESET ALL",
    "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO public",
    "REASSIGN OWNED BY {me} TO {me}",
    "DROP OWNED BY {me}",
    "CREATE TOKEN a",
    "DROP TOKEN IF EXISTS a",
    "CREATE TEMP TABLE a (b int)",
    "CREATE TEMP VIEW a AS SELECT 1",
)
REFUSED = (
    "ALTER ROLE foreshore SET timezone = 'UTC'",
    "ALTER ROLE {me} CREATEROLE",
    "ALTER ROLE {me} RENAME TO other",
    "ALTER SYSTEM SET work_mem = '1MB'",
    "ALTER TABLE t ADD w int",
    "COMMENT ON ROLE {me} IS 'x'",
    "COMMENT ON TABLE t IS 'x'",
    "CREATE CLUSTER other (SIZE 'embedded')",
    "CREATE DATABASE other",
    "CREATE FUNCTION other() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE NETWORK POLICY other (RULES (a (action = 'allow', address = '0.0.0.0/0')))",
    "CREATE ROLE other",
    "CREATE SCHEMA other",
    "CREATE SECRET other AS 'x'",
    "CREATE SOURCE other FROM LOAD GENERATOR COUNTER",
    "CREATE TABLE other (a int)",
    "CREATE TYPE other AS ENUM ('a')",
    "CREATE VIEW other AS SELECT 1",
    "DROP CLUSTER {database}",
    "DROP DATABASE {database}",
    "DROP OWNED BY foreshore",
    "DROP ROLE foreshore",
    "DROP ROLE {me}",
    "DROP SCHEMA made",
    "DROP TABLE t",
    "GRANT foreshore TO {me}",
    "GRANT ALL ON SCHEMA made TO {me}",
    "GRANT SELECT ON t TO {me}",
    "REASSIGN OWNED BY foreshore TO {me}",
    "REVOKE ALL ON t FROM public",
)


@pytest.mark.parametrize(
    ("sql", "refused"), [*((s, False) for s in OF_A_ROLE), *((s, True) for s in REFUSED)]
)
def test_role_without_rights_keeps_nobody_from_changing_the_catalog(
    runner: asyncio.Runner, env: TestEnvironment, sql: str, refused: bool
) -> None:
    async def main(database: Database) -> None:
        me = f"{database.name}_role"
        await database.ran("s", f"CREATE ROLE {me} LOGIN")
        await database.ran("mine", f"SET SESSION AUTHORIZATION {me}", "BEGIN")
        answer = await database.query("mine", sql.format(me=me, database=database.name))
        assert answer.startswith("ERROR") == refused, answer
        await database.ran("s", "SET lock_timeout = '1ms'", "CREATE VIEW k AS SELECT 1")

    run(runner, env, main)
