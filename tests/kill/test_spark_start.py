"""A server that ends while Spark starts: Spark's JVM ends with it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness import Server, java, until


def programs(server: Server, name: str) -> set[int]:
    """Return the live processes of a server whose command line has an argument `name`."""
    found = set()
    for pid in server.processes():
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:  # it has ended
            continue
        if name.encode() in arguments:
            found.add(pid)
    return found


def jvms(server: Server) -> set[int]:
    return programs(server, "org.apache.spark.deploy.SparkSubmit")


@pytest.fixture
def spark_server(data_dir: Path) -> Server:
    """Return a server, not started, of a database that has a Spark cluster."""
    java()
    server = Server(data_dir, ("--spark-master", "local[1]")).start()
    with server.connect() as connection:
        connection.execute("CREATE CLUSTER s (SIZE 'spark')")
    server.stop()
    return server


def jvm_runs(server: Server) -> None:
    """Wait until the JVM runs, or is about to: its command line has been executed."""
    until(lambda: bool(jvms(server)), "the JVM is started")


def gateway_listens(server: Server) -> None:
    """Wait until the JVM listens for the replica, which is about to connect."""
    jvm_runs(server)
    directories = set()
    for pid in jvms(server):
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        name = b"_PYSPARK_DRIVER_CONN_INFO_PATH="
        directories |= {Path(v[len(name) :].decode()) for v in environment if v.startswith(name)}
    until(
        lambda: any(path.exists() or not path.parent.exists() for path in directories),
        "the JVM listens",
    )


def jvm_has_run_for(seconds: float) -> Callable[[Server], None]:
    def wait(server: Server) -> None:
        jvm_runs(server)
        time.sleep(seconds)  # a moment of the JVM's start that nothing marks

    return wait


MOMENTS = {
    "JVM runs": jvm_runs,
    "JVM has run for 0.3 s": jvm_has_run_for(0.3),
    "gateway listens": gateway_listens,
}


ENDINGS = [
    *((signal.SIGINT, moment) for moment in MOMENTS),
    (signal.SIGTERM, "JVM has run for 0.3 s"),
    (signal.SIGKILL, "JVM has run for 0.3 s"),
    (signal.SIGKILL, "gateway listens"),
]


@pytest.mark.slow
def test_server_ended_while_spark_starts_leaves_no_process(spark_server: Server) -> None:
    server = spark_server
    try:
        for number, moment in ENDINGS:
            server.spawn()
            MOMENTS[moment](server)
            assert server.process is not None
            server.process.send_signal(number)
            assert server.process.wait(30) == (-number if number == signal.SIGKILL else 0)
            until(lambda: not server.processes(), f"all ends: {number.name} when {moment}", 5)
    finally:
        for pid in server.processes():
            os.kill(pid, signal.SIGKILL)
