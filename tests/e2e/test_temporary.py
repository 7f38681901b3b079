"""Temporary tables on a real server: two sessions, poolers that discard them, cut connections."""

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
from psycopg import sql

from foreshore.storage.backup import back_up, restore
from tests.harness import Server, until

TEMPORARY = "SELECT count(*) FROM pg_class WHERE relpersistence = 't'"


def one(connection: psycopg.Connection[Any], query: str) -> Any:
    row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def none_left(server: Server) -> bool:
    with server.connect() as connection:
        return bool(one(connection, TEMPORARY) == 0)


def test_each_session_has_its_own(server: Server) -> None:
    with server.connect() as one_, server.connect() as other:
        one_.execute("CREATE TABLE shadowed (a int)")
        for number, connection in enumerate((one_, other), 1):
            connection.execute("CREATE TEMP TABLE shadowed (a int PRIMARY KEY)")
            connection.execute("INSERT INTO shadowed VALUES (%s)", (number,))
        one_.execute("CREATE INDEX ON shadowed (a)")
        assert one(one_, "SELECT a FROM shadowed WHERE a > 0") == 1
        assert one(other, "SELECT a FROM shadowed WHERE a > 0") == 2
        assert one(one_, "SELECT count(*) FROM public.shadowed") == 0
        theirs = sql.SQL("SELECT * FROM {}.shadowed").format(
            sql.Identifier(one(other, "SELECT (current_schemas(true))[1]"))
        )
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="of other sessions"):
            one_.execute(theirs)
        with one_.cursor().copy("COPY shadowed FROM STDIN") as copy:
            copy.write_row((3,))
        assert one(one_, "SELECT sum(s.a + p.a) FROM shadowed s, shadowed p") == 16
        one_.execute("DROP TABLE shadowed")
        one_.execute("DROP TABLE shadowed")
        with pytest.raises(psycopg.errors.UndefinedTable):
            one_.execute("SELECT * FROM shadowed")
        assert one(other, "SELECT a FROM shadowed") == 2
    until(lambda: none_left(server), "temporary tables have gone with their sessions")


def test_psycopg_discards_all_in_either_protocol(server: Server) -> None:
    with server.connect() as connection:
        for extended in (False, True):
            connection.execute("CREATE TEMP TABLE t (a serial, b int)")
            connection.execute("CREATE TEMP VIEW v AS SELECT * FROM t")
            connection.execute("SET application_name = 'other'")
            connection.execute("DISCARD ALL", binary=extended)
            assert one(connection, "SHOW application_name") == ""
            with pytest.raises(psycopg.errors.UndefinedTable):
                connection.execute("SELECT * FROM v")
        connection.execute("BEGIN")
        with pytest.raises(psycopg.errors.ActiveSqlTransaction):
            connection.execute("DISCARD ALL", binary=True)
        connection.execute("ROLLBACK")
        connection.execute("CREATE TEMP TABLE t (a text)")


def test_a_pool_of_asyncpg_hands_on_clean_connections(server: Server) -> None:
    async def scenario() -> None:
        async def reset(connection: Any) -> None:
            await connection.execute("DISCARD ALL")

        async with asyncpg.create_pool(
            server.url, min_size=1, max_size=1, reset=reset, statement_cache_size=0
        ) as pool:
            for number in range(3):
                async with pool.acquire() as connection:
                    await connection.execute("CREATE TEMP TABLE work (n int)")
                    await connection.execute("INSERT INTO work VALUES ($1)", number)
                    assert await connection.fetchval("SELECT n FROM work") == number

    asyncio.run(scenario())


def test_a_cut_connection_leaves_nothing(server: Server) -> None:
    connection = server.connect()
    connection.execute("CREATE TEMP TABLE cut (id serial PRIMARY KEY, a int)")
    connection.execute("CREATE INDEX ON cut (a)")
    connection.execute("BEGIN")
    connection.execute("INSERT INTO cut (a) SELECT g FROM generate_series(1, 1000) AS g")
    descriptor = os.dup(connection.fileno())
    with socket.socket(fileno=descriptor) as raw:
        raw.shutdown(socket.SHUT_RDWR)
    until(lambda: none_left(server), "temporary tables have gone with the connection")
    connection.close()


def test_a_restored_backup_has_none(data_dir: Path, tmp_path: Path) -> None:
    server = Server(data_dir).start()
    try:
        with server.connect() as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS a")
            connection.execute("CREATE TEMP TABLE t AS SELECT g FROM generate_series(1, 9) AS g")
            back_up(data_dir, tmp_path / "backup")
        restore(tmp_path / "backup", tmp_path / "restored")
        restored = Server(tmp_path / "restored")
        restored.start()
        try:
            with restored.connect() as connection:
                assert one(connection, "SELECT a FROM kept") == 1
                assert one(connection, TEMPORARY) == 0
        finally:
            restored.stop()
    finally:
        server.stop()
