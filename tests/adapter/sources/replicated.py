"""Two tables of a PostgreSQL server, and a source of them: the setting of tests of sources."""

import asyncio
from collections.abc import Iterator

import psycopg
import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.sources.publisher import drop_slots, options_of

TABLES = """
DROP PUBLICATION IF EXISTS p;
DROP SCHEMA IF EXISTS up CASCADE;
CREATE SCHEMA up;
CREATE TABLE up.a (id int PRIMARY KEY, v bigint NOT NULL, t text, n numeric(10, 2), z timestamptz);
CREATE TABLE up.b (id int PRIMARY KEY, v bigint NOT NULL);
ALTER TABLE up.a REPLICA IDENTITY FULL;
ALTER TABLE up.b REPLICA IDENTITY FULL;
CREATE PUBLICATION p FOR TABLE up.a, up.b;
INSERT INTO up.a SELECT i, 100, 'x', i / 4.0, '2024-01-02 03:04:05+00' FROM generate_series(1, 20) i;
INSERT INTO up.a VALUES (100, 0, E'a"b\\n\\\\N\\t', NULL, NULL), (101, 0, NULL, 1, NULL);
INSERT INTO up.a VALUES (102, 0, '\\N', NULL, NULL), (103, 0, '', NULL, NULL);
INSERT INTO up.b SELECT i, 0 FROM generate_series(1, 20) i;
"""
SOURCE = "CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR ALL TABLES"
A = "SELECT id, v, t, n FROM {} ORDER BY id"
B = "SELECT id, v FROM {} ORDER BY id"
STATUS = "SELECT status, error FROM mz_internal.mz_source_statuses WHERE name = 's'"

Upstream = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def upstream(publisher_url: str) -> Iterator[Upstream]:
    drop_slots(publisher_url)
    with psycopg.connect(publisher_url, autocommit=True) as connection:
        connection.execute(TABLES)
        yield connection


@pytest.fixture
def env(
    runner: asyncio.Runner, own_env: TestEnvironment, upstream: Upstream, publisher_url: str
) -> TestEnvironment:
    runner.run(own_env.ran("a", f"CREATE CONNECTION pg TO POSTGRES ({options_of(publisher_url)})"))
    return own_env


async def until(env: TestEnvironment, query: str, expected: str) -> None:
    """Wait until a query has an answer."""
    found = ""
    try:
        async with asyncio.timeout(60):
            while (found := await env.query("a", query)).rpartition("\n")[0] != expected:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    except TimeoutError:
        state = await env.query("a", STATUS)
        raise AssertionError(f"{found} instead of {expected}; {state}") from None


def rows_of(upstream: Upstream, query: str) -> str:
    found = upstream.execute(query.encode()).fetchall()
    return "\n".join("|".join("NULL" if v is None else str(v) for v in row) for row in found)


async def equal(env: TestEnvironment, upstream: Upstream) -> None:
    """Wait until both tables have the rows that they have upstream."""
    await until(env, A.format("a"), rows_of(upstream, A.format("up.a")))
    await until(env, B.format("b"), rows_of(upstream, B.format("up.b")))
