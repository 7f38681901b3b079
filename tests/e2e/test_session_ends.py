"""How sessions end with the server, and by transaction_timeout; keys of cancel requests."""

import contextlib
import signal
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.harness import Server, serving, until
from tests.wire.raw import Raw, fields


def in_thread(server: Server, query: str) -> tuple[Callable[[], Any], list[Any]]:
    """Run a query in a session of its own; return how to wait for it, and its result."""
    found: list[Any] = []

    def run() -> None:
        try:
            with server.connect() as session:
                found.append(session.execute(query.encode()).fetchall())
        except psycopg.Error as error:
            found.append(error.sqlstate)

    thread = threading.Thread(target=run)
    thread.start()
    with server.connect() as other:
        seen = "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND query = %s"
        until(lambda: other.execute(seen, [query]).fetchone() == (1,), "the query runs")
    return thread.join, found


@pytest.mark.full
def test_server_lets_statements_end_until_it_is_asked_twice(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--shutdown-timeout", "60") as server:
        process = server.process
        assert process is not None
        idle = server.connect()
        join_short, short = in_thread(server, "SELECT pg_sleep(3), 'done'")
        join_long, long = in_thread(server, "SELECT pg_sleep(300)")
        process.send_signal(signal.SIGTERM)
        join_short()
        assert short == [[("", "done")]]
        with pytest.raises(errors.AdminShutdown):
            idle.execute("SELECT 1")
        with pytest.raises(psycopg.OperationalError):
            server.connect()
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        join_long()
        assert long == ["57P01"]
        assert process.wait(60) == 0


def test_transaction_timeout_ends_the_session(server: Server) -> None:
    with contextlib.suppress(psycopg.OperationalError), server.connect() as session:
        session.execute("SET transaction_timeout = '50ms'")
        session.execute("BEGIN")
        with pytest.raises(psycopg.Error) as caught:
            session.execute("SELECT pg_sleep(60)")
        assert caught.value.sqlstate == "25P04"


def test_long_key_cancels_and_no_other_does(server: Server) -> None:
    raw = Raw(server.port, start=False)
    raw.startup(3 << 16 | 2, user="foreshore", database="foreshore")
    greeting = raw.until("Z")
    assert "v" not in [code for code, _ in greeting]
    (key,) = [body for code, body in greeting if code == "K"]
    assert len(key) == 4 + 32
    raw.send("Q", b"SELECT pg_sleep(60)\0")
    with server.connect() as other:
        seen = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(60)'"
        until(lambda: other.execute(seen).fetchone() == (1,), "the query runs")
        for wrong in (key[:8], key[:-1] + bytes([key[-1] ^ 1]), key):
            canceller = Raw(server.port, start=False)
            canceller.opening(struct.pack("!i", 80877102) + wrong)
            assert canceller.closed()
            assert other.execute(seen).fetchone() == (1,) or wrong == key
    assert fields(raw.until("Z")[-2][1])["C"] == "57014"


def test_reported_variables_are_reported(server: Server) -> None:
    raw = Raw(server.port)
    greeting = dict(body[:-1].decode().split("\0") for code, body in raw.greeting if code == "S")
    assert (greeting["search_path"], greeting["database"]) == ("public", "foreshore")
    raw.send("Q", b"SET search_path = a, b; SET cluster = quickstart\0")
    reported = [body for code, body in raw.until("Z") if code == "S"]
    assert reported == [b"search_path\0a, b\0"]
