"""All fields of the errors of constraints equal PostgreSQL's."""

import psycopg
import pytest

from tests.harness import Server

SETUP = """
CREATE SCHEMA {schema};
SET search_path = {schema};
CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL CHECK (n > 0), e text, s timestamptz,
                CONSTRAINT both_ UNIQUE (e, s));
INSERT INTO t VALUES (1, 1, 'a', '2020-01-01 00:00+00'), (2, 2, NULL, NULL),
                     (9, 9, 'b', '2020-01-01 00:00+00');
SET timezone = 'Asia/Tokyo';
"""
STATEMENTS = [
    "INSERT INTO t VALUES (1, 1)",
    "INSERT INTO t VALUES (3, 1, 'a', '2020-01-01 00:00+00')",
    "INSERT INTO t VALUES (3, 0)",
    "INSERT INTO t VALUES (3, NULL)",
    "INSERT INTO t VALUES (3, 1), (1, 1)",
    "UPDATE t SET id = 1 WHERE id = 2",
    "UPDATE t SET n = 0 WHERE id = 1",
    "UPDATE t SET n = NULL WHERE id = 1",
    "INSERT INTO t VALUES (1, 1) ON CONFLICT (id) DO UPDATE SET n = 0",
    "INSERT INTO t VALUES (1, 1), (1, 2) ON CONFLICT (id) DO UPDATE SET n = 9",
    "INSERT INTO t VALUES (1, 1) ON CONFLICT (n) DO NOTHING",
    "INSERT INTO t VALUES (1, 1) ON CONFLICT DO UPDATE SET n = 9",
    "MERGE INTO t USING (VALUES (1), (1)) AS s (i) ON i = id WHEN MATCHED THEN DELETE",
    "ALTER TABLE t ADD UNIQUE (s)",
    "ALTER TABLE t ADD CONSTRAINT few CHECK (n < 2)",
    "ALTER TABLE t ALTER e SET NOT NULL",
    "ALTER TABLE t ADD PRIMARY KEY (n)",
    "ALTER TABLE t DROP CONSTRAINT nothing",
    "CREATE TABLE u (a int, b int, PRIMARY KEY (a), PRIMARY KEY (b))",
    "CREATE TABLE u (a int, PRIMARY KEY (c))",
]


def told(connection: psycopg.Connection, statement: str) -> dict[str, str | None]:
    """Return the fields of the error that `statement` raises."""
    with pytest.raises(psycopg.Error) as raised:
        connection.execute(statement)
    diag = raised.value.diag
    names = (
        "sqlstate message_primary message_detail message_hint statement_position"
        " schema_name table_name column_name datatype_name constraint_name"
    )
    return {name: getattr(diag, name) for name in names.split()}


def test_constraint_errors_have_postgresqls_fields(server: Server, postgres_url: str) -> None:
    with (
        psycopg.connect(postgres_url, autocommit=True) as theirs,
        psycopg.connect(server.url, autocommit=True) as ours,
    ):
        for connection in (theirs, ours):
            connection.execute(SETUP.format(schema="violations"))
        for statement in STATEMENTS:
            assert told(ours, statement) == told(theirs, statement), statement
