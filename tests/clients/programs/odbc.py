"""psqlODBC over unixODBC and pyodbc: values, catalog functions, cursors, transactions, batches."""

import datetime as dt
import threading
from decimal import Decimal

import pyodbc
from steps import COLUMNS, ROW, equal, parts, raises, run, step

TO = parts()


def connect(settings: str = "", **options) -> pyodbc.Connection:
    """Open a connection by the driver of Debian's odbc-postgresql."""
    return pyodbc.connect(
        f"Driver={{PostgreSQL Unicode}};Server={TO['host']};Port={TO['port']};"
        f"Database={TO['database']};Uid={TO['user']};Pwd=none;{settings}",
        **options,
    )


@step
def values_of_each_type():
    with connect(autocommit=True) as c:
        c.execute(f"CREATE TABLE kinds (id serial PRIMARY KEY, {COLUMNS})")
        names = [each.split()[0] for each in COLUMNS.replace("10,2", "").split(",")]
        plain = [i for i, name in enumerate(names) if name not in ("iv", "a", "s", "tz", "u")]
        places = ", ".join("?" for _ in plain)
        columns = ", ".join(names[i] for i in plain)
        c.execute(f"INSERT INTO kinds ({columns}) VALUES ({places})", *(ROW[i] for i in plain))
        found = dict(
            zip(
                (names[i] for i in plain),
                c.execute(f"SELECT {columns} FROM kinds").fetchone(),
                strict=True,
            )
        )
        for i in plain:
            value = found[names[i]]
            if names[i] == "b":  # a character, unless the driver is told otherwise
                value = value in (True, "1")
            if names[i] == "tm":  # the driver's times have whole seconds
                equal(str(value), "12:30:00")
                continue
            equal(value, ROW[i])
        equal(c.execute("SELECT iv::text, a, s, u::text FROM kinds WHERE i IS NULL").fetchall(), [])


@step
def described_columns():
    with connect("BoolsAsChar=0", autocommit=True) as c:
        cursor = c.execute("SELECT id, b, n, t, v, d, ts FROM kinds")
        equal(
            [(each[0], each[1], each[4], each[5]) for each in cursor.description],
            [
                ("id", int, 10, 0), ("b", bool, 1, 0), ("n", Decimal, 10, 2), ("t", str, 8190, 0),
                ("v", str, 20, 0), ("d", dt.date, 10, 0),
                ("ts", dt.datetime, 26, 6),
            ],
        )  # fmt: skip


@step
def catalog_functions():
    with connect(autocommit=True) as c:
        c.execute(
            "CREATE TABLE parent (a int, b int, name varchar(5) NOT NULL, PRIMARY KEY (a, b))"
        )
        c.execute(
            "CREATE TABLE child (id int PRIMARY KEY, a int, b int,"
            " FOREIGN KEY (a, b) REFERENCES parent)"
        )
        c.execute("CREATE INDEX child_by_a ON child (a)")
        c.execute("CREATE VIEW shown AS SELECT * FROM child")
        c.execute("COMMENT ON TABLE parent IS 'of children'")
        cursor = c.cursor()
        equal(
            [(t.table_schem, t.table_name, t.table_type) for t in cursor.tables(schema="public")],
            [
                ("public", "child", "TABLE"), ("public", "kinds", "TABLE"),
                ("public", "parent", "TABLE"), ("public", "shown", "VIEW"),
            ],
        )  # fmt: skip
        equal(
            [
                (r.column_name, r.type_name, r.column_size, r.nullable, r.ordinal_position)
                for r in cursor.columns("parent")
            ],
            [("a", "int4", 10, 0, 1), ("b", "int4", 10, 0, 2), ("name", "varchar", 5, 0, 3)],
        )
        equal(
            [(r.column_name, r.key_seq, r.pk_name) for r in cursor.primaryKeys("parent")],
            [("a", 1, "parent_pkey"), ("b", 2, "parent_pkey")],
        )
        equal(
            [
                (r.pktable_name, r.pkcolumn_name, r.fkcolumn_name)
                for r in cursor.foreignKeys(foreignTable="child")
            ],
            [("parent", "a", "a"), ("parent", "b", "b")],
        )
        equal(
            [
                (r.index_name, r.column_name, r.non_unique)
                for r in cursor.statistics("child")
                if r.index_name
            ],
            [("child_pkey", "id", 0), ("child_by_a", "a", 1)],
        )
        assert {r.type_name for r in cursor.getTypeInfo()} >= {"int4", "varchar", "timestamptz"}
        equal([r.procedure_name for r in cursor.procedures("no_such_thing")], [])


