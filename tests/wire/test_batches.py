"""Pipelines of executions of one statement, as drivers send them for `executemany`."""

import asyncio

import asyncpg
import psycopg
import pytest

from tests.harness import Server

INSERT = "INSERT INTO many_rows VALUES ($1, $2)"
UPDATE = "UPDATE many_rows SET v = $2 WHERE id = $1"


def test_pipeline_ends_with_the_error_of_its_execution(server: Server) -> None:
    asyncio.run(pipelines(server.url))


async def pipelines(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE many_rows (id int PRIMARY KEY, v int CHECK (v < 900))")
    try:
        await connection.executemany(INSERT, [(i, 0) for i in range(2000)])
        with pytest.raises(asyncpg.UniqueViolationError) as duplicate:
            await connection.executemany(INSERT, [(i, 1) for i in range(3000, 1990, -1)])
        assert duplicate.value.detail == "Key (id)=(1999) already exists."
        with pytest.raises(asyncpg.CheckViolationError):
            await connection.executemany(UPDATE, [(i, i) for i in range(1000)])
        assert await connection.fetchval("SELECT count(*) FROM many_rows WHERE v = 0") == 2000
        async with connection.transaction():
            await connection.executemany(UPDATE, [(i % 2000, i % 800) for i in range(4000)])
            await connection.executemany(
                "DELETE FROM many_rows WHERE id = $1", [(i,) for i in range(500)]
            )
            newest = await connection.fetchval("SELECT v FROM many_rows WHERE id = 1999")
            assert newest == 3999 % 800
        row = await connection.fetchrow("SELECT count(*), min(id) FROM many_rows")
        assert tuple(row) == (1500, 500)
    finally:
        await connection.execute("DROP TABLE many_rows")
        await connection.close()


def test_executemany_of_psycopg_counts_rows_and_describes_none(server: Server) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE upserted (id serial PRIMARY KEY, k text UNIQUE, n int)")
        upsert = (
            "INSERT INTO upserted (k, n) VALUES (%s, %s)"
            " ON CONFLICT (k) DO UPDATE SET n = upserted.n + excluded.n"
        )
        cursor.executemany(upsert, [(f"k{i % 150}", 1) for i in range(300)])
        assert cursor.rowcount == 300
        cursor.executemany(
            "DELETE FROM upserted WHERE k = %s", [(f"k{i}",) for i in range(100, 200)]
        )
        assert cursor.rowcount == 50
        cursor.execute("SELECT count(*), sum(n), max(id) >= 100 FROM upserted")
        assert cursor.fetchone() == (100, 200, True)
        cursor.execute("DROP TABLE upserted")


def test_executions_see_what_foreign_keys_did_for_earlier_ones(server: Server) -> None:
    with psycopg.connect(server.url, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE tree (id int PRIMARY KEY, up int REFERENCES tree ON DELETE CASCADE)"
        )
        insert = "INSERT INTO tree VALUES (%s, %s)"
        cursor.executemany(insert, [(i, i - 1 if i else None) for i in range(60)])
        with pytest.raises(psycopg.errors.ForeignKeyViolation):
            cursor.executemany(insert, [(i, i + 1) for i in range(100, 160)] + [(160, None)])
        cursor.executemany("DELETE FROM tree WHERE id = %s", [(i,) for i in range(30, 60)])
        assert cursor.rowcount == 1  # it took the others along
        cursor.execute("DROP TABLE tree")
