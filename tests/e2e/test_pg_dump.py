"""pg_dump writes a database that psql restores, into Foreshore, with the same contents."""

import subprocess
from datetime import datetime

import psycopg
import pytest

from tests.harness import Server, program

DEFINITIONS = """
    CREATE SCHEMA "Other";
    CREATE TYPE mood AS ENUM ('low', 'high');
    CREATE TABLE parts (id int PRIMARY KEY, price numeric(8, 2) DEFAULT 1, size int UNIQUE,
        double int GENERATED ALWAYS AS (size * 2) STORED, CONSTRAINT positive CHECK (price > 0));
    CREATE TABLE "Other".orders (number bigserial, part int, felt mood, note text DEFAULT 'it''s');
    CREATE TABLE numbered (id int GENERATED ALWAYS AS IDENTITY, t timestamptz);
    CREATE VIEW a_view AS SELECT o.number, p.price FROM "Other".orders o JOIN parts p ON p.id = part;
    CREATE VIEW above AS SELECT count(*) AS n FROM a_view;
    CREATE MATERIALIZED VIEW kept AS SELECT part, count(*) AS n FROM "Other".orders GROUP BY part;
    CREATE METRIC ordered FROM kept VALUE n LABELS (part) HELP 'it''s a view in a dump';
    CREATE INDEX by_note ON "Other".orders (note);
    CREATE SEQUENCE free START 7;
    CREATE FUNCTION twice(x int DEFAULT 3) RETURNS int LANGUAGE sql RETURN x * 2;
    CREATE FUNCTION sums(OUT c int, INOUT a int, b int) LANGUAGE sql AS 'SELECT a * b, a + b';
    CREATE FUNCTION first_of(VARIADIC y int[], OUT x int) LANGUAGE sql AS 'SELECT y[1]';
    CREATE FUNCTION width(y int[]) RETURNS int LANGUAGE sql RETURN (SELECT max(v) FROM unnest(y) v);
    CREATE AGGREGATE widest(int) (SFUNC = array_append, STYPE = int[], FINALFUNC = width);
    CREATE TABLE spans (id int, span interval DEFAULT '1 day 2 hours', f float8 DEFAULT 'NaN');
    INSERT INTO spans VALUES (1);
    CREATE TABLE stream (at timestamp, WATERMARK FOR at AS at - INTERVAL '5 s'
        IDLE TIMEOUT INTERVAL '1 day');
    INSERT INTO stream VALUES ('2020-02-29 12:00:10'), ('2020-02-29 11:00');
    CREATE MATERIALIZED VIEW closed WITH (EMIT ON WINDOW CLOSE) AS SELECT window_end, count(*) AS n
        FROM TUMBLE(stream, at, INTERVAL '1 hour') GROUP BY window_end;
    CREATE MATERIALIZED VIEW inverses WITH (ON ERROR = SKIP) AS SELECT 10 / (id - 1) AS x FROM parts;
    ALTER TABLE parts ENABLE ROW LEVEL SECURITY;
    CREATE POLICY cheap ON parts USING (price < 10 AND id IN (SELECT id FROM numbered));
    CREATE POLICY "None" ON parts AS RESTRICTIVE FOR INSERT WITH CHECK (false);
    COMMENT ON POLICY cheap ON parts IS 'for all';
    COMMENT ON TABLE parts IS 'what is sold';
    COMMENT ON COLUMN parts.price IS 'in euros';
    INSERT INTO parts (id, size) VALUES (1, 10), (2, NULL);
    INSERT INTO "Other".orders (part, felt) VALUES (1, 'high'), (1, NULL), (2, 'low');
    INSERT INTO numbered (t) VALUES ('2020-02-29 12:00+00');
    SELECT nextval('free');
"""
CONTENTS = (
    "SELECT * FROM parts ORDER BY id",
    'SELECT * FROM "Other".orders ORDER BY number',
    "SELECT * FROM numbered",
    "SELECT * FROM a_view ORDER BY number",
    "SELECT * FROM above",
    "SELECT * FROM kept ORDER BY part",
    "SELECT * FROM ordered ORDER BY part",
    "SELECT nextval('free')",
    "SELECT * FROM stream ORDER BY at",
    "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conrelid = 'stream'::regclass",
    "SELECT * FROM closed",
    "SELECT * FROM inverses",
    "SELECT relname, reloptions FROM pg_class WHERE relkind = 'm' ORDER BY relname",
    "SELECT twice(), twice(4), first_of(5, 6), sums.* FROM sums(2, 3)",
    "SELECT widest(id) FROM parts",
    "INSERT INTO spans VALUES (2) RETURNING id, span, f::text",
    "SELECT pg_get_function_arguments(oid) FROM pg_proc WHERE proname IN ('sums', 'twice') "
    "ORDER BY proname",
    "SELECT obj_description('parts'::regclass), col_description('parts'::regclass, 2)",
    'INSERT INTO "Other".orders (part) VALUES (1) RETURNING *',
    "INSERT INTO numbered (t) VALUES (NULL) RETURNING id",
    "SELECT * FROM pg_policies ORDER BY policyname",
    "SELECT obj_description(oid, 'pg_policy') FROM pg_policy ORDER BY polname",
    "SELECT relrowsecurity FROM pg_class WHERE oid = 'parts'::regclass",
)


def url_of(server: Server, database: str) -> str:
    return server.url.rsplit("/", 1)[0] + f"/{database}"


def run(*command: str, given: str | None = None) -> str:
    """Return what a command prints; it must neither fail nor complain."""
    done = subprocess.run(command, input=given, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def dump(server: Server) -> str:
    """A dump of the definitions above."""
    with server.connect() as connection:
        connection.execute("CREATE DATABASE dumped")
        connection.execute("CREATE DATABASE restored")
    with psycopg.connect(url_of(server, "dumped"), autocommit=True) as connection:
        for each in DEFINITIONS.split(";\n"):
            connection.execute(each.encode())
    return run(program("pg_dump"), url_of(server, "dumped"))


def test_restored_dump_has_the_same_contents(dump: str, server: Server) -> None:
    options = ("-X", "-q", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null")
    run(program("psql"), url_of(server, "restored"), *options, given=dump)
    answers = []
    for database in ("dumped", "restored"):
        with psycopg.connect(url_of(server, database), autocommit=True) as connection:
            answers.append([connection.execute(each).fetchall() for each in CONTENTS])
    assert answers[0] == answers[1]
    final = dict(zip(CONTENTS, answers[1], strict=True))["SELECT * FROM closed"]
    assert final == [(datetime(2020, 2, 29, 12), 1)]  # the window of the other row is open


def test_dump_has_no_relations_of_the_system(dump: str) -> None:
    assert "mz_" not in dump
    assert dump.count("CREATE TABLE") == 5