@step
def parameters_prepared_by_the_server():
    with connect("UseServerSidePrepare=1", autocommit=True) as c:
        cursor = c.cursor()
        for i in range(10):
            cursor.execute("SELECT ?::int + 1, ?::text", i, f"n{i}")
            equal(tuple(cursor.fetchone()), (i + 1, f"n{i}"))
        equal(tuple(cursor.execute("SELECT ?::text", None).fetchone()), (None,))


@step
def batches_of_parameters():
    for fast in (False, True):
        with connect(autocommit=False) as c:
            cursor = c.cursor()
            cursor.fast_executemany = fast
            cursor.execute("CREATE TABLE many (i int, t varchar(10))")
            cursor.executemany("INSERT INTO many VALUES (?, ?)", [(i, str(i)) for i in range(100)])
            equal(
                tuple(cursor.execute("SELECT count(*), sum(i) FROM many").fetchone()), (100, 4950)
            )
            c.rollback()


@step
def transactions_and_errors():
    with connect() as c:
        c.execute("CREATE TABLE kept (i int PRIMARY KEY)")
        c.commit()
        c.execute("INSERT INTO kept VALUES (1)")
        c.rollback()
        c.execute("INSERT INTO kept VALUES (2)")
        c.commit()
        with raises(pyodbc.IntegrityError):
            c.execute("INSERT INTO kept VALUES (2)")
        c.rollback()
        try:
            c.execute("SELECT * FROM absent")
        except pyodbc.ProgrammingError as error:
            equal(error.args[0], "42P01")
        else:
            raise AssertionError("no error")
        c.rollback()
        equal([r.i for r in c.execute("SELECT i FROM kept")], [2])


@step
def statements_are_rolled_back_by_savepoints():
    with connect("Protocol=7.4-2") as c:  # a savepoint around each statement
        c.execute("INSERT INTO kept VALUES (3)")
        with raises(pyodbc.IntegrityError):
            c.execute("INSERT INTO kept VALUES (3)")
        c.execute("INSERT INTO kept VALUES (4)")
        c.commit()
        equal(c.execute("SELECT count(*) FROM kept").fetchval(), 3)


@step
def rows_in_portions():
    with connect("UseDeclareFetch=1;Fetch=100") as c:
        cursor = c.execute("SELECT g, repeat('x', 50) FROM generate_series(1, 1050) AS g")
        equal(len(cursor.fetchmany(10)), 10)
        equal(len(cursor.fetchall()), 1040)


@step
def several_results_of_one_text():
    with connect(autocommit=True) as c:
        cursor = c.execute("SELECT 1; SELECT 2, 3")
        equal(tuple(cursor.fetchone()), (1,))
        equal(cursor.nextset(), True)
        equal(tuple(cursor.fetchone()), (2, 3))


@step
def counts_of_rows():
    with connect(autocommit=True) as c:
        equal(c.execute("UPDATE kept SET i = i + 10").rowcount, 3)
        equal(c.execute("DELETE FROM kept WHERE i = ?", 12).rowcount, 1)
        equal(c.execute("INSERT INTO kept VALUES (?) RETURNING i", 99).fetchval(), 99)


@step
def cancels_and_limits():
    with connect(autocommit=True) as c:
        cursor = c.cursor()
        timer = threading.Timer(0.5, cursor.cancel)
        timer.start()
        with raises(pyodbc.Error):
            cursor.execute("SELECT pg_sleep(30)")
        timer.join()
        c.execute("SET statement_timeout = '300ms'")
        with raises(pyodbc.Error):
            c.execute("SELECT pg_sleep(30)")


@step
def facts_of_the_server():
    with connect(autocommit=True) as c:
        assert c.getinfo(pyodbc.SQL_DBMS_NAME) == "PostgreSQL", c.getinfo(pyodbc.SQL_DBMS_NAME)
        assert c.getinfo(pyodbc.SQL_DBMS_VER).startswith("15."), c.getinfo(pyodbc.SQL_DBMS_VER)
        equal(c.getinfo(pyodbc.SQL_DATABASE_NAME), TO["database"])


run()
