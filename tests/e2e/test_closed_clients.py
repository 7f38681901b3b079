"""What a client has sent before it closes its connection runs, as in PostgreSQL.

Nothing is read before the end. PostgreSQL does the same for one message; of several it leaves those
that follow an answer that it could not send.
"""

import struct
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest

from tests.harness import Server, until
from tests.hostile.kinds.messages import SYNC, bound, framed, parsed
from tests.wire.raw import Raw

Connection = psycopg.Connection[Any]

TRIES = 20
TERMINATE = framed("X")
EXECUTE = framed("E", b"\0" + struct.pack("!i", 0))
SLEEP = "CASE WHEN pg_sleep({}) IS NULL THEN 1 ELSE 2 END"


def query(sql: str) -> bytes:
    """Return a Query message."""
    return framed("Q", sql.encode() + b"\0")


def extended(sql: str) -> bytes:
    """Return the messages that run one statement."""
    return parsed("", sql) + bound("", "") + EXECUTE


SENT: dict[str, Callable[[str], bytes]] = {
    "a block in one Query": lambda insert: query(f"BEGIN; {insert}; SELECT 1; COMMIT"),
    "a Query": query,
    "statements in one Query": lambda insert: query(f"SELECT 1; {insert}; SELECT 2"),
    "a block in several": lambda insert: query("BEGIN") + query(insert) + query("COMMIT"),
    "extended": lambda insert: extended(insert) + SYNC,
    "a block in the extended protocol": lambda insert: (
        extended("BEGIN") + extended(insert) + extended("COMMIT") + SYNC
    ),
    "after much else": lambda insert: query("SELECT 1") * 200 + query(insert),
    "COPY": lambda insert: (
        query(f"COPY {insert.split()[2]} FROM STDIN") + framed("d", b"7\n") + framed("c")
    ),
}


@pytest.fixture
def other(server: Server) -> Iterator[Connection]:
    with server.connect() as connection:
        yield connection


def rows(other: Connection, table: str) -> int:
    """Return how many rows a table has."""
    (count,) = other.execute(f"SELECT count(*) FROM {table}".encode()).fetchone() or (0,)
    return int(count)


def is_active(other: Connection, pid: int) -> bool:
    """Whether a session runs a statement."""
    seen = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND pid = %s"
    return other.execute(seen, [pid]).fetchone() == (1,)


def closed_while_it_runs(server: Server, other: Connection, sql: str, before: str = "") -> int:
    """Send a statement, and close the connection once it runs; return the session's number."""
    raw = Raw(server.port)
    (key,) = [body for code, body in raw.greeting if code == "K"]
    (pid,) = struct.unpack("!i", key[:4])
    if before:
        raw.send("Q", before.encode() + b"\0")
        raw.until("Z")
    raw.socket.sendall(query(sql))
    until(lambda: is_active(other, pid), "the statement runs")
    raw.socket.close()
    return int(pid)


@pytest.mark.full
@pytest.mark.parametrize("says_so", [True, False], ids=["Terminate", "no Terminate"])
@pytest.mark.parametrize("sent", SENT)
def test_what_has_arrived_runs(server: Server, other: Connection, sent: str, says_so: bool) -> None:
    other.execute("DROP TABLE IF EXISTS arrived")
    other.execute("CREATE TABLE arrived (i int)")
    for _ in range(TRIES):
        raw = Raw(server.port)
        raw.socket.sendall(SENT[sent]("INSERT INTO arrived VALUES (1)") + TERMINATE * says_so)
        raw.socket.close()
    until(lambda: rows(other, "arrived") == TRIES, f"{TRIES} inserts are committed")


@pytest.mark.full
def test_statement_that_runs_goes_on(server: Server, other: Connection) -> None:
    other.execute("CREATE TABLE slow_rows (i int)")
    sql = f"INSERT INTO slow_rows SELECT {SLEEP.format(1)}"
    pid = closed_while_it_runs(server, other, sql)
    until(lambda: not is_active(other, pid), "the statement ends")
    assert rows(other, "slow_rows") == 1


@pytest.mark.full
def test_block_that_is_not_committed_is_rolled_back(server: Server, other: Connection) -> None:
    other.execute("CREATE TABLE open_rows (i int)")
    sql = f"INSERT INTO open_rows SELECT {SLEEP.format(1)}"
    pid = closed_while_it_runs(server, other, sql, before="BEGIN")
    until(lambda: not is_active(other, pid), "the statement ends")
    other.execute("DROP TABLE open_rows")  # waits for no lock


@pytest.mark.full
def test_subscription_ends(server: Server, other: Connection) -> None:
    other.execute("CREATE TABLE followed (i int)")
    for sql in ("SUBSCRIBE followed", "COPY (SUBSCRIBE followed) TO STDOUT"):
        pid = closed_while_it_runs(server, other, sql)
        until(lambda pid=pid: not is_active(other, pid), f"{sql} ends")  # type: ignore[misc]


@pytest.mark.full
def test_check_interval_ends_what_runs(server: Server, other: Connection) -> None:
    other.execute("CREATE TABLE checked_rows (i int)")
    sql = f"INSERT INTO checked_rows SELECT {SLEEP.format(3600)}"
    pid = closed_while_it_runs(
        server, other, sql, before="SET client_connection_check_interval = '50ms'"
    )
    until(lambda: not is_active(other, pid), "the statement ends")
    assert rows(other, "checked_rows") == 0


FLOODS = {
    "Sync": SYNC,
    "BEGIN": query("begin"),
    "empty statements": query(";;;"),
    "LISTEN": query("listen a"),
    "ROLLBACK TO": query("rollback to a"),
    "SELECT": query("SELECT 1"),
    "errors": query("selec"),
    "Parse": parsed("", "SELECT 1"),
    "extended": extended("SELECT 1") + SYNC,
}
READ = 100_000  # bytes of answers, after which the server has read all that was sent


@pytest.mark.full
@pytest.mark.parametrize("flood", FLOODS)
def test_session_ends_when_its_answers_cannot_be_sent(
    server: Server, other: Connection, flood: str
) -> None:
    """In the midst of what has arrived, so that its last statement does not run."""
    other.execute("DROP TABLE IF EXISTS flooded")
    other.execute("CREATE TABLE flooded (i int)")
    raw = Raw(server.port)
    (pid,) = struct.unpack("!i", dict(raw.greeting)["K"][:4])
    raw.socket.sendall(query("begin; savepoint a") + FLOODS[flood] * 60_000)
    raw.socket.sendall(SYNC + query("rollback") + query("INSERT INTO flooded VALUES (1)"))
    raw.exactly(READ)
    raw.socket.close()
    connected = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s"
    until(lambda: other.execute(connected, [pid]).fetchone() == (0,), "the session ends")
    assert rows(other, "flooded") == 0
