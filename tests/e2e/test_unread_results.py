"""Results that clients do not read: they cost the server disk space, and no memory."""

import contextlib
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from tests.harness import Server, until

ROWS = 300_000
WIDE = "repeat('x', 200)"  # so that a result has some 60 MB
# DISTINCT needs all rows before the first; without it, such rows are computed as they are read.
SERIES = f"SELECT DISTINCT g, {WIDE} FROM generate_series(1, {ROWS}) g"
READY = b"Z\0\0\0\5"


class Client:
    """A connection that asks and then reads only what it is told to."""

    def __init__(self, server: Server) -> None:
        self.socket = socket.create_connection(("127.0.0.1", server.port))
        parameters = b"user\0foreshore\0database\0foreshore\0\0"
        self.socket.sendall(struct.pack("!ii", len(parameters) + 8, 196608) + parameters)
        received = b""
        while READY not in received:
            received += self.socket.recv(4096)
        place = received.index(b"K\0\0\0\x0c")
        self.pid, self.secret = struct.unpack("!ii", received[place + 5 : place + 13])

    def ask(self, sql: str) -> None:
        """Send a simple query."""
        text = sql.encode() + b"\0"
        self.socket.sendall(b"Q" + struct.pack("!i", len(text) + 4) + text)

    def begin_reading(self) -> None:
        """Read until the first row is there."""
        received = b""
        while b"D\0\0" not in received:
            received += self.socket.recv(1000)

    def rest(self) -> bytes:
        """Read to the next ReadyForQuery; return the end of it."""
        end = b""
        while not end.endswith(READY + b"I"):
            end = (end + self.socket.recv(1 << 20))[-1000:]
        return end


@contextlib.contextmanager
def clients(server: Server, count: int, sql: str) -> Iterator[list[Client]]:
    """Give clients to whom the first rows of a result have come, and who read no more."""
    opened = [Client(server) for _ in range(count)]
    try:
        for each in opened:
            each.ask(sql)
        for each in opened:
            each.begin_reading()
        yield opened
    finally:
        for each in opened:
            each.socket.close()


def memory(pid: int) -> int:
    """Return the megabytes that a process has in memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [each for each in lines if each.startswith("VmRSS")]
    return int(line.split()[1]) >> 10


def scratch_bytes(server: Server) -> int:
    """Return what results hold in files that have no name.

    Those in the data directory have rows that were written lately, until they are compacted.
    """
    assert server.process is not None
    total, written = 0, str(server.data_dir)
    for each in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            place = os.readlink(each)
            if place.endswith("(deleted)") and not place.startswith(written):
                total += each.stat().st_size
    return total


def test_unread_results_stay_out_of_memory_and_leave_nothing_behind(server: Server) -> None:
    assert server.process is not None
    pid = server.process.pid
    with server.connect() as other:
        other.execute("CREATE TABLE wide (a int, b text)")
        series = f"generate_series(1, {ROWS}) g"
        other.execute(f"INSERT INTO wide SELECT g, {WIDE} FROM {series}".encode())
        with clients(server, 1, "SELECT * FROM wide"):
            pass  # the first one pays for what a server sets up once
        before = memory(pid)
        for sql in ("SELECT * FROM wide", SERIES):
            with clients(server, 4, sql):
                assert scratch_bytes(server) > 4 * ROWS * 200
                until(lambda: memory(pid) < before + 150, "the memory of evaluations is given back")
                other.execute("SELECT 1")  # answered before they read on
            until(lambda: not scratch_bytes(server), "the scratch files are gone")


def test_unread_result_is_read_whole_and_in_order_later(server: Server) -> None:
    with server.connect() as connection:
        rows = connection.execute(f"SELECT g, {WIDE} FROM generate_series(1, {ROWS}) g ORDER BY g")
        for count, (g, text) in enumerate(rows, 1):
            assert (g, len(text)) == (count, 200)
        assert rows.rowcount == ROWS
    assert not scratch_bytes(server)


def test_statement_timeout_ends_a_result_that_nobody_reads(server: Server) -> None:
    with clients(
        server,
        1,
        f"SET statement_timeout = 5000; {SERIES}",
    ) as (client,):
        assert scratch_bytes(server)
        until(lambda: not scratch_bytes(server), "the time-out has freed the file")
        assert b"C57014\0" in client.rest()


def test_cancel_request_ends_a_result_that_nobody_reads(server: Server) -> None:
    with clients(server, 1, SERIES) as (client,):
        assert scratch_bytes(server)
        with socket.create_connection(("127.0.0.1", server.port)) as canceller:
            canceller.sendall(struct.pack("!iiii", 16, 80877102, client.pid, client.secret))
        until(lambda: not scratch_bytes(server), "the cancel request has freed the file")
        assert b"C57014\0" in client.rest()
        client.ask("SELECT 1")
        assert b"SELECT 1\0" in client.rest()


def test_cursor_over_a_spilled_result_keeps_its_snapshot_and_its_place(server: Server) -> None:
    with server.connect() as connection, server.connect() as other:
        connection.execute("CREATE TABLE seen (a int, b text)")
        connection.execute(
            f"INSERT INTO seen SELECT g, {WIDE} FROM generate_series(1, 50000) g".encode()
        )
        with connection.transaction():
            connection.execute("DECLARE c CURSOR FOR SELECT a FROM seen ORDER BY a, b")
            connection.execute(
                f"DECLARE d CURSOR FOR SELECT a, {WIDE} FROM seen ORDER BY a".encode()
            )
            other.execute("DELETE FROM seen")
            assert connection.execute("FETCH 2 FROM d").fetchall()[1][0] == 2
            connection.execute("MOVE 40000 FROM d")
            assert connection.execute("FETCH 1 FROM d").fetchall()[0][0] == 40003
            rest = connection.execute("FETCH ALL FROM d").fetchall()
            assert [row[0] for row in rest] == list(range(40004, 50001))
            assert len(connection.execute("FETCH ALL FROM c").fetchall()) == 50000
    until(lambda: not scratch_bytes(server), "the cursors' files are gone")


def test_connection_that_ends_while_its_result_comes_stops_the_query(server: Server) -> None:
    client = Client(server)
    client.ask("SELECT * FROM generate_series(1, 300000000) a")
    with server.connect() as other:
        running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT * FROM gen%'"

        def count() -> int:
            row = other.execute(running.encode()).fetchone()
            assert row is not None
            return int(row[0])

        until(lambda: count() == 1, "the query runs")
        client.socket.close()
        until(lambda: count() == 0, "the session is gone")
    until(lambda: not scratch_bytes(server), "its files are gone")


def test_copy_of_an_unread_result_is_bounded_too(server: Server) -> None:
    assert server.process is not None
    before = memory(server.process.pid)
    client = Client(server)
    client.ask(f"COPY ({SERIES}) TO STDOUT")
    until(lambda: scratch_bytes(server) > ROWS * 200, "the result is in a file")
    pid = server.process.pid
    until(lambda: memory(pid) < before + 150, "the memory of the evaluation is given back")
    client.socket.close()
    until(lambda: not scratch_bytes(server), "the file is gone")
