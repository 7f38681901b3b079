"""The drivers that people use, each doing what its users do first."""

import asyncio
import datetime
import decimal
import uuid
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy as sa

from tests.harness import Server

ROW = (
    True, 7, 2**40, 1.5, decimal.Decimal("12.50"), "text", b"\x00\xff", datetime.date(2024, 2, 29),
    datetime.datetime(2024, 2, 29, 12, 30), datetime.timedelta(days=1, hours=2),
    uuid.UUID(int=5), [1, 2, 3],
)  # fmt: skip
COLUMNS = (
    "b bool, i int, l bigint, f float8, n numeric(10,2), t text, y bytea, d date, ts timestamp,"
    " iv interval, u uuid, a int[]"
)


def test_psycopg_binds_and_reads_all_types_in_both_formats(server: Server) -> None:
    with server.connect() as connection:
        connection.execute(f"CREATE TABLE by_psycopg ({COLUMNS})".encode())
        marks = ", ".join(["%s"] * len(ROW))
        connection.execute(f"INSERT INTO by_psycopg VALUES ({marks})".encode(), ROW)
        for binary in (False, True):
            cursor = connection.execute("SELECT * FROM by_psycopg", binary=binary)
            assert cursor.fetchone() == ROW


def test_psycopg_pipelines(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE piped (i int)")
        with connection.pipeline(), connection.cursor() as cursor:
            cursor.executemany("INSERT INTO piped VALUES (%s)", [(i,) for i in range(100)])
        assert connection.execute("SELECT count(*) FROM piped").fetchone() == (100,)


def test_psycopg_server_side_cursors(server: Server) -> None:
    with psycopg.connect(server.url) as connection, connection.cursor(name="c") as cursor:
        cursor.itersize = 10
        cursor.execute("SELECT i FROM generate_series(1, 25) AS g(i)")
        assert [row[0] for row in cursor] == list(range(1, 26))


def test_asyncpg_binds_and_reads_all_types(server: Server) -> None:
    async def scenario() -> None:
        connection = await asyncpg.connect(server.url)
        await connection.execute(f"CREATE TABLE by_asyncpg ({COLUMNS})")
        marks = ", ".join(f"${i + 1}" for i in range(len(ROW)))
        await connection.execute(f"INSERT INTO by_asyncpg VALUES ({marks})", *ROW)
        assert tuple(await connection.fetchrow("SELECT * FROM by_asyncpg")) == ROW
        async with connection.transaction():
            cursor = await connection.cursor("SELECT generate_series(1, 25)")
            assert len(await cursor.fetch(10)) == 10
        await connection.close()

    asyncio.run(scenario())


def test_sqlalchemy_reflects_and_queries(server: Server) -> None:
    engine = sa.create_engine(server.url.replace("postgres://", "postgresql+psycopg://"))
    metadata = sa.MetaData()
    table = sa.Table(
        "by_sqlalchemy",
        metadata,
        sa.Column("i", sa.Integer, nullable=False),
        sa.Column("n", sa.Numeric(8, 2)),
        sa.Column("t", sa.String(20)),
    )
    with engine.begin() as connection:
        connection.execute(
            sa.text(
                "CREATE TABLE by_sqlalchemy (i integer NOT NULL, n numeric(8,2), t varchar(20))"
            )
        )
    with engine.begin() as connection:
        connection.execute(
            table.insert(), [{"i": 1, "n": 2.5, "t": "x"}, {"i": 2, "n": None, "t": None}]
        )
    with engine.connect() as connection:
        rows = connection.execute(sa.select(table).order_by(table.c.i.desc())).fetchall()
        assert [tuple(row) for row in rows] == [(2, None, None), (1, decimal.Decimal("2.50"), "x")]
    inspector = sa.inspect(engine)
    assert "by_sqlalchemy" in inspector.get_table_names()
    listed = inspector.get_table_names() + inspector.get_view_names()
    assert not [name for name in listed if name.startswith("mz_")]
    described = {column["name"]: column for column in inspector.get_columns("by_sqlalchemy")}
    assert isinstance(described["n"]["type"], sa.Numeric)
    assert described["i"]["nullable"] is False
    assert described["n"]["type"].precision == 8
    assert described["n"]["type"].scale == 2
    assert isinstance(described["t"]["type"], sa.String)
    assert described["t"]["type"].length == 20
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE VIEW seen_by_sqlalchemy AS SELECT t FROM by_sqlalchemy"))
        connection.execute(sa.text("CREATE INDEX by_i_and_t ON by_sqlalchemy (i, t)"))
    inspector = sa.inspect(engine)
    assert "seen_by_sqlalchemy" in inspector.get_view_names()
    assert "FROM" in inspector.get_view_definition("seen_by_sqlalchemy")
    (index,) = inspector.get_indexes("by_sqlalchemy")
    assert (index["name"], index["column_names"]) == ("by_i_and_t", ["i", "t"])
    assert "public" in inspector.get_schema_names()
    assert inspector.has_table("by_sqlalchemy")
    assert not inspector.has_table("nowhere")
    reflected = sa.MetaData()
    reflected.reflect(engine, views=True, only=["by_sqlalchemy", "seen_by_sqlalchemy"])
    assert [column.name for column in reflected.tables["by_sqlalchemy"].columns] == ["i", "n", "t"]
    assert not reflected.tables["by_sqlalchemy"].primary_key.columns
    for each in (
        inspector.get_pk_constraint("by_sqlalchemy")["constrained_columns"],
        inspector.get_foreign_keys("by_sqlalchemy"),
        inspector.get_unique_constraints("by_sqlalchemy"),
        inspector.get_check_constraints("by_sqlalchemy"),
        inspector.get_sequence_names(),
    ):
        assert each == []
    engine.dispose()


def test_asyncpg_prepares_anew_what_has_other_columns_now(server: Server) -> None:
    async def scenario() -> None:
        connection = await asyncpg.connect(server.url)
        await connection.execute("CREATE TABLE widened (a int PRIMARY KEY)")
        await connection.execute("INSERT INTO widened VALUES (1)")
        query = "SELECT * FROM widened WHERE a = $1"
        assert tuple(await connection.fetchrow(query, 1)) == (1,)
        with server.connect() as elsewhere:
            elsewhere.execute("ALTER TABLE widened ADD COLUMN b int")
        assert tuple(await connection.fetchrow(query, 1)) == (1, None)
        await connection.close()

    asyncio.run(scenario())


def test_sqlalchemy_sets_isolation_levels_and_takes_them_back(server: Server) -> None:
    engine = sa.create_engine(server.url.replace("postgres://", "postgresql+psycopg://"))
    with engine.connect() as connection:
        assert connection.default_isolation_level == "SERIALIZABLE"
        assert connection.get_isolation_level() == "SERIALIZABLE"
        alone = connection.execution_options(isolation_level="AUTOCOMMIT")
        alone.execute(sa.text("CREATE TABLE committed_alone (i int)"))
        alone.execute(sa.text("INSERT INTO committed_alone VALUES (1)"))
    for level in ("AUTOCOMMIT", "SERIALIZABLE", "READ COMMITTED"):
        with engine.connect().execution_options(isolation_level=level) as connection:
            read = connection.execute(sa.text("SELECT i FROM committed_alone"))
            assert read.scalars().all() == [1]
            if level != "AUTOCOMMIT":
                assert connection.get_isolation_level() == level
    engine.dispose()


def test_as_of_takes_numbers_and_dates_as_drivers_send_them(server: Server) -> None:
    query = "SELECT count(*) FROM was AS OF {}"
    with server.connect() as connection:
        connection.execute("CREATE TABLE was (i int)")
        found = connection.execute("SELECT mz_now()").fetchone()
        assert found is not None
        number = int(found[0])
        connection.execute("INSERT INTO was VALUES (1)")
        date = datetime.datetime.fromtimestamp(number / 1000, datetime.UTC)
        for time in (number, str(number), date, date.isoformat()):
            for binary in (False, True):
                cursor = connection.execute(query.format("%s").encode(), (time,), binary=binary)
                assert cursor.fetchone() == (0,), (time, binary)

    async def by_asyncpg() -> None:
        connection = await asyncpg.connect(server.url)
        for time in (str(number), date.isoformat()):
            assert await connection.fetchval(query.format("$1"), time) == 0
        assert await connection.fetchval(query.format("$1::bigint"), number) == 0
        assert await connection.fetchval(query.format("$1::timestamptz"), date) == 0
        await connection.close()

    asyncio.run(by_asyncpg())


@pytest.mark.parametrize("binary", [False, True])
def test_a_prepared_fetch_has_the_columns_of_the_cursor_that_is_there(
    server: Server, binary: bool
) -> None:
    def fetched(
        connection: psycopg.Connection, query: str
    ) -> tuple[list[str], list[tuple[Any, ...]]]:
        connection.execute(b"BEGIN")
        connection.execute(f"DECLARE c CURSOR FOR {query}".encode())
        cursor = connection.execute(b"FETCH ALL c", prepare=True, binary=binary)
        assert cursor.description is not None
        rows = cursor.fetchall()
        connection.execute(b"COMMIT")
        return [column.name for column in cursor.description], rows

    with server.connect() as connection:
        assert fetched(connection, "SELECT 1::int8 AS credit, 2 AS debit") == (
            ["credit", "debit"],
            [(1, 2)],
        )
        for _ in range(2):
            assert fetched(connection, "SELECT 10::int4 AS debit, 'abcdefgh' AS credit") == (
                ["debit", "credit"],
                [(10, "abcdefgh")],
            )
            assert fetched(connection, "SELECT 2.5::float8 AS one") == (["one"], [(2.5,)])


def test_a_prepared_execute_has_the_columns_of_the_statement_that_is_there(server: Server) -> None:
    with server.connect() as connection:
        for query, row in [("SELECT 1::int8 AS a, 2 AS b", (1, 2)), ("SELECT 'x' AS c", ("x",))]:
            connection.execute(f"PREPARE q AS {query}".encode())
            found = connection.execute(b"EXECUTE q", prepare=True, binary=True).fetchall()
            assert found == [row]
            connection.execute(b"DEALLOCATE q")


def test_a_session_sees_its_own_prepared_statements_without_passwords(server: Server) -> None:
    query = b"SELECT name, statement, parameter_types, from_sql FROM pg_prepared_statements"
    with server.connect() as connection, server.connect() as other:
        for name in (b"one", b"two"):  # the second is in the plan cache
            connection.pgconn.prepare(name, b"SELECT $1::int + 1")
        connection.pgconn.prepare(b"three", b"ALTER ROLE nobody PASSWORD 'abc'")
        connection.pgconn.exec_params(b"SELECT $1::text", [b"unnamed"])
        assert connection.execute(query).fetchall() == [
            ("one", "SELECT $1::int + 1", ["integer"], False),
            ("two", "SELECT $1::int + 1", ["integer"], False),
            ("three", "ALTER ROLE nobody PASSWORD '...'", [], False),
        ]
        assert other.execute(query).fetchall() == []
        connection.pgconn.exec_(b"DEALLOCATE ALL")
        assert connection.execute(query).fetchall() == []
