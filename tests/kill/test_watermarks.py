"""Windows of a stream stay as they were shown, though the server and its replicas are killed."""

import os
import random
import signal
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.harness import Server

KILLS = 4
ROWS = 40  # of an INSERT

pytestmark = pytest.mark.full

QUERY = (
    "SELECT window_end, count(*) AS n, max(v) AS most, count(DISTINCT v) AS different"
    " FROM TUMBLE(t, at, INTERVAL '10 seconds') GROUP BY window_end"
)
FINAL = (
    f"SELECT * FROM ({QUERY}) AS q WHERE window_end <= (SELECT max(at) FROM t) - '5 s'::interval"
)


def test_final_windows_never_change_over_kills(tmp_path: Path) -> None:
    server = Server(tmp_path / "data").start()
    stream = Stream(server)
    try:
        with server.connect() as connection:
            mark = "WATERMARK FOR at AS at - INTERVAL '5 seconds'"
            connection.execute(f"CREATE TABLE t (at timestamp, v int, {mark})".encode())
            view = f"CREATE MATERIALIZED VIEW closed WITH (EMIT ON WINDOW CLOSE) AS {QUERY}"
            connection.execute(view.encode())
        stream.thread.start()
        seed, seen = random.Random(3), set[Any]()
        for number in range(KILLS):
            time.sleep(seed.uniform(0.5, 1.5))
            with server.connect() as connection:
                now = set(connection.execute(b"SELECT * FROM closed").fetchall())
                assert seen <= now
                seen = now
            if number % 2:
                os.kill(seed.choice(list(server.children())), signal.SIGKILL)
            else:
                server.kill()
                server.start()
        stream.done = True
        stream.thread.join()
        assert stream.refused
        with server.connect() as connection:
            found = set(connection.execute(b"SELECT * FROM closed").fetchall())
            assert seen <= found
            assert found == set(connection.execute(FINAL.encode()).fetchall())
            assert len(found) > 5
    finally:
        stream.done = True
        server.stop()


def test_marks_of_the_clock_never_go_back_over_kills(tmp_path: Path) -> None:
    server = Server(tmp_path / "data").start()
    try:
        with server.connect() as connection:
            mark = "WATERMARK FOR at AS at - INTERVAL '1 second' IDLE TIMEOUT INTERVAL '1 second'"
            connection.execute(f"CREATE TABLE t (at timestamp, v int, {mark})".encode())
            view = f"CREATE MATERIALIZED VIEW closed WITH (EMIT ON WINDOW CLOSE) AS {QUERY}"
            connection.execute(view.encode())
            connection.execute(b"INSERT INTO t VALUES ('2026-01-01 00:00:08', 1)")
        last: Any = None
        for number in range(KILLS):
            with server.connect() as connection:
                while (now := idle_mark(connection)) is None or now == last:
                    time.sleep(0.05)
                assert last is None or now > last
                last = now
            if number % 2:
                os.kill(next(iter(server.children())), signal.SIGKILL)
            server.kill()
            server.start()
            with server.connect() as connection:
                assert idle_mark(connection) >= last
                late = last - timedelta(seconds=2)
                with pytest.raises(psycopg.errors.CheckViolation):
                    connection.execute(f"INSERT INTO t VALUES ('{late}', 2)".encode())
        with server.connect() as connection:
            connection.execute(
                f"INSERT INTO t VALUES ('{last + timedelta(minutes=1)}', 3)".encode()
            )
            found = connection.execute(b"SELECT window_end, n FROM closed ORDER BY 1").fetchall()
        assert found == [(datetime(2026, 1, 1, 0, 0, 10), 1)]
    finally:
        server.stop()


def idle_mark(connection: psycopg.Connection[Any]) -> Any:
    """Return the last mark of the clock, or None."""
    found = connection.execute(b"SELECT at FROM t_idle").fetchone()
    return None if found is None else found[0]


class Stream:
    """A client that inserts rows, some of them too late, and goes on after each kill."""

    def __init__(self, server: Server) -> None:
        self.done = False
        self.refused = 0
        self._server = server
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        seed, second = random.Random(4), 0
        while not self.done:
            try:
                with self._server.connect() as connection:
                    while not self.done:
                        second += 1
                        self._insert(connection, second - seed.choice((0, 0, 1, 2, 9)), seed)
            except psycopg.OperationalError:
                time.sleep(0.05)

    def _insert(
        self, connection: psycopg.Connection[Any], second: int, seed: random.Random
    ) -> None:
        at = f"'2026-01-01'::timestamp + {second} * '1 second'::interval"
        values = ", ".join(f"({at}, {seed.randrange(100)})" for _ in range(ROWS))
        try:
            connection.execute(f"INSERT INTO t VALUES {values}".encode())
        except psycopg.errors.CheckViolation:
            self.refused += 1
