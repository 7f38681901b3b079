"""Two servers on one data directory: the last one owns it, the other says so and ends."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import psycopg
import pytest

from tests.harness import Server, until

TAKEN_OVER = "another environment has taken over"


def test_a_second_server_takes_the_data_over(data_dir: Path) -> None:
    first, second = Server(data_dir).start(), Server(data_dir)
    try:
        writer = first.connect()
        writer.execute("CREATE TABLE owned (i int)")
        writer.execute("CREATE MATERIALIZED VIEW sums AS SELECT count(*) AS n FROM owned")
        acknowledged = 0
        second.spawn()
        failure: psycopg.Error | None = None
        deadline = time.monotonic() + 60
        while failure is None and time.monotonic() < deadline:
            try:
                writer.execute("INSERT INTO owned VALUES (%s)", (acknowledged,))
                acknowledged += 1
            except psycopg.Error as error:
                failure = error
        assert failure is not None, "the first goes on writing"
        assert failure.sqlstate == "57P01", failure
        assert TAKEN_OVER in str(failure), failure
        assert first.process is not None
        assert first.process.wait(30) != 0  # it does not linger, with answers that grow old
        until(lambda: not first.processes(), "its replicas end", 10)
        assert TAKEN_OVER in first.log.read_text()

        until(lambda: accepts(second), "the second is ready")
        with second.connect() as connection:
            found = {i for (i,) in connection.execute("SELECT i FROM owned").fetchall()}
            # what the first was writing when it failed may be there, what it acknowledged is
            assert set(range(acknowledged)) <= found <= set(range(acknowledged + 1))
            connection.execute("INSERT INTO owned VALUES (-1)")
            counted = connection.execute("SELECT n FROM sums").fetchall()
            assert counted == [(len(found) + 1,)]
    finally:
        first.stop()
        second.stop()


def test_an_idle_server_also_hears_of_it(data_dir: Path) -> None:
    first, second = Server(data_dir).start(), Server(data_dir)
    try:
        idle = first.connect()
        idle.execute("CREATE TABLE owned (i int)")
        second.start()
        with pytest.raises(psycopg.OperationalError):  # nobody is answered by both
            idle.execute("SELECT count(*) FROM owned")
        assert first.process is not None
        assert first.process.wait(30) != 0
        assert "taken over from a server" in second.log.read_text()
        assert TAKEN_OVER in first.log.read_text()
        with second.connect() as connection:
            assert connection.execute("SELECT count(*) FROM owned").fetchall() == [(0,)]
    finally:
        first.stop()
        second.stop()


def test_a_server_that_stands_still_is_not_waited_for(data_dir: Path) -> None:
    first, second = Server(data_dir).start(), Server(data_dir)
    assert first.process is not None
    try:
        first.process.send_signal(signal.SIGSTOP)
        second.start()
        assert "does not end" in second.log.read_text()
        with second.connect() as connection:
            assert connection.execute("SELECT 1").fetchall() == [(1,)]
    finally:
        first.process.send_signal(signal.SIGCONT)
        assert first.process.wait(30) != 0
        first.stop()
        second.stop()


def accepts(server: Server) -> bool:
    """Return whether the server takes connections."""
    assert server.process is not None
    assert server.process.poll() is None, server.log.read_text()[-4000:]
    try:
        server.connect().close()
    except psycopg.OperationalError:
        return False
    return True
