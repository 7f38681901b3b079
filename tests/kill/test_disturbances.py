"""Clients that fail in every way do not disturb other clients."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable

import psycopg
import pytest

from foreshore.run_queue import RunQueue
from tests.harness import Server, indexed, until
from tests.wire.raw import Raw

ENDLESS = "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b"


class Bystander:
    """A session that writes and reads constantly, and the errors and delays that it saw.

    Delays are without the waits for a processor, its own and the server's.
    """

    def __init__(self, server: Server, number: int) -> None:
        self.number = number
        self.rounds = 0
        self.longest = 0.0
        self.failure: str | None = None
        self._server = server
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Bystander:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def goes_on(self, after: str) -> None:
        """Wait for one more round."""
        seen = self.rounds
        until(lambda: self.failure is not None or self.rounds > seen, f"others go on after {after}")
        assert self.failure is None, f"{after}: {self.failure}"

    def _run(self) -> None:
        assert self._server.process is not None
        queues = RunQueue(), RunQueue(self._server.process.pid)

        def now() -> float:
            return time.monotonic() - sum(each.seconds() or 0.0 for each in queues)

        try:
            with self._server.connect() as connection:
                while not self._over.is_set():
                    began = now()
                    connection.execute("INSERT INTO calm VALUES (%s)", (self.number,))
                    row = connection.execute(
                        "SELECT n FROM calm_counts WHERE who = %s", (self.number,)
                    ).fetchone()
                    self.longest = max(self.longest, now() - began)
                    self.rounds += 1
                    assert row == (self.rounds,), f"{row} after {self.rounds} rows"
        except Exception as error:  # whatever it is, the test tells it
            self.failure = repr(error)
        finally:
            for each in queues:
                each.close()


def cut(connection: Raw) -> None:
    """End a connection as a broken network does: by a reset, without Terminate."""
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.socket.close()


def cut_in_a_copy(server: Server) -> None:
    for size in (0, 1, 50_000):
        raw = Raw(server.port)
        raw.send("Q", b"COPY victim FROM STDIN\0")
        raw.until("G")
        for start in range(0, size, 1000):
            raw.send("d", b"".join(b"%d\n" % i for i in range(start, min(start + 1000, size))))
        raw.socket.sendall(b"d" + struct.pack("!i", 5000) + b"7\n8\n9")  # cut within a message, too
        cut(raw)


def cut_in_a_transaction(server: Server) -> None:
    raw = Raw(server.port)
    raw.send("Q", b"BEGIN\0")
    raw.until("Z")
    raw.send("Q", b"INSERT INTO victim SELECT generate_series(1, 1000)\0")
    raw.until("Z")
    cut(raw)


def cut_in_a_query(server: Server) -> None:
    raw = Raw(server.port)
    raw.send("Q", b"SET client_connection_check_interval = 100\0")  # else it runs to its end
    raw.until("Z")
    raw.send("Q", ENDLESS.encode() + b"\0")
    time.sleep(0.3)
    cut(raw)


def cut_out_of_step(server: Server) -> None:
    raw = Raw(server.port)
    raw.socket.sendall(b"\xff\xff\xff\xff\xff\xff\xff\xff")
    assert raw.closed()


def cancelled(server: Server) -> None:
    with server.connect() as connection:
        timer = threading.Timer(0.3, connection.cancel)
        timer.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(ENDLESS)
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


def timed_out(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("SET statement_timeout = '200ms'")
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(ENDLESS)
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


def failing_statements(server: Server) -> None:
    expected = {
        "SELECT 1 / 0": "22012",
        "INSERT INTO victim SELECT 1 / (i - 500) FROM generate_series(1, 1000) i": "22012",
        "INSERT INTO victim SELECT 2147483647 + i FROM generate_series(0, 9) i": "22003",
        "UPDATE calm SET who = who / 0": "22012",
        "DELETE FROM calm WHERE 1 / (who - who) = 1": "22012",
        "INSERT INTO victim VALUES ('one')": "22P02",
        "INSERT INTO victim VALUES (true)": "42804",
        "INSERT INTO nowhere VALUES (1)": "42P01",
        "SELECT nothing FROM victim": "42703",
        "SELECT nothing(1)": "42883",
        "SELEC 1": "42601",
        "CREATE TABLE victim (i int)": "42P07",
        "SELECT 99999999999999999999::int8": "22003",
    }
    with server.connect() as connection:
        for statement, sqlstate in expected.items():
            with pytest.raises(psycopg.Error) as caught:
                connection.execute(statement.encode())
            assert caught.value.sqlstate == sqlstate, (statement, caught.value)
            assert connection.execute("SELECT 1").fetchall() == [(1,)]


TROUBLE: tuple[Callable[[Server], None], ...] = (
    cut_in_a_copy,
    cut_in_a_transaction,
    cut_in_a_query,
    cut_out_of_step,
    cancelled,
    timed_out,
    failing_statements,
)


def test_failures_of_one_client_do_not_disturb_others(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE victim (i int)")
        connection.execute("CREATE TABLE calm (who int)")
        connection.execute(
            "CREATE VIEW calm_counts AS SELECT who, count(*) AS n FROM calm GROUP BY who"
        )
        connection.execute("CREATE INDEX calm_counts_who ON calm_counts (who)")
        indexed(connection, "calm_counts")  # else the first reads wait for the replica's start
    with Bystander(server, 1) as one, Bystander(server, 2) as two:
        for trouble in TROUBLE:
            trouble(server)
            for bystander in (one, two):
                bystander.goes_on(trouble.__name__)
    assert (one.failure, two.failure) == (None, None)
    assert max(one.longest, two.longest) < 5, "the others had to wait"
    with server.connect() as connection:
        assert connection.execute("SELECT count(*) FROM victim").fetchall() == [(0,)]
        counts = connection.execute("SELECT who, count(*) FROM calm GROUP BY who ORDER BY who")
        assert counts.fetchall() == [(1, one.rounds), (2, two.rounds)]

        def alone() -> bool:
            running.clear()
            activity = "SELECT pid, state, query FROM pg_stat_activity WHERE state <> 'idle'"
            clients = f"{activity} AND backend_type = 'client backend'"  # no metric of another test
            running.extend(connection.execute(clients).fetchall())
            return len(running) == 1

        running: list[tuple[object, ...]] = []
        try:
            until(alone, "what was cut is not running any more")
        except AssertionError as error:
            raise AssertionError(f"still running: {running}") from error
