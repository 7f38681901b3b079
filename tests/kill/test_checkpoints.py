"""A replica is killed at each stage of writing a checkpoint: answers stay right, and it resumes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from foreshore import failpoint
from tests.harness import Server, until

POINTS = sorted(point for point in failpoint.POINTS if point.startswith("checkpoint."))
LANDING = ("checkpoint.named", "checkpoint.deleted")  # a kill takes 20 s of processor time
OFTEN = ("--checkpoint-interval", "0.1", "--checkpoint-size", "0")
QUERIES = {
    "named": "SELECT k.name, count(*) AS n, sum(f.amount) AS amount"
    " FROM facts f JOIN kinds k ON k.kind = f.kind GROUP BY k.name",
    "top": "SELECT kind, amount, id FROM facts ORDER BY amount DESC, id LIMIT 7",
    "pairs": "SELECT f.id, k.name FROM facts f JOIN kinds k ON k.kind = f.kind WHERE f.amount > 90",
}
KEYS = {"named": "name", "top": "kind", "pairs": "id"}

SAVED_NAMES = (
    b"SELECT o.name FROM mz_internal.mz_checkpoints c JOIN mz_catalog.mz_objects o"
    b" ON o.id = c.object_id"
)


def define(connection: psycopg.Connection[Any]) -> None:
    connection.execute("CREATE TABLE kinds (kind int, name text)")
    connection.execute("CREATE TABLE facts (id int, kind int, amount int)")
    connection.execute(
        "INSERT INTO kinds SELECT i, 'kind ' || i FROM generate_series(0, 9) AS s(i)"
    )
    for name, query in QUERIES.items():
        connection.execute(f"CREATE VIEW {name} AS {query}".encode())
        connection.execute(f"CREATE INDEX ON {name} ({KEYS[name]})".encode())
    connection.execute(f"CREATE MATERIALIZED VIEW kept AS {QUERIES['named']}".encode())


def change(connection: psycopg.Connection[Any], number: int) -> None:
    connection.execute(
        b"INSERT INTO facts SELECT i, i %% 11, i %% 101 FROM generate_series(%s::int, %s::int) AS s(i)",
        (100 * number, 100 * number + 99),
    )
    connection.execute(b"DELETE FROM facts WHERE id %% 7 = %s AND id > %s", (number % 7, number))
    connection.execute(b"UPDATE kinds SET name = name || '!' WHERE kind = %s", (number % 10,))


def check(connection: psycopg.Connection[Any]) -> None:
    """Compare all views with their queries, as of one time."""
    with connection.transaction():
        connection.execute("SET TRANSACTION READ ONLY")
        for name, query in {**QUERIES, "kept": QUERIES["named"]}.items():
            found = sorted(connection.execute(f"SELECT * FROM {name}".encode()).fetchall())
            assert found == sorted(connection.execute(query.encode()).fetchall()), name


def replica(server: Server) -> set[int]:
    return set(server.children())


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "point",
    [each if each in LANDING else pytest.param(each, marks=pytest.mark.slow) for each in POINTS],
)
def test_replica_killed_while_it_writes_a_checkpoint(data_dir: Path, point: str) -> None:
    server = Server(data_dir, OFTEN)
    server.environment = {failpoint.VARIABLE: f"{point}:2"}
    server.start()
    try:
        with server.connect() as connection:
            define(connection)
            seen: set[int] = set()
            number = 0
            while len(seen) < 4:  # it was killed three times
                seen |= replica(server)
                change(connection, number)
                check(connection)
                number += 1
        server.kill()
        until(lambda: not server.processes(), "the replicas of the ended server end", 10)
        server.environment = {"FORESHORE_LOG_LEVEL": "INFO"}
        server.start()
        with server.connect() as connection:
            check(connection)
            change(connection, number)
            saved = b"SELECT count(*) FROM mz_internal.mz_checkpoints"
            views = len(QUERIES) + 1
            until(
                lambda: connection.execute(saved).fetchall()[0][0] == views,
                "a checkpoint of all views",
            )
            (pid,) = replica(server)
            change(connection, number + 1)
            os.kill(pid, signal.SIGKILL)
            check(connection)
            change(connection, number + 2)
            check(connection)
        assert server.log.read_text().count("a dataflow is resumed") >= views
    finally:
        server.stop()


@pytest.mark.full
@pytest.mark.timeout(600)
@pytest.mark.parametrize("idle", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_restarted_server_resumes_from_an_old_checkpoint(data_dir: Path, idle: bool) -> None:
    """Without changes since, the checkpoint is ahead of what is logged of materialized views."""
    interval = "1" if idle else "600"
    server = Server(data_dir, ("--checkpoint-interval", interval, "--checkpoint-size", "0"))
    server.environment = {"FORESHORE_LOG_LEVEL": "INFO"}
    server.start()
    try:
        with server.connect() as connection:
            define(connection)
            change(connection, 0)
            saved = b"SELECT count(*) FROM mz_internal.mz_checkpoints WHERE size > 0"
            least = len(QUERIES) + 1 if idle else 1
            until(lambda: connection.execute(saved).fetchall()[0][0] >= least, "a checkpoint")
            # The first one may have been made while views were still to come.
            (names,) = zip(*connection.execute(SAVED_NAMES).fetchall(), strict=True)
            began = time.monotonic()
            number = 1
            while time.monotonic() < began + 8:  # longer than it takes holds to follow
                if not idle:
                    change(connection, number)
                check(connection)
                number += 1
        server.kill()
        until(lambda: not server.processes(), "the replicas of the ended server end", 10)
        before = len(server.log.read_text())
        server.start()
        with server.connect() as connection:
            for name in {*names} & {*QUERIES}:  # and is not computed from the tables meanwhile
                plan = f"EXPLAIN PHYSICAL PLAN FOR SELECT * FROM {name}".encode()
                assert "Index" in str(connection.execute(plan).fetchall())
            check(connection)
            change(connection, number)
            check(connection)
        resumed = server.log.read_text()[before:].count("a dataflow is resumed")
        assert resumed == len(names) > 0, names
    finally:
        server.stop()
