"""Writes of one statement, however they are sent, wait for ALTER TABLE and go to what it has made."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import psycopg
import pytest

from tests.harness import Server

ROUNDS = 6  # in which a column comes and goes
Write = Callable[[int], Awaitable[None]]
Writer = Callable[[str, int], AsyncIterator[Write]]

CREATED = """
    CREATE TABLE t (w int, n int, PRIMARY KEY (w, n));
    CREATE TABLE counted (id int PRIMARY KEY, n int);
    CREATE TABLE incoming (id int, n int);
    INSERT INTO counted SELECT i, 0 FROM generate_series(1, 4) AS g(i);
    INSERT INTO incoming VALUES (3, 1), (9, 1)
"""


async def prepared(url: str, w: int) -> AsyncIterator[Write]:
    connection = await asyncpg.connect(url)
    insert = await connection.prepare("INSERT INTO t (w, n) VALUES ($1, $2)")

    async def write(n: int) -> None:
        await insert.fetch(w, n)

    yield write
    await connection.close()


async def prepared_and_returning(url: str, w: int) -> AsyncIterator[Write]:
    connection = await asyncpg.connect(url)

    async def write(n: int) -> None:
        sql = "INSERT INTO t (w, n) SELECT $1, $2 RETURNING n"
        assert await connection.fetchval(sql, w, n) == n

    yield write
    await connection.close()


async def simple(url: str, w: int) -> AsyncIterator[Write]:
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)

    async def write(n: int) -> None:
        await connection.execute(f"INSERT INTO t (w, n) VALUES ({w}, {n})".encode())

    yield write
    await connection.close()


async def piped(url: str, w: int) -> AsyncIterator[Write]:
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)

    async def write(n: int) -> None:
        async with connection.pipeline() as pipeline:
            for each in (3 * n, 3 * n + 1):
                await connection.execute("INSERT INTO t (w, n) VALUES (%s, %s)", (w, each))
                await pipeline.sync()
            await connection.execute("DELETE FROM t WHERE w = %s AND n = %s", (w, 3 * n + 1))
            await pipeline.sync()
            await connection.execute("UPDATE t SET n = n / 3 WHERE w = %s AND n = %s", (w, 3 * n))

    yield write
    await connection.close()


async def returning_all(url: str, w: int) -> AsyncIterator[Write]:
    """Write by Parse, Bind, Describe, Execute, each time anew: the columns are those of then."""
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=None)

    async def write(n: int) -> None:
        sql = "INSERT INTO t (w, n) VALUES (%s, %s) RETURNING *"
        row = await (await connection.execute(sql, (w, n))).fetchone()
        assert row in ((w, n), (w, n, 7))

    yield write
    await connection.close()


async def copied_by_query(url: str, w: int) -> AsyncIterator[Write]:
    connection = await asyncpg.connect(url)

    async def write(n: int) -> None:
        await connection.copy_records_to_table("t", columns=["w", "n"], records=[(w, n)])

    yield write
    await connection.close()


async def copied_by_execute(url: str, w: int) -> AsyncIterator[Write]:
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)

    async def write(n: int) -> None:
        cursor = connection.cursor(binary=True)  # by Parse, Bind, Execute
        async with cursor.copy("COPY t (w, n) FROM STDIN") as copy:
            await copy.write_row((w, n))

    yield write
    await connection.close()


async def in_blocks(url: str, w: int) -> AsyncIterator[Write]:
    """Write in a block, again if its COMMIT comes too late: the first statement never does."""
    connection = await asyncpg.connect(url)

    async def write(n: int) -> None:
        while True:
            await connection.execute("BEGIN")
            await connection.execute("INSERT INTO t (w, n) VALUES ($1, $2)", w, n)
            try:
                await connection.execute("COMMIT")
            except asyncpg.SerializationError:
                continue
            return

    yield write
    await connection.close()


WRITERS: list[Writer] = [
    prepared, prepared, prepared_and_returning, returning_all, simple, simple, piped,
    copied_by_query, copied_by_execute, in_blocks,
]  # fmt: skip

CHANGES = [
    "UPDATE counted SET n = n + $1 WHERE id = 1",
    "UPDATE counted SET n = n + $1 WHERE id % 10 = 2",
    "MERGE INTO counted AS c USING incoming AS i ON c.id = i.id"
    " WHEN MATCHED THEN UPDATE SET n = c.n + $1 * i.n",
    "INSERT INTO counted (id, n) VALUES (4, $1)"
    " ON CONFLICT (id) DO UPDATE SET n = counted.n + excluded.n",
]


def test_no_write_by_itself_is_lost_or_refused(server: Server) -> None:
    async def scenario() -> None:
        over = asyncio.Event()
        begun: list[asyncio.Event] = []

        async def writing(writer: Writer, w: int) -> int:
            begun.append(met := asyncio.Event())
            async for write in writer(server.url, w):
                for n in itertools.count():
                    await write(n)
                    met.set()
                    if over.is_set():
                        return n + 1
            raise AssertionError

        async def changing(sql: str) -> int:
            begun.append(met := asyncio.Event())
            connection = await asyncpg.connect(server.url)
            change = await connection.prepare(sql)
            count = 0
            while not over.is_set():
                await change.fetch(1)
                count += 1
                met.set()
            await connection.close()
            return count

        async def altering(table: str) -> None:
            connection = await asyncpg.connect(server.url)
            for _ in range(ROUNDS):
                await connection.execute(f"ALTER TABLE {table} ADD COLUMN more int DEFAULT 7")
                await connection.execute(f"ALTER TABLE {table} DROP COLUMN more")
            await connection.close()

        setup = await asyncpg.connect(server.url)
        await setup.execute(CREATED)
        writers = [asyncio.ensure_future(writing(each, w)) for w, each in enumerate(WRITERS)]
        changers = [asyncio.ensure_future(changing(sql)) for sql in CHANGES]
        await asyncio.sleep(0)
        await asyncio.gather(*(each.wait() for each in begun))
        await asyncio.gather(altering("t"), altering("counted"))
        over.set()
        written = await asyncio.gather(*writers)
        changed = await asyncio.gather(*changers)
        rows = await setup.fetch("SELECT w, n FROM t ORDER BY w, n")
        assert [tuple(row) for row in rows] == [
            (w, n) for w, count in enumerate(written) for n in range(count)
        ]
        rows = await setup.fetch("SELECT n FROM counted ORDER BY id")
        assert [row[0] for row in rows] == changed
        await setup.close()

    asyncio.run(scenario())


def test_a_copy_goes_on_into_the_table_as_it_was_altered(server: Server) -> None:
    with server.connect() as copying, server.connect() as altering:
        altering.execute("CREATE TABLE copied_meanwhile (a int, b int)")

        def copy_while(change: str, *row: int) -> None:
            with (
                copying.cursor() as cursor,
                cursor.copy("COPY copied_meanwhile FROM STDIN") as copy,
            ):
                copy.write_row(row)
                altering.execute(change.encode())

        copy_while("ALTER TABLE copied_meanwhile ADD COLUMN c int DEFAULT 9", 1, 2)
        copy_while(
            "ALTER TABLE copied_meanwhile DROP COLUMN c, ADD COLUMN c int, ADD COLUMN d serial",
            3,
            4,
            5,
        )
        gone = 'column "b" of relation "copied_meanwhile" does not exist'
        with pytest.raises(psycopg.errors.UndefinedColumn, match=gone):
            copy_while("ALTER TABLE copied_meanwhile DROP COLUMN b", 6, 7, 8, 9)
        with pytest.raises(psycopg.errors.CheckViolation):
            copy_while("ALTER TABLE copied_meanwhile ADD CHECK (a < 10)", 10, 11, 12)
        rows = altering.execute("SELECT a, c, d FROM copied_meanwhile ORDER BY a").fetchall()
        assert rows == [(1, None, 1), (3, 5, 2)]
