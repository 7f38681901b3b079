"""Record PostgreSQL's results of the statements in this directory, and answers to the queries.

python tests/sql/recorded/record.py postgres://postgres@127.0.0.1:5432/postgres
"""

import json
import sys
from pathlib import Path

import psycopg

HERE = Path(__file__).parent
TABLES = """
CREATE TABLE t (a int, b text, c numeric(10, 2), d date, e bool);
CREATE TABLE u (a int NOT NULL, x float8, y timestamptz, z int[], j jsonb,
                s varchar(5) DEFAULT 'q');
"""


def describe(connection: psycopg.Connection, sql: str) -> dict[str, object]:
    """Return the description of preparing `sql`."""
    raw = connection.pgconn
    utility = sql.startswith("create")  # analysed only when executed
    result = raw.exec_(sql.encode()) if utility else raw.prepare(b"", sql.encode())
    if result.status == psycopg.pq.ExecStatus.FATAL_ERROR:
        field = psycopg.pq.DiagnosticField
        position = result.error_field(field.STATEMENT_POSITION)
        return {
            "sql": sql,
            "sqlstate": (result.error_field(field.SQLSTATE) or b"").decode(),
            "message": (result.error_field(field.MESSAGE_PRIMARY) or b"").decode(),
            "position": None if position is None else int(position),
        }
    described = raw.describe_prepared(b"")
    return {
        "sql": sql,
        "columns": [
            [(described.fname(i) or b"").decode(), described.ftype(i), described.fmod(i)]
            for i in range(described.nfields)
        ],
        "parameters": [described.param_type(i) for i in range(described.nparams)],
    }


CONTENTS = """
INSERT INTO t VALUES (1, 'x', 1.50, '2020-01-01', true), (1, 'x', 1.50, '2020-01-01', true),
    (2, 'y', 2.25, '2021-06-15', false), (3, null, null, null, null),
    (null, 'z', -4.00, '1999-12-31', true), (4, 'x y', 10.00, '2020-02-29', false);
INSERT INTO u VALUES (1, 1.5, '2020-01-01 10:00+00', '{1,2}', '{"a":1,"b":[1,2]}', 'q'),
    (1, -2.5, null, '{}', '[]', 'x'), (2, 'NaN', '2021-01-01 00:00+00', null, null, 'yy'),
    (5, 0, 'infinity', '{3,null}', '"s"', 'z');
"""


def answer(connection: psycopg.Connection, sql: str) -> dict[str, object]:
    """Return the rows of a query as text, sorted by that text, or its error."""
    raw = connection.pgconn.exec_(sql.encode())
    if raw.status == psycopg.pq.ExecStatus.FATAL_ERROR:
        field = psycopg.pq.DiagnosticField
        message = (raw.error_field(field.MESSAGE_PRIMARY) or b"").decode()
        return {
            "sql": sql,
            "error": (raw.error_field(field.SQLSTATE) or b"").decode() + " " + message,
        }
    values = [[raw.get_value(i, j) for j in range(raw.nfields)] for i in range(raw.ntuples)]
    rows = [[None if value is None else value.decode() for value in row] for row in values]
    return {"sql": sql, "rows": sorted(rows, key=str)}


def main() -> None:
    """Record all statements."""
    with psycopg.connect(sys.argv[1], autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS public CASCADE; CREATE SCHEMA public")
        connection.execute(TABLES)
        lines = (HERE / "statements.sql").read_text().splitlines()
        answers = [describe(connection, line) for line in lines if line]
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(CONTENTS)
        queries = (HERE / "queries.sql").read_text().splitlines()
        _write("answers.json", [answer(connection, line) for line in queries if line])
        tables = [answer(connection, f"select * from {name}") for name in ("t", "u")]
        _write("contents.json", tables)
    _write("postgresql15.json", answers)


def _write(name: str, lines: list[dict[str, object]]) -> None:
    text = ",\n".join(json.dumps(line) for line in lines)
    (HERE / name).write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
