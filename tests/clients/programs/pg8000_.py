"""pg8000: its DB-API and its native interface, COPY and prepared statements."""

import datetime as dt
import io

import pg8000.dbapi
import pg8000.native
from steps import COLUMNS, ROW, equal, parts, raises, run, step


def connect():
    return pg8000.dbapi.connect(**parts())


@step
def crud():
    c = connect()
    cursor = c.cursor()
    cursor.execute(f"CREATE TABLE p8 (id serial PRIMARY KEY, {COLUMNS})")
    row = list(ROW)
    row[14] = dt.timedelta(days=1, hours=2)
    cursor.execute(f"INSERT INTO p8 VALUES (DEFAULT, {', '.join(['%s'] * len(row))})", row)
    cursor.execute("SELECT * FROM p8")
    equal(tuple(cursor.fetchone()[1:]), ROW)
    cursor.execute("UPDATE p8 SET t = %s, h = h + 1 WHERE i = %s", ("new", -8))
    equal(cursor.rowcount, 1)
    cursor.execute("SELECT t FROM p8 WHERE id = ANY(%s)", ([1, 2],))
    equal(cursor.fetchall(), (["new"],))
    c.commit()
    c.close()


@step
def transactions():
    c = connect()
    cursor = c.cursor()
    cursor.execute("CREATE TABLE t8 (i int PRIMARY KEY)")
    c.commit()
    cursor.execute("INSERT INTO t8 VALUES (1)")
    cursor.execute("SAVEPOINT s")
    try:
        cursor.execute("INSERT INTO t8 VALUES (1)")
    except pg8000.dbapi.DatabaseError as error:
        equal(error.args[0]["C"], "23505")
    cursor.execute("ROLLBACK TO SAVEPOINT s")
    c.commit()
    cursor.executemany("INSERT INTO t8 VALUES (%s)", [(i,) for i in range(2, 50)])
    c.rollback()
    cursor.execute("SELECT count(*) FROM t8")
    equal(cursor.fetchone(), [1])
    with raises(pg8000.dbapi.DatabaseError):
        cursor.execute("SELECT nothing")
    c.rollback()
    c.close()


@step
def copies():
    c = connect()
    cursor = c.cursor()
    cursor.execute("CREATE TABLE c8 (i int, t text)")
    cursor.execute("COPY c8 FROM STDIN WITH (FORMAT CSV)", stream=io.BytesIO(b'1,"a,b"\n2,\n'))
    out = io.BytesIO()
    cursor.execute("COPY c8 TO STDOUT WITH (FORMAT CSV, DELIMITER '|')", stream=out)
    equal(sorted(out.getvalue().split()), [b"1|a,b", b"2|"])
    c.commit()
    c.close()


@step
def native_interface():
    c = pg8000.native.Connection(**parts())
    equal(c.run("SELECT :a || 'b', CAST(:n AS int) + 1", a="a", n=1), [["ab", 2]])
    equal([column["name"] for column in c.columns], ["?column?", "?column?"])
    prepared = c.prepare("SELECT CAST(:v AS int[])")
    equal([prepared.run(v=[i])[0][0] for i in range(3)], [[0], [1], [2]])
    prepared.close()
    equal(c.run("SELECT CAST(:j AS jsonb)", j={"k": [1]}), [[{"k": [1]}]])
    equal(
        c.run("SELECT 'infinity'::date, interval '1 month', '[1,3)'::int4range")[0][0], "infinity"
    )
    equal(c.parameter_statuses["server_encoding"], "UTF8")
    c.close()


if __name__ == "__main__":
    run()
