"""Record what PostgreSQL says of the statements beside this file: columns and parameters, or an error.

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
    """Return what preparing `sql` gives."""
    raw = connection.pgconn
    utility = sql.startswith("create")  # not looked at before it is executed
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


def main() -> None:
    """Record all statements."""
    with psycopg.connect(sys.argv[1], autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS public CASCADE; CREATE SCHEMA public")
        connection.execute(TABLES)
        lines = (HERE / "statements.sql").read_text().splitlines()
        answers = [describe(connection, line) for line in lines if line]
    text = ",\n".join(json.dumps(answer) for answer in answers)
    (HERE / "postgresql15.json").write_text(f"[\n{text}\n]\n")


if __name__ == "__main__":
    main()
