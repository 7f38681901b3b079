"""psycopg 3: sync, async, pool, pipeline, binary, COPY, cursors, cancel, types of users."""

import asyncio
import threading
import time

import psycopg
from psycopg import sql
from psycopg.rows import dict_row
from psycopg.types.composite import CompositeInfo, register_composite
from psycopg.types.enum import EnumInfo
from psycopg.types.json import Jsonb
from steps import COLUMNS, ROW, equal, raises, run, step, url


@step
def crud_in_text_and_binary():
    with psycopg.connect(url(), autocommit=True) as c:
        c.execute(f"CREATE TABLE p3 (id serial PRIMARY KEY, {COLUMNS})")
        marks = ", ".join(["%s"] * len(ROW))
        for binary in (False, True):
            mark = marks.replace("%s", "%b") if binary else marks
            c.execute("DELETE FROM p3")
            c.execute(f"INSERT INTO p3 VALUES (DEFAULT, {mark})", ROW)
            cursor = c.execute("SELECT * FROM p3", binary=binary)
            equal(cursor.fetchone()[1:], ROW)
        cursor = c.execute("UPDATE p3 SET t = %s, h = h + %s WHERE i = %s", ("new", 1, -8))
        equal(cursor.rowcount, 1)
        equal(c.execute("SELECT t, h FROM p3").fetchone(), ("new", 8))
        equal(c.execute("DELETE FROM p3 WHERE l = %s RETURNING i", (2**40,)).fetchall(), [(-8,)])


@step
def description_of_results():
    with psycopg.connect(url()) as c:
        cursor = c.execute("SELECT n, v, ts, a FROM p3")
        found = [(d.name, d.type_code, d.precision, d.scale) for d in cursor.description]
        equal(found, [("n", 1700, 10, 2), ("v", 1043, None, None), ("ts", 1114, None, None),
                      ("a", 1007, None, None)])  # fmt: skip
        equal(cursor.description[1].display_size, 20)


@step
def transactions_and_savepoints():
    with psycopg.connect(url(), row_factory=dict_row) as c:
        c.execute("CREATE TABLE t3 (i int PRIMARY KEY)")
        c.commit()
        with c.transaction():
            c.execute("INSERT INTO t3 VALUES (1)")
            with raises(psycopg.errors.UniqueViolation, "23505"), c.transaction():
                c.execute("INSERT INTO t3 VALUES (2)")
                c.execute("INSERT INTO t3 VALUES (1)")
            c.execute("INSERT INTO t3 VALUES (3)")
        equal(c.execute("SELECT i FROM t3 ORDER BY i").fetchall(), [{"i": 1}, {"i": 3}])
        with raises(psycopg.errors.UndefinedTable, "42P01"):
            c.execute("SELECT * FROM nowhere")
        with raises(psycopg.errors.InFailedSqlTransaction, "25P02"):
            c.execute("SELECT 1")
        c.rollback()
        c.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        c.read_only = True
        with raises(psycopg.errors.ReadOnlySqlTransaction, "25006"):
            c.execute("INSERT INTO t3 VALUES (4)")
        c.rollback()


@step
def prepared_statements():
    with psycopg.connect(url(), autocommit=True, prepare_threshold=2) as c:
        for i in range(6):
            equal(c.execute("SELECT %s::int + 1", (i,)).fetchone(), (i + 1,))
        assert c.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()[0] >= 1
        c.execute("ALTER TABLE t3 ADD COLUMN extra text")
        for i in range(4):
            c.execute("SELECT * FROM t3 WHERE i = %s", (i,))
        c.execute("DEALLOCATE ALL")
        c.execute("SELECT * FROM t3 WHERE i = %s", (1,))


@step
def server_side_cursors():
    with psycopg.connect(url()) as c:
        with c.cursor(name="c") as cursor:
            cursor.itersize = 10
            cursor.execute("SELECT i FROM generate_series(1, %s) AS g(i)", (25,))
            equal([row[0] for row in cursor], list(range(1, 26)))
        with c.cursor(name="held", withhold=True) as cursor:
            cursor.execute("SELECT generate_series(1, 5)")
            c.commit()
            equal(cursor.fetchmany(2), [(1,), (2,)])
        with c.cursor(name="s", scrollable=True) as cursor:
            cursor.execute("SELECT generate_series(1, 9)")
            cursor.scroll(5)
            equal(cursor.fetchone(), (6,))
            cursor.scroll(0, mode="absolute")
            equal(cursor.fetchone(), (1,))


@step
def streams_rows():
    with psycopg.connect(url()) as c, c.cursor() as cursor:
        equal(sum(row[0] for row in cursor.stream("SELECT generate_series(1, 5000)")), 12502500)


@step
def pipelines():
    with psycopg.connect(url(), autocommit=True) as c:
        c.execute("CREATE TABLE piped3 (i int PRIMARY KEY)")
        with c.pipeline(), c.cursor() as cursor:
            cursor.executemany("INSERT INTO piped3 VALUES (%s)", [(i,) for i in range(100)])
        equal(c.execute("SELECT count(*) FROM piped3").fetchone(), (100,))
        with raises(psycopg.errors.UniqueViolation, "23505"), c.pipeline():
            c.execute("INSERT INTO piped3 VALUES (1000)")
            c.execute("INSERT INTO piped3 VALUES (1)")
            c.execute("INSERT INTO piped3 VALUES (1001)")
        equal(c.execute("SELECT count(*) FROM piped3").fetchone(), (100,))
        with c.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO piped3 VALUES (%s) RETURNING i", [(200,), (201,)], returning=True
            )
            equal(cursor.fetchone(), (200,))
            assert cursor.nextset()
            equal(cursor.fetchone(), (201,))


