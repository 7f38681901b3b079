"""psycopg2: what its users do, execute_values, named cursors and COPY of files included."""

import io
import threading

import psycopg2
import psycopg2.errors
import psycopg2.extras
from psycopg2 import sql
from psycopg2.extensions import ISOLATION_LEVEL_SERIALIZABLE, TRANSACTION_STATUS_INERROR
from psycopg2.pool import ThreadedConnectionPool
from steps import COLUMNS, ROW, equal, raises, run, step, url


@step
def crud():
    psycopg2.extras.register_uuid()
    with psycopg2.connect(url()) as c, c.cursor() as cursor:
        cursor.execute(f"CREATE TABLE p2 (id serial PRIMARY KEY, {COLUMNS})")
        cursor.execute(f"INSERT INTO p2 VALUES (DEFAULT, {', '.join(['%s'] * len(ROW))})", ROW)
        cursor.execute("SELECT * FROM p2")
        row = cursor.fetchone()
        equal(row[1:10], ROW[:9])
        equal(bytes(row[10]), ROW[9])
        equal(row[11:], ROW[10:])
        cursor.execute("UPDATE p2 SET t = %(t)s WHERE id = %(id)s", {"t": "new", "id": row[0]})
        equal(cursor.rowcount, 1)
        cursor.execute("SELECT t FROM p2 WHERE t LIKE %s AND id IN %s", ("n%", (row[0], 99)))
        equal(cursor.fetchall(), [("new",)])
        equal([(d.name, d.precision, d.scale) for d in cursor.description], [("t", None, None)])


@step
def transactions():
    c = psycopg2.connect(url())
    with c, c.cursor() as cursor:
        cursor.execute("CREATE TABLE t2 (i int PRIMARY KEY CHECK (i < 100))")
    with c, c.cursor() as cursor:
        cursor.execute("INSERT INTO t2 VALUES (1)")
        cursor.execute("SAVEPOINT s")
        with raises(psycopg2.errors.UniqueViolation, "23505"):
            cursor.execute("INSERT INTO t2 VALUES (1)")
        equal(c.get_transaction_status(), TRANSACTION_STATUS_INERROR)
        cursor.execute("ROLLBACK TO SAVEPOINT s")
        with raises(psycopg2.errors.CheckViolation, "23514"):
            cursor.execute("INSERT INTO t2 VALUES (100)")
        cursor.execute("ROLLBACK TO SAVEPOINT s")
        cursor.execute("RELEASE SAVEPOINT s")
    with c.cursor() as cursor:
        cursor.execute("SELECT * FROM t2")
        equal(cursor.fetchall(), [(1,)])
    c.rollback()
    c.set_session(isolation_level=ISOLATION_LEVEL_SERIALIZABLE, readonly=True)
    with raises(psycopg2.errors.ReadOnlySqlTransaction, "25006"), c.cursor() as cursor:
        cursor.execute("INSERT INTO t2 VALUES (2)")
    c.rollback()
    c.set_session(autocommit=True, readonly=False)
    with c.cursor() as cursor:
        cursor.execute("INSERT INTO t2 VALUES (3)")
    c.close()


@step
def batches():
    with psycopg2.connect(url()) as c, c.cursor() as cursor:
        cursor.execute("CREATE TABLE b2 (i int, t text)")
        rows = [(i, f"t{i}") for i in range(500)]
        psycopg2.extras.execute_values(cursor, "INSERT INTO b2 VALUES %s", rows)
        psycopg2.extras.execute_batch(cursor, "INSERT INTO b2 VALUES (%s, %s)", rows)
        cursor.executemany("UPDATE b2 SET t = %s WHERE i = %s", [("x", 1), ("y", 2)])
        found = psycopg2.extras.execute_values(
            cursor, "INSERT INTO b2 VALUES %s RETURNING i", rows[:3], fetch=True
        )
        equal(found, [(0,), (1,), (2,)])
        cursor.execute("SELECT count(*), count(DISTINCT t) FROM b2")
        equal(cursor.fetchone(), (1003, 502))


@step
def copies():
    with psycopg2.connect(url()) as c, c.cursor() as cursor:
        cursor.execute("CREATE TABLE c2 (i int, t text)")
        cursor.copy_from(io.StringIO("1\ta\n2\t\\N\n"), "c2", columns=("i", "t"))
        cursor.copy_expert("COPY c2 FROM STDIN WITH CSV HEADER", io.StringIO('i,t\n3,"b,c"\n'))
        out = io.StringIO()
        cursor.copy_to(out, "c2")
        equal(sorted(out.getvalue().splitlines()), ["1\ta", "2\t\\N", "3\tb,c"])
        with raises(psycopg2.errors.InvalidTextRepresentation, "22P02"):
            cursor.copy_from(io.StringIO("x\ty\n"), "c2")


@step
def named_cursors():
    with psycopg2.connect(url()) as c:
        with c.cursor("named") as cursor:
            cursor.itersize = 7
            cursor.execute("SELECT generate_series(1, 30)")
            equal(sum(row[0] for row in cursor), 465)
        with c.cursor("scrolls", scrollable=True) as cursor:
            cursor.execute("SELECT generate_series(1, 30)")
            cursor.fetchmany(3)
            cursor.scroll(-2)
            equal(cursor.fetchone(), (2,))
        with c.cursor("held", withhold=True) as cursor:
            cursor.execute("SELECT generate_series(1, 3)")
            c.commit()
            equal(cursor.fetchall(), [(1,), (2,), (3,)])


@step
def cancels():
    with psycopg2.connect(url()) as c, c.cursor() as cursor:
        timer = threading.Timer(0.3, c.cancel)
        timer.start()
        with raises(psycopg2.errors.QueryCanceled, "57014"):
            cursor.execute("SELECT pg_sleep(30)")
        timer.join()
        c.rollback()
        cursor.execute("SELECT 1")


@step
def listens_and_notifies():
    import select

    c, d = psycopg2.connect(url()), psycopg2.connect(url())
    c.autocommit = d.autocommit = True
    c.cursor().execute("LISTEN news")
    d.cursor().execute("NOTIFY news, 'hi'")
    assert select.select([c], [], [], 5)[0]
    c.poll()
    equal([n.payload for n in c.notifies], ["hi"])


@step
def types_and_factories():
    c = psycopg2.connect(url(), cursor_factory=psycopg2.extras.RealDictCursor)
    with c, c.cursor() as cursor:
        cursor.execute("SELECT %s AS j, %s::int[] AS a", (psycopg2.extras.Json({"k": 1}), [1, 2]))
        equal(dict(cursor.fetchone()), {"j": '{"k": 1}', "a": [1, 2]})
        cursor.execute("CREATE TYPE pair2 AS (x int, y text)")
        psycopg2.extras.register_composite("pair2", cursor)
        cursor.execute("SELECT ROW(1, 'a')::pair2 AS p, '[1,5)'::int4range AS r")
        row = cursor.fetchone()
        equal((tuple(row["p"]), row["r"].upper), ((1, "a"), 5))
        cursor.execute(
            sql.SQL("SELECT {} FROM {}").format(sql.Identifier("i"), sql.Identifier("t2"))
        )


@step
def pool():
    pool = ThreadedConnectionPool(1, 3, url())
    held = [pool.getconn() for _ in range(3)]
    for each in held:
        each.cursor().execute("SELECT 1")
        pool.putconn(each)
    pool.closeall()


if __name__ == "__main__":
    run()
