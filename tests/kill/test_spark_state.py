"""Views on Spark through kills of its processes and the server: each update counts once.

The number of kills is that of the variable SPARK_KILLS; each takes some seconds.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from tests.compute.spark.standalone import Standalone
from tests.harness import Server, java, until

KILLS = int(os.environ.get("SPARK_KILLS", "6"))
OFTEN = ("--checkpoint-interval", "1", "--spark-master", "local[2]")
VIEWS = {
    "counts": "SELECT kind, count(*) AS n, sum(amount) AS amount FROM facts GROUP BY kind",
    "named": "SELECT f.id, k.name FROM facts f JOIN kinds k ON k.kind = f.kind",
    "top": "SELECT id, amount FROM facts ORDER BY amount DESC, id LIMIT 5",
}


def define(connection: psycopg.Connection[Any], options: str = "") -> None:
    cluster = f"CREATE CLUSTER sparks (SIZE 'spark', TICK INTERVAL '100ms'{options})"
    connection.execute(cluster.encode())
    connection.execute("CREATE TABLE facts (id int, kind int, amount int)")
    connection.execute("CREATE TABLE kinds (kind int, name text)")
    connection.execute("INSERT INTO kinds SELECT i, 'kind ' || i FROM generate_series(0, 9) s(i)")
    for name, query in VIEWS.items():
        connection.execute(f"CREATE MATERIALIZED VIEW {name} IN CLUSTER sparks AS {query}".encode())


def change(connection: psycopg.Connection[Any], number: int) -> None:
    connection.execute(
        b"INSERT INTO facts SELECT i, i %% 11, i %% 101 FROM generate_series(%s::int, %s::int) s(i)",
        (10 * number, 10 * number + 9),
    )
    connection.execute(b"DELETE FROM facts WHERE id %% 7 = %s AND id > %s", (number % 7, number))
    connection.execute(b"UPDATE kinds SET name = name || '!' WHERE kind = %s", (number % 10,))


def check(connection: psycopg.Connection[Any]) -> None:
    with connection.transaction():
        connection.execute("SET TRANSACTION READ ONLY")
        for name, query in VIEWS.items():
            found = sorted(connection.execute(f"SELECT * FROM {name}".encode()).fetchall())
            assert found == sorted(connection.execute(query.encode()).fetchall()), name


def wait_for_checkpoint(connection: psycopg.Connection[Any]) -> None:
    saved = b"SELECT count(*) FROM mz_internal.mz_checkpoints WHERE size > 0"
    until(
        lambda: connection.execute(saved).fetchall()[0][0] == len(VIEWS),
        "a checkpoint of all views",
        120,
    )


def jvms(server: Server) -> list[int]:
    names = {pid: Path(f"/proc/{pid}/comm") for pid in server.processes()}
    return [pid for pid, name in names.items() if name.exists() and "java" in name.read_text()]


def of_spark(server: Server) -> list[int]:
    """Return the replica that has the JVM."""
    parents = []
    for pid in jvms(server):
        status = Path(f"/proc/{pid}/status").read_text()
        parents += [int(line.split()[1]) for line in status.splitlines() if line[:5] == "PPid:"]
    return [pid for pid in parents if pid in server.children()]


@pytest.mark.slow
@pytest.mark.timeout(300 * KILLS)
@pytest.mark.parametrize("least", ["1B", "256MiB"])  # that jobs of Spark read
def test_views_are_right_after_kills_at_random(data_dir: Path, least: str) -> None:
    java()
    steps = ("--spark-conf", f"spark.foreshore.step.bytes={least}")
    kill_at_random(Server(data_dir, (*OFTEN, *steps)), None)


@pytest.mark.slow
@pytest.mark.timeout(300 * KILLS)
def test_views_are_right_after_kills_of_a_standalone_cluster(
    data_dir: Path, tmp_path: Path
) -> None:
    """Its executors, workers and master are killed too; each step is a job."""
    java()
    with Standalone(tmp_path, 2) as cluster:
        arguments: tuple[str, ...] = ("--checkpoint-interval", "1", "--spark-master", cluster.url)
        for each in ("spark.foreshore.step.bytes=1B", "spark.executor.cores=1"):
            arguments += ("--spark-conf", each)
        kill_at_random(Server(data_dir, arguments), cluster)


def kill_at_random(server: Server, cluster: Standalone | None) -> None:
    """Change tables and check views, while what maintains them is killed."""
    random = Random(KILLS)
    options = "" if cluster is None else ", EXECUTOR MEMORY = '512MB'"
    server.start()
    try:
        with server.connect() as connection:
            define(connection, options)
        number = 0
        for _ in range(KILLS):
            with server.connect() as connection:
                for _ in range(random.randrange(4)):
                    change(connection, number)
                    number += 1
                if random.random() < 0.3:
                    check(connection)
            kill_one(server, cluster, random)
        with server.connect() as connection:
            change(connection, number)
            check(connection)
    finally:
        server.stop()


def kill_one(server: Server, cluster: Standalone | None, random: Random) -> None:
    """Kill the JVM, the replica, the server, or something of the cluster."""
    kinds = ["jvm", "replica", "server"]
    if cluster is not None:
        kinds += ["executor", *cluster.workers, "master"]
    match random.choice(kinds):
        case "jvm":
            victims = jvms(server)
        case "replica":
            victims = of_spark(server)
        case "server":
            victims = []
        case "executor":
            assert cluster is not None
            victims = cluster.executors()[:1]
        case part:
            assert cluster is not None
            cluster.kill_and_start(part)
            return
    if not victims:  # also where the JVM has not started yet
        server.kill()
        until(lambda: not server.processes(), "its replicas end", 30)
        server.start()
    for pid in victims:
        with suppress(ProcessLookupError):  # it has ended since
            os.kill(pid, signal.SIGKILL)


@pytest.mark.timeout(600)
def test_a_restarted_server_goes_on_with_spark(data_dir: Path) -> None:
    java()
    server = Server(data_dir, OFTEN)
    server.environment = {"FORESHORE_LOG_LEVEL": "INFO"}
    server.start()
    try:
        with server.connect() as connection:
            define(connection)
            change(connection, 0)
            check(connection)
            wait_for_checkpoint(connection)
        server.kill()
        until(lambda: not server.processes(), "its replicas end", 30)
        before = len(server.log.read_text())
        server.start()
        with server.connect() as connection:
            change(connection, 1)
            check(connection)
        assert server.log.read_text()[before:].count("a dataflow is resumed") == len(VIEWS)
    finally:
        server.stop()