@step
def copies_in_text_and_binary():
    with psycopg.connect(url()) as c, c.cursor() as cursor:
        cursor.execute("CREATE TABLE copied3 (i int, t text, n numeric(8,2))")
        with cursor.copy("COPY copied3 FROM STDIN") as copy:
            copy.write_row((1, "a\tb", "1.50"))
            copy.write_row((2, None, None))
        with cursor.copy("COPY copied3 (i, t) FROM STDIN (FORMAT BINARY)") as copy:
            copy.set_types(["int4", "text"])
            copy.write_row((3, "bin"))
        with cursor.copy("COPY copied3 FROM STDIN (FORMAT csv, HEADER)") as copy:
            copy.write('i,t,n\n4,"x, y",2\n')
        with cursor.copy("COPY (SELECT i, t FROM copied3 ORDER BY i) TO STDOUT") as copy:
            copy.set_types(["int4", "text"])
            equal(list(copy.rows()), [(1, "a\tb"), (2, None), (3, "bin"), (4, "x, y")])
        with cursor.copy(
            "COPY (SELECT i FROM copied3 ORDER BY i) TO STDOUT (FORMAT BINARY)"
        ) as copy:
            copy.set_types(["int4"])
            equal(list(copy.rows()), [(1,), (2,), (3,), (4,)])
        with raises(psycopg.errors.QueryCanceled), cursor.copy("COPY copied3 FROM STDIN") as copy:
            raise psycopg.errors.QueryCanceled("given up")


@step
def cancels_and_goes_on():
    with psycopg.connect(url(), autocommit=True) as c:
        timer = threading.Timer(0.3, c.cancel_safe)
        timer.start()
        with raises(psycopg.errors.QueryCanceled, "57014"):
            c.execute("SELECT pg_sleep(30)")
        timer.join()
        equal(c.execute("SELECT 1").fetchone(), (1,))
        c.execute("SET statement_timeout = '200ms'")
        with raises(psycopg.errors.QueryCanceled, "57014"):
            c.execute("SELECT pg_sleep(30)")


@step
def multiple_results_and_notices():
    with psycopg.connect(url(), autocommit=True) as c:
        heard = []
        c.add_notice_handler(lambda d: heard.append(d.message_primary))
        c.execute("DROP TABLE IF EXISTS nowhere")
        equal(heard, ['table "nowhere" does not exist, skipping'])
        cursor = c.execute("SELECT 1; SELECT 2, 3")
        equal(cursor.fetchall(), [(1,)])
        assert cursor.nextset()
        equal(cursor.fetchall(), [(2, 3)])
        equal(c.info.parameter_status("standard_conforming_strings"), "on")
        c.execute("SET TimeZone = 'Europe/Berlin'")
        equal(c.info.timezone.key, "Europe/Berlin")


@step
def types_of_users():
    with psycopg.connect(url(), autocommit=True) as c:
        c.execute("CREATE TYPE mood3 AS ENUM ('low', 'high')")
        c.execute("CREATE TYPE pair3 AS (x int, y text)")
        info = EnumInfo.fetch(c, "mood3")
        equal(info.labels, ["low", "high"])
        pair = CompositeInfo.fetch(c, "pair3")
        equal(list(pair.field_names), ["x", "y"])
        register_composite(pair, c)
        found = c.execute("SELECT ROW(1, 'a')::pair3, ARRAY['low'::mood3]::text[]").fetchone()
        equal((tuple(found[0]), found[1]), ((1, "a"), ["low"]))
        equal(
            c.execute("SELECT %s::jsonb", (Jsonb({"k": [1, None]}),)).fetchone()[0],
            {"k": [1, None]},
        )
        query = sql.SQL("SELECT {}, {}").format(sql.Literal("it's"), sql.Literal([1, 2]))
        equal(c.execute(query).fetchone(), ("it's", [1, 2]))


@step
def listens_and_notifies():
    with psycopg.connect(url(), autocommit=True) as c, psycopg.connect(url(), autocommit=True) as d:
        c.execute("LISTEN news")
        d.execute("SELECT pg_notify('news', 'hello')")
        equal([n.payload for n in c.notifies(timeout=5, stop_after=1)], ["hello"])


@step
async def async_connection_and_cancel():
    c = await psycopg.AsyncConnection.connect(url())
    async with c:
        cursor = await c.execute("SELECT %s::text || %s", ("a", "b"))
        equal(await cursor.fetchone(), ("ab",))
        task = asyncio.create_task(c.execute("SELECT pg_sleep(30)"))
        await asyncio.sleep(0.3)
        await c.cancel_safe()
        with raises(psycopg.errors.QueryCanceled, "57014"):
            await task


@step
def pool_reconnects_and_checks():
    from psycopg_pool import ConnectionPool

    with ConnectionPool(
        url(), min_size=1, max_size=3, check=ConnectionPool.check_connection
    ) as pool:
        with pool.connection() as c:
            victim = c.execute("SELECT pg_backend_pid()").fetchone()[0]
        with psycopg.connect(url(), autocommit=True) as other:
            equal(other.execute("SELECT pg_terminate_backend(%s)", (victim,)).fetchone(), (True,))
        time.sleep(0.2)
        with pool.connection() as c:
            equal(c.execute("SELECT 1").fetchone(), (1,))


if __name__ == "__main__":
    run()
