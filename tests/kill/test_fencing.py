"""A second server on a data directory: it is refused, or takes it over and the first ends."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.harness import Server, indexed, serving, until
from tests.stopped_process import stop_process

TAKEN_OVER = "another environment has taken over"


def test_take_over_under_writes_keeps_what_was_acknowledged(data_dir: Path) -> None:
    first, second = Server(data_dir).start(), Server(data_dir, ("--take-over",))
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


def test_second_server_is_refused_and_changes_nothing(data_dir: Path) -> None:
    with serving(data_dir) as first:
        connection = first.connect()
        connection.execute("CREATE TABLE owned (i int)")
        second = Server(data_dir)
        said = second.spawn()
        assert first.process is not None
        assert second.process is not None
        assert second.process.wait(30) == 1
        lines = second.log.read_bytes()[said:].decode().splitlines()
        (line,) = (each for each in lines if " CRITICAL " in each)
        assert f'data directory "{data_dir}" is in use by another server' in line
        assert f"It is process {first.process.pid} on host " in line
        assert "--take-over" in line
        connection.execute("INSERT INTO owned VALUES (1)")

        first.kill()
        second.start()
        with second.connect() as successor:
            assert successor.execute("SELECT i FROM owned").fetchall() == [(1,)]
        second.stop()


def test_idle_server_that_is_taken_over_from_ends(data_dir: Path) -> None:
    first, second = Server(data_dir).start(), Server(data_dir, ("--take-over",))
    try:
        idle = first.connect()
        idle.execute("CREATE TABLE owned (i int)")
        second.start()
        with pytest.raises(psycopg.OperationalError):  # nobody is answered by both
            idle.execute("SELECT count(*) FROM owned")
        assert first.process is not None
        assert first.process.wait(30) != 0
        assert "taken over from a live server" in second.log.read_text()
        assert TAKEN_OVER in first.log.read_text()
        with second.connect() as connection:
            assert connection.execute("SELECT count(*) FROM owned").fetchall() == [(0,)]
    finally:
        first.stop()
        second.stop()


@pytest.mark.slow
def test_take_over_from_server_that_stands_still_starts(data_dir: Path) -> None:
    first, second = Server(data_dir).start(), Server(data_dir, ("--take-over",))
    assert first.process is not None
    try:
        stop_process(first.process.pid)
        second.start()
        assert "does not end" in second.log.read_text()
        with second.connect() as connection:
            assert connection.execute("SELECT 1").fetchall() == [(1,)]
    finally:
        first.process.send_signal(signal.SIGCONT)
        assert first.process.wait(30) != 0
        first.stop()
        second.stop()


READS = (
    "SELECT v FROM owned WHERE k = 1",  # from the table's keys
    "SELECT * FROM owned",
    "SELECT count(*) FROM owned WHERE v = 0",
    "SELECT * FROM sums",
    "SELECT * FROM sums WHERE k = 1",  # from the view's index
    "COPY owned TO STDOUT",
    "SELECT 1",
    "SHOW server_version",
)


def test_server_that_stood_still_answers_nobody_after_take_over(data_dir: Path) -> None:
    first, second = Server(data_dir).start(), Server(data_dir, ("--take-over",))
    assert first.process is not None
    outcomes: dict[str, object] = {}

    def read(name: str, ask: Callable[[], object]) -> None:
        try:
            outcomes[name] = ask()
        except psycopg.Error as error:
            outcomes[name] = error

    def copied(connection: psycopg.Connection[Any], sql: str) -> list[bytes]:
        with connection.cursor() as cursor, cursor.copy(sql.encode()) as copy:
            return [bytes(part) for part in copy]

    try:
        writer = first.connect()
        writer.execute("CREATE TABLE owned (k int PRIMARY KEY, v int)")
        writer.execute("INSERT INTO owned VALUES (1, 0)")
        writer.execute("CREATE VIEW sums AS SELECT k, sum(v) AS s FROM owned GROUP BY k")
        writer.execute("CREATE INDEX ON sums (k)")
        indexed(writer, "sums")
        asked: dict[str, Callable[[], object]] = {}
        for sql in READS:
            if sql.startswith("COPY"):
                asked[sql] = partial(copied, first.connect(), sql)
                continue
            plain, prepared = first.connect(), first.connect(prepare_threshold=0)
            prepared.execute(sql.encode())
            asked[sql] = partial(lambda c, sql: c.execute(sql.encode()).fetchall(), plain, sql)
            asked[f"prepared {sql}"] = partial(
                lambda c, sql: c.execute(sql.encode()).fetchall(), prepared, sql
            )
        block = first.connect()
        block.execute("BEGIN")
        block.execute("SELECT * FROM owned")
        asked["in a block"] = lambda: block.execute("SELECT v FROM owned WHERE k = 1").fetchall()
        following = first.connect()
        following.execute("BEGIN")
        following.execute("DECLARE changes CURSOR FOR SUBSCRIBE owned WITH (PROGRESS)")
        following.execute("FETCH ALL changes WITH (timeout = '1s')")
        fetch = b"FETCH ALL changes WITH (timeout = '1s')"
        asked["a subscription"] = lambda: following.execute(fetch).fetchall()

        stop_process(first.process.pid)
        second.start()
        with second.connect() as connection:
            connection.execute("UPDATE owned SET v = 1")
            readers = [threading.Thread(target=read, args=pair) for pair in asked.items()]
            for reader in readers:
                reader.start()
            # What they ask has arrived at the first when it goes on.
            until(lambda: unread(first.port) >= len(asked), "all has been asked", 10)
            first.process.send_signal(signal.SIGCONT)
            for reader in readers:
                reader.join(30)
            assert outcomes.keys() == asked.keys()
            for name, outcome in outcomes.items():
                assert isinstance(outcome, psycopg.OperationalError), (name, outcome)
                assert TAKEN_OVER in str(outcome), name
            assert first.process.wait(30) != 0
            assert connection.execute("SELECT v FROM owned").fetchall() == [(1,)]
    finally:
        first.process.send_signal(signal.SIGCONT)
        first.stop()
        second.stop()


def unread(port: int) -> int:
    """Return how many connections to a port of the loopback have bytes that are not read."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    found = (line.split() for line in lines)
    return sum(
        int(fields[1].partition(":")[2], 16) == port
        and fields[3] == "01"  # established
        and int(fields[4].partition(":")[2], 16) > 0
        for fields in found
    )


def accepts(server: Server) -> bool:
    """Return whether the server accepts connections."""
    assert server.process is not None
    assert server.process.poll() is None, server.log.read_text()[-4000:]
    try:
        server.connect().close()
    except psycopg.OperationalError:
        return False
    return True
