"""A statement that takes long to read or to compute holds up nobody else."""

import threading
import time

import psycopg
import pytest

from tests.harness import Server


def longest_wait_beside(server: Server, sql: str) -> tuple[float, float]:
    """Run a statement; return the seconds it took, and those of the slowest other one meanwhile."""
    took: list[float] = []

    def run() -> None:
        with server.connect() as connection:
            began = time.monotonic()
            connection.execute(sql.encode())
            took.append(time.monotonic() - began)

    longest = 0.0
    with server.connect() as bystander:
        bystander.execute("SELECT 1")
        thread = threading.Thread(target=run)
        thread.start()
        while thread.is_alive():
            began = time.monotonic()
            bystander.execute("SELECT 1")
            longest = max(longest, time.monotonic() - began)
        thread.join()
    (seconds,) = took
    return seconds, longest


def test_reading_a_long_text(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE told_at_length (i int, t text)")
        rows = ", ".join(f"({i}, 'row {i}')" for i in range(10_000))
        took, longest = longest_wait_beside(server, f"INSERT INTO told_at_length VALUES {rows}")
        assert longest < took / 3
        counted = connection.execute("SELECT count(*), sum(i) FROM told_at_length").fetchone()
        assert counted == (10_000, 49_995_000)


def test_a_long_text_is_given_up_when_its_time_is_over(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE told_too_long (i int)")
        connection.execute("SET statement_timeout = '100ms'")
        rows = ", ".join(f"({i})" for i in range(50_000))
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(f"INSERT INTO told_too_long VALUES {rows}".encode())
        connection.execute("RESET statement_timeout")
        assert connection.execute("SELECT count(*) FROM told_too_long").fetchone() == (0,)


def test_a_value_of_many_megabytes(server: Server) -> None:
    with server.connect() as connection:
        for length in (10, 50_000_000):
            sql = f"SELECT length(repeat('a', {length})), length(lpad('', {length}, 'b'))"
            assert connection.execute(sql.encode()).fetchone() == (length, length)
    took, longest = longest_wait_beside(server, "SELECT length(repeat('a', 100000000))")
    assert longest < max(took / 2, 0.5)
