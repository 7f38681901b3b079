"""A statement that takes long to read or to compute holds up nobody else."""

import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress

import psycopg
import pytest

from tests.harness import Server
from tests.starvation import Starvation

Run = Callable[[psycopg.Connection[tuple[object, ...]]], object]

LONGEST_WAIT_S = 0.15


def longest_wait_beside(server: Server, run: Run) -> tuple[float, float]:
    """Call `run`; return the seconds it took, and those of the slowest other one meanwhile.

    Time in which the server had no processor to run on does not count as time of the other one.
    """
    assert server.process is not None
    pid = server.process.pid
    took: list[float] = []

    def timed() -> None:
        with server.connect() as connection:
            began = time.monotonic()
            run(connection)
            took.append(time.monotonic() - began)

    longest = 0.0
    with server.connect() as bystander:
        bystander.execute("SELECT 1")
        thread = threading.Thread(target=timed)
        thread.start()
        while thread.is_alive():
            starvation, began = Starvation(pid), time.monotonic()
            bystander.execute("SELECT 1")
            waited = time.monotonic() - began
            if waited > longest:
                longest = max(longest, waited - starvation.seconds())
        thread.join()
    (seconds,) = took
    return seconds, longest


def test_reading_a_long_text(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE told_at_length (i int, t text)")
        rows = ", ".join(f"({i}, 'row {i}')" for i in range(10_000))
        took, longest = longest_wait_beside(
            server,
            lambda other: other.execute(f"INSERT INTO told_at_length VALUES {rows}".encode()),
        )
        assert longest < took / 3
        counted = connection.execute("SELECT count(*), sum(i) FROM told_at_length").fetchone()
        assert counted == (10_000, 49_995_000)


def test_a_long_text_is_given_up_when_its_time_is_over(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE told_too_long (i int)")
        connection.execute("SET statement_timeout = '100ms'")
        rows = ", ".join(f"({i} + 0)" for i in range(50_000))
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(f"INSERT INTO told_too_long VALUES {rows}".encode())
        connection.execute("RESET statement_timeout")
        assert connection.execute("SELECT count(*) FROM told_too_long").fetchone() == (0,)


def test_a_value_of_many_megabytes(server: Server) -> None:
    with server.connect() as connection:
        for length in (10, 50_000_000):
            sql = f"SELECT length(repeat('a', {length})), length(lpad('', {length}, 'b'))"
            assert connection.execute(sql.encode()).fetchone() == (length, length)
    took, longest = longest_wait_beside(
        server, lambda other: other.execute("SELECT length(repeat('a', 100000000))")
    )
    assert longest < max(took / 2, 0.5)


def test_error_that_quotes_a_value_of_many_megabytes(server: Server) -> None:
    with server.connect() as connection:
        with pytest.raises(psycopg.errors.InvalidTextRepresentation) as raised:
            connection.execute("SELECT repeat('x', 30000000)::int")
        assert len(str(raised.value)) > 30_000_000
        assert connection.execute("SELECT 1").fetchone() == (1,)


ENDLESS = "SELECT length(regexp_replace(repeat('a', 10000000), 'a.*b|a', 'c', 'g'))"


def test_constant_that_takes_too_long_is_ended_by_its_timeout(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("SET statement_timeout = '500ms'")
        began = time.monotonic()
        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            connection.execute(ENDLESS.encode())
        assert time.monotonic() - began < 5
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_constant_that_takes_too_long_is_cancelled_while_others_are_answered(
    server: Server,
) -> None:
    with server.connect() as connection, server.connect() as bystander:
        timer = threading.Timer(1, connection.cancel)
        timer.start()
        ended = threading.Thread(target=_canceled, args=(connection,))
        ended.start()
        while ended.is_alive():
            assert bystander.execute("SELECT 1").fetchone() == (1,)
            with urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/health") as health:
                assert health.status == 200
        timer.join()


def _canceled(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    with pytest.raises(psycopg.errors.QueryCanceled, match="user request"):
        connection.execute(ENDLESS.encode())


@pytest.mark.parametrize(
    ("sql", "answer"),
    [
        ("SELECT repeat('a',40)||'!' ~ '^(a+)+$'", False),
        ("SELECT regexp_replace(repeat('a',40)||'!', '^(a+)+$', 'b') = 'b'", False),
        ("SELECT regexp_match(repeat('a',40)||'!', '^(a+)+$') IS NULL", True),
        ("SELECT repeat('a',3000)||'b' LIKE repeat('%a',60)||'c'", False),
        ("SELECT repeat('a',3000)||'b' ILIKE repeat('%A',60)||'c'", False),
        ("SELECT repeat('a',40)||'!' SIMILAR TO '((a+)+)+'", False),
        ("SELECT substring(repeat('a',40)||'!' from '^(a+)+$') IS NULL", True),
    ],
)
def test_pattern_with_many_ways_to_match_is_answered_at_once(
    server: Server, sql: str, answer: bool
) -> None:
    with server.connect() as connection:
        connection.execute("SET statement_timeout = '5s'")
        assert connection.execute(sql.encode()).fetchone() == (answer,)
        text, pattern = "a" * 40 + "!", "^(a+)+$"
        query = "SELECT %s::text ~ %s, regexp_replace(%s, %s, 'b') = 'b'"
        given = (text, pattern, text, pattern)
        assert connection.execute(query, given).fetchone() == (False, False)


def test_long_argument_holds_up_nobody(server: Server) -> None:
    with server.connect() as connection:
        document = "[" + "1," * 1_000_000 + "1]"
        query = "SELECT jsonb_array_length(%s::jsonb)"
        assert connection.execute(query, (document,)).fetchone() == (1_000_001,)


def _document(count: int) -> str:
    return "[" + ",".join(f'{{"a": {i}, "b": "x"}}' for i in range(count)) + "]"


@pytest.mark.parametrize(
    ("sql", "argument"),
    [
        ("SELECT jsonb_typeof(%s::jsonb)", _document(400_000)),
        ("SELECT jsonb_typeof(%s::jsonb)", "[" + ",".join(['"abc"'] * 2_000_000) + "]"),
        ("SELECT cardinality(%s::int[])", "{" + ",".join(map(str, range(1_000_000))) + "}"),
        ("SELECT length(%s::text)", "x" * 100_000_000),
        ("SELECT %s::text", "é" * 20_000_000),
        ("SELECT %s::date", "1 " * 15_000_000),
    ],
    ids=["jsonb of objects", "jsonb of strings", "int[]", "text", "text and back", "no date"],
)
def test_long_argument_is_no_wait_for_others(server: Server, sql: str, argument: str) -> None:
    def run(connection: psycopg.Connection[tuple[object, ...]]) -> None:
        with suppress(psycopg.errors.InvalidDatetimeFormat):
            connection.execute(sql, (argument,))

    assert longest_wait_beside(server, run)[1] < 4 * LONGEST_WAIT_S  # docs/known-issues.md


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE IF EXISTS " + ", ".join(f"none_{i}" for i in range(20_000)),
        "SELECT length('" + "x" * 25_000_000 + "')",
        "/*" + "x" * 5_000_000 + "*/ SELECT 1",
        "SELECT 1;" * 2_000,
        ";" * 2_000_000,
    ],
    ids=["DROP of many", "long literal", "long comment", "many statements", "many tokens"],
)
def test_long_statement_is_no_wait_for_others(server: Server, sql: str) -> None:
    def run(connection: psycopg.Connection[tuple[object, ...]]) -> None:
        connection.execute(sql.encode())

    assert longest_wait_beside(server, run)[1] < LONGEST_WAIT_S
