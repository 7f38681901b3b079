"""SIGKILL of a cluster's replicas under load does not disturb readers and writers."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.harness import Server, java, serving, until

DEFINITIONS = {
    "sums": "SELECT kind, count(*) AS n, sum(amount) AS amount FROM facts GROUP BY kind",
    "named": "SELECT f.id, k.name FROM facts f JOIN kinds k ON k.kind = f.kind WHERE f.amount > 90",
}


class Load:
    """Writers and readers that run until `over` is set, and their failures."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.over = threading.Event()
        self.failures: list[str] = []
        self.acknowledged = 0
        self.reads = 0
        self.longest = 0.0  # seconds of one reading of a view
        self._threads = [
            threading.Thread(target=self._guard, args=(f,)) for f in (self._write, self._read)
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join()

    def goes_on(self, readings: int) -> None:
        """Wait for so many more reads."""
        seen = self.reads
        until(lambda: bool(self.failures) or self.reads >= seen + readings, "reads go on")
        assert not self.failures, self.failures

    def _guard(self, work: Callable[[psycopg.Connection[Any]], None]) -> None:
        try:
            with self.server.connect() as connection:
                connection.execute("SET cluster = pair")
                while not self.over.is_set():
                    work(connection)
        except Exception as error:  # whatever it is, the test tells it
            self.failures.append(repr(error))

    def _write(self, connection: psycopg.Connection[Any]) -> None:
        first = self.acknowledged
        connection.execute(
            "INSERT INTO facts SELECT i, i %% 5, i %% 101 FROM generate_series(%s::int, %s::int) i",
            (first, first + 9),
        )
        self.acknowledged += 10

    def _read(self, connection: psycopg.Connection[Any]) -> None:
        """Read views with an index and materialized ones, and recompute them, all as of one time."""
        before = self.acknowledged
        with connection.transaction():
            connection.execute("SET TRANSACTION READ ONLY")
            for name, query in DEFINITIONS.items():
                recomputed = sorted(connection.execute(query.encode()).fetchall())
                for view in (name, f"{name}_mv"):
                    began = time.monotonic()
                    kept = sorted(connection.execute(f"SELECT * FROM {view}".encode()).fetchall())
                    self.longest = max(self.longest, time.monotonic() - began)
                    assert kept == recomputed, view
                if name == "sums":
                    assert sum(row[1] for row in recomputed) >= before, "a read is stale"
        self.reads += 1


def prepare(server: Server, replicas: int) -> None:
    with server.connect() as connection:
        connection.execute(
            f"CREATE CLUSTER pair (SIZE 'embedded', REPLICATION FACTOR {replicas})".encode()
        )
        connection.execute("SET cluster = pair")
        connection.execute("CREATE TABLE facts (id int, kind int, amount int)")
        connection.execute("CREATE TABLE kinds (kind int, name text)")
        connection.execute("INSERT INTO kinds SELECT i, 'kind ' || i FROM generate_series(0, 4) i")
        for name, query in DEFINITIONS.items():
            connection.execute(f"CREATE VIEW {name} AS {query}".encode())
            connection.execute(f"CREATE DEFAULT INDEX ON {name}".encode())
            connection.execute(f"CREATE MATERIALIZED VIEW {name}_mv AS {query}".encode())
            connection.execute(f"SELECT * FROM {name}".encode())


def test_kill_of_one_of_two_replicas_disturbs_no_client(data_dir: Path) -> None:
    with serving(data_dir) as server:
        others = server.children()  # the first cluster's
        prepare(server, 2)

        def pair() -> set[int]:
            return server.children() - others

        until(lambda: len(pair()) == 2, "the cluster has two processes")
        with Load(server) as load:
            load.goes_on(1)
            load.longest = 0  # the first reading waited for the views
            for _ in range(4):
                settled(server, load)
                victim = sorted(pair())[0]  # the older one: each is killed in turn
                os.kill(victim, signal.SIGKILL)
                load.goes_on(3)
                until(lambda: len(pair()) == 2 and victim not in pair(), "it is started again")  # noqa: B023
            settled(server, load)
        assert not load.failures, load.failures
        assert load.longest < 5, "a reading waited for the replica that was killed"
    assert not server.processes()


def test_reads_after_kill_of_only_replica_wait_for_next(data_dir: Path) -> None:
    with serving(data_dir) as server:
        others = server.children()
        prepare(server, 1)
        with Load(server) as load:
            for _ in range(3):
                load.goes_on(1)
                for pid in server.children() - others:
                    os.kill(pid, signal.SIGKILL)
            load.goes_on(3)
    assert not server.processes()


@pytest.mark.slow
def test_views_go_on_after_kill_of_jvm(data_dir: Path) -> None:
    java()

    def jvms() -> set[int]:
        names = {pid: Path(f"/proc/{pid}/comm") for pid in server.processes()}
        return {pid for pid, name in names.items() if name.exists() and "java" in name.read_text()}

    with serving(data_dir) as server, server.connect() as connection:
        connection.execute("CREATE CLUSTER sparks (SIZE 'spark', TICK INTERVAL '200ms')")
        connection.execute("CREATE TABLE facts (kind int)")
        connection.execute(
            "CREATE MATERIALIZED VIEW counts IN CLUSTER sparks"
            " AS SELECT kind, count(*) FROM facts GROUP BY kind"
        )
        replicas = server.children()
        for kills in range(2):
            connection.execute("INSERT INTO facts VALUES (1), (2)")
            counts = connection.execute("SELECT * FROM counts ORDER BY kind").fetchall()
            assert counts == [(1, kills + 1), (2, kills + 1)]
            (victim,) = jvms()
            os.kill(victim, signal.SIGKILL)
            until(lambda: bool(jvms() - {victim}), "another is started", 60)  # noqa: B023
        assert server.children() == replicas, "the replica goes on"
        told = "SELECT DISTINCT engine, jobs, recomputed FROM mz_internal.mz_last_steps"
        until(lambda: connection.execute(told).fetchall() == [("duckdb", 0, 0)], "steps are told")
        explained = connection.execute("EXPLAIN PHYSICAL PLAN FOR MATERIALIZED VIEW counts")
        assert ("Last steps:",) in explained.fetchall()


def settled(server: Server, load: Load) -> None:
    """Wait until all replicas are online, and two seconds more, while reads go on."""
    with server.connect() as connection:
        online = "SELECT bool_and(status = 'online') FROM mz_internal.mz_cluster_replica_statuses"
        until(lambda: connection.execute(online).fetchall() == [(True,)], "replicas are online")
    deadline = time.monotonic() + 2
    while time.monotonic() < deadline:
        assert not load.failures, load.failures
        time.sleep(0.05)
