"""SIGKILL of the replica and of the server while rows of temporal filters wait for their times."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from tests.harness import Server

STEP_MS = 400
ROWS = 12
READ = b"SELECT mz_now()::bigint, (SELECT count(*) FROM current), (SELECT n FROM counted)"


def test_rows_leave_at_their_times_over_kills(data_dir: Path) -> None:
    server = Server(data_dir).start()
    try:
        with server.connect() as connection:
            first = _fill(connection)
            _watch(connection, first, ROWS - 1)
            for pid in server.children():
                os.kill(pid, signal.SIGKILL)
            _watch(connection, first, ROWS - 4)
        server.kill()
        server.start()
        with server.connect() as connection:
            _watch(connection, first, 0)
    finally:
        server.stop()


def _fill(connection: psycopg.Connection[Any]) -> int:
    """Create views over rows that end one after the other; return the end of the first."""
    run: Callable[[str], Any] = lambda sql: connection.execute(sql.encode())  # noqa: E731
    run("CREATE TABLE events (id int, at timestamptz)")
    query = "FROM events WHERE mz_now() < at + interval '2 seconds'"
    run(f"CREATE VIEW current AS SELECT id {query}")
    run("CREATE INDEX ON current (id)")
    run(f"CREATE MATERIALIZED VIEW counted AS SELECT count(*) AS n {query}")
    ((time, *_),) = connection.execute(READ).fetchall()
    first: int = time + 1500
    for i in range(ROWS):
        run(
            f"INSERT INTO events SELECT {i}, ({first + i * STEP_MS - 2000}::mz_timestamp)::timestamptz"
        )
    return first


def _watch(connection: psycopg.Connection[Any], first: int, until: int) -> None:
    """Read until so many rows are left, and check each answer."""
    left = ROWS
    while left > until:
        ((time, *counts),) = connection.execute(READ).fetchall()
        left = sum(time < first + i * STEP_MS for i in range(ROWS))
        assert counts == [left, left], time - first
