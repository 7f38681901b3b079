"""asyncpg: pool, records, prepared statements, cursors, COPY of records, codecs, cancel."""

import asyncio
import io

import asyncpg
from steps import COLUMNS, ROW, equal, raises, run, step, url


@step
async def crud():
    c = await asyncpg.connect(url())
    await c.execute(f"CREATE TABLE ap (id serial PRIMARY KEY, {COLUMNS})")
    marks = ", ".join(f"${i + 1}" for i in range(len(ROW)))
    found = await c.fetchval(f"INSERT INTO ap VALUES (DEFAULT, {marks}) RETURNING id", *ROW)
    row = await c.fetchrow("SELECT * FROM ap WHERE id = $1", found)
    equal(tuple(row)[1:], ROW)
    equal(row["n"], ROW[6])
    equal(await c.execute("UPDATE ap SET t = $1, h = h + $2", "new", 1), "UPDATE 1")
    equal(await c.fetch("SELECT t FROM ap WHERE id = ANY($1)", [found, 99]), [("new",)])
    equal(await c.execute("DELETE FROM ap WHERE l = $1", 2**40), "DELETE 1")
    await c.close()


@step
async def transactions():
    c = await asyncpg.connect(url())
    await c.execute("CREATE TABLE at (i int PRIMARY KEY)")
    async with c.transaction():
        await c.execute("INSERT INTO at VALUES (1)")
        with raises(asyncpg.UniqueViolationError, "23505"):
            async with c.transaction():
                await c.execute("INSERT INTO at VALUES (1)")
        await c.execute("INSERT INTO at VALUES (2)")
    equal(await c.fetchval("SELECT count(*) FROM at"), 2)
    with raises(asyncpg.ReadOnlySQLTransactionError, "25006"):
        async with c.transaction(isolation="serializable", readonly=True):
            await c.execute("INSERT INTO at VALUES (3)")
    await c.close()


@step
async def prepared_statements():
    c = await asyncpg.connect(url())
    statement = await c.prepare("SELECT i, $1::text AS t FROM at WHERE i = $2 LIMIT $3")
    equal([p.name for p in statement.get_parameters()], ["text", "int4", "int8"])
    equal(
        [(a.name, a.type.name) for a in statement.get_attributes()], [("i", "int4"), ("t", "text")]
    )
    equal(await statement.fetch("x", 1, 10), [(1, "x")])
    await c.executemany("INSERT INTO at VALUES ($1)", [(i,) for i in range(10, 1200)])
    await c.execute("ALTER TABLE at ADD COLUMN extra text DEFAULT 'e'")
    equal(await c.fetchrow("SELECT * FROM at WHERE i = $1", 1), (1, "e"))
    equal(await c.fetchval("SELECT count(*) FROM at WHERE i >= $1", 10), 1190)
    await c.close()


@step
async def cursors():
    c = await asyncpg.connect(url())
    async with c.transaction():
        found = [row[0] async for row in c.cursor("SELECT generate_series(1, 120)", prefetch=50)]
        equal(found, list(range(1, 121)))
        cursor = await c.cursor("SELECT generate_series(1, $1)", 25)
        equal(len(await cursor.fetch(10)), 10)
        equal(await cursor.forward(10), 10)
        equal(len(await cursor.fetch(10)), 5)
    await c.close()


@step
async def copies():
    c = await asyncpg.connect(url())
    await c.execute("CREATE TABLE ac (i int, t text, tz timestamptz, n numeric, a int[])")
    rows = [(i, None if i % 2 else f"t{i}", ROW[13], ROW[6], [i, None]) for i in range(1000)]
    equal(await c.copy_records_to_table("ac", records=rows), "COPY 1000")
    out = io.BytesIO()
    await c.copy_from_query(
        "SELECT i, t FROM ac WHERE i < $1 ORDER BY i", 2, output=out, format="csv"
    )
    equal(out.getvalue(), b"0,t0\n1,\n")
    await c.copy_to_table("ac", source=io.BytesIO(b"5\tx\n"), columns=["i", "t"])
    out = io.BytesIO()
    await c.copy_from_table("ac", output=out, columns=["i"], format="binary")
    equal(out.getvalue()[:11], b"PGCOPY\n\xff\r\n\x00")
    equal(await c.fetchval("SELECT count(*) FROM ac"), 1001)
    await c.close()


@step
async def codecs_and_introspection():
    c = await asyncpg.connect(url())
    await c.execute(
        "CREATE TYPE moodap AS ENUM ('low', 'high'); CREATE TYPE pairap AS (x int, m moodap)"
    )
    equal(await c.fetchval("SELECT $1::moodap", "low"), "low")
    equal(tuple(await c.fetchval("SELECT ROW(1, 'high')::pairap")), (1, "high"))
    equal(await c.fetchval("SELECT $1::moodap[]", ["low"]), ["low"])
    await c.set_type_codec("jsonb", encoder=lambda v: f'"{v}"', decoder=str, schema="pg_catalog")
    equal(await c.fetchval("SELECT $1::jsonb", "x"), '"x"')
    await c.set_builtin_type_codec("moodap", codec_name="text")
    equal((await c.fetchval("SELECT '[1,5)'::int4range")).upper, 5)
    equal(c.get_server_version().major, 15)
    await c.close()


@step
async def cancels_by_timeout():
    c = await asyncpg.connect(url())
    with raises(asyncio.TimeoutError):
        await c.fetch("SELECT pg_sleep(30)", timeout=0.3)
    equal(await c.fetchval("SELECT 1"), 1)
    task = asyncio.create_task(c.fetch("SELECT pg_sleep(30)"))
    await asyncio.sleep(0.2)
    task.cancel()
    with raises(asyncio.CancelledError):
        await task
    equal(await c.fetchval("SELECT 1"), 1)
    await c.close()


@step
async def pool_resets_and_reconnects():
    async with asyncpg.create_pool(url(), min_size=2, max_size=5) as pool:

        async def one(i: int) -> int:
            async with pool.acquire() as c:
                await c.execute("SET application_name = 'mine'")
                return await c.fetchval("SELECT $1::int", i)

        equal(await asyncio.gather(*(one(i) for i in range(50))), list(range(50)))
        async with pool.acquire() as c:
            assert await c.fetchval("SHOW application_name") != "mine"
            victim = c.get_server_pid()
        other = await asyncpg.connect(url())
        await other.execute(f"SELECT pg_terminate_backend({victim})")
        await other.close()
        await asyncio.sleep(0.2)
        equal(await pool.fetchval("SELECT 1"), 1)


@step
async def listens():
    c, d = await asyncpg.connect(url()), await asyncpg.connect(url())
    heard: asyncio.Queue = asyncio.Queue()
    await c.add_listener("news", lambda *args: heard.put_nowait(args[-1]))
    await d.execute("NOTIFY news, 'hi'")
    equal(await asyncio.wait_for(heard.get(), 5), "hi")
    await c.close()
    await d.close()


if __name__ == "__main__":
    run()
