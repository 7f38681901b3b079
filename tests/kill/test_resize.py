"""A server that is killed during ALTER CLUSTER or a move of a view is sound at its next start."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.harness import Server, serving, until
from tests.kill.test_replicas import Load, prepare
from tests.stopped_process import stop_process

RESIZE = (
    "ALTER CLUSTER pair SET (SIZE = '{size}') "
    "WITH (WAIT UNTIL READY (TIMEOUT = '2min', ON TIMEOUT = 'ROLLBACK'))"
)
REPLICAS = (
    "SELECT size, count(*) FROM mz_cluster_replicas WHERE cluster_id ="
    " (SELECT id FROM mz_clusters WHERE name = 'pair') GROUP BY size"
)
PENDING = "SELECT id FROM mz_internal.mz_pending_cluster_replicas"
MAINTAINED = "SELECT kind, n FROM {view} ORDER BY kind"


def test_resize_disturbs_no_client_of_a_server(data_dir: Path) -> None:
    with serving(data_dir) as server:
        prepare(server, 1)
        others = len(server.children()) - 1
        with Load(server) as load, server.connect() as connection:
            load.goes_on(2)
            for size in ("duckdb", "embedded"):
                connection.execute(RESIZE.format(size=size).encode())
                assert connection.execute(REPLICAS).fetchall() == [(size, 1)]
                load.goes_on(2)
        assert not load.failures, load.failures
        until(lambda: len(server.children()) == others + 1, "the old replicas have ended")
    assert not server.processes()


@pytest.mark.parametrize("moment", ["pending", "committed"])
def test_kill_during_resize_leaves_one_size(data_dir: Path, moment: str) -> None:
    with serving(data_dir) as server:
        prepare(server, 1)
        with server.connect() as connection:
            connection.execute("INSERT INTO facts SELECT i, i % 5, i FROM generate_series(1, 99) i")
        before = server.children()
        resize = threading.Thread(target=_resize, args=(server,))
        resize.start()
        new: set[int] = set()
        if moment == "pending":
            until(lambda: bool(server.children() - before), "a new replica starts")
            new = server.children() - before
            for pid in new:  # it is never ready
                stop_process(pid)
        else:
            resize.join()
        server.kill()
        for pid in new:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        resize.join()
        server.start()
        with server.connect() as connection:
            size = "embedded" if moment == "pending" else "duckdb"
            assert connection.execute(REPLICAS).fetchall() == [(size, 1)]
            assert connection.execute(PENDING).fetchall() == []
            _check(connection, 99)
            connection.execute("SET cluster = pair")
            _check(connection, 99)
            connection.execute(RESIZE.format(size="duckdb").encode())
            _check(connection, 99)
    assert not server.processes()


def test_kill_during_move_of_view_loses_nothing(data_dir: Path) -> None:
    with serving(data_dir) as server:
        prepare(server, 1)
        with server.connect() as connection:
            connection.execute("CREATE CLUSTER next (SIZE 'duckdb')")
            for number in range(4):
                connection.execute("INSERT INTO facts VALUES (1, 1, 1)")
                target = "pair" if number % 2 else "next"
                connection.execute(f"ALTER MATERIALIZED VIEW sums_mv SET CLUSTER {target}".encode())
                connection.execute("INSERT INTO facts VALUES (1, 1, 1)")
                _check(connection, 2 * number + 2)
                if number == 2:
                    break
        server.kill()
        server.start()
        with server.connect() as connection:
            _check(connection, 6)
            connection.execute("INSERT INTO facts VALUES (1, 1, 1)")
            connection.execute("DROP CLUSTER pair CASCADE")
            _check(connection, 7, views=("sums_mv",))
    assert not server.processes()


def _resize(server: Server) -> None:
    with suppress(psycopg.OperationalError), server.connect() as connection:  # it is killed
        connection.execute(RESIZE.format(size="duckdb").encode())


def _check(
    connection: psycopg.Connection[Any], rows: int, views: tuple[str, ...] = ("sums", "sums_mv")
) -> None:
    for view in views:
        kept = connection.execute(MAINTAINED.format(view=view).encode()).fetchall()
        assert sum(n for _, n in kept) == rows, (view, kept)
