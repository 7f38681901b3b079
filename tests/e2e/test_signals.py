"""pg_cancel_backend and pg_terminate_backend, tried on Foreshore and on PostgreSQL alike."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tests.harness import Server, until

Connection = psycopg.Connection[Any]

NO_SUCH_PID = 2_000_000_000
ENDED = "terminating connection due to administrator command"


@pytest.fixture
def killer(url: str) -> Iterator[Connection]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def victim(url: str) -> Iterator[Connection]:
    connection = psycopg.connect(url, autocommit=True, application_name="victim")
    try:
        yield connection
    finally:
        connection.close()


@pytest.fixture
def table(killer: Connection) -> Iterator[str]:
    """An empty table."""
    killer.execute("CREATE TABLE signalled (i int)")
    yield "signalled"
    killer.execute("DROP TABLE signalled")


def one(connection: Connection, query: str, *args: object) -> Any:
    """Return the one value that a query gives."""
    ((value,),) = connection.execute(query.encode(), args or None).fetchall()
    return value


def busy(victim: Connection, killer: Connection, query: str) -> "Future[Any]":
    """Let the victim run a query on a thread of its own, and wait until it is under way."""
    pool = ThreadPoolExecutor(1)
    running = pool.submit(victim.execute, query.encode())
    pool.shutdown(wait=False)
    seen = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND state = 'active'"
    until(lambda: one(killer, seen, pid_of(victim)) == 1, "the query is under way")
    return running


def pid_of(connection: Connection) -> int:
    return connection.info.backend_pid


def is_there(killer: Connection, pid: int) -> bool:
    return bool(one(killer, "SELECT count(*) FROM pg_stat_activity WHERE pid = %s", pid))


def test_activity_shows_the_pids_of_sessions(killer: Connection, victim: Connection) -> None:
    assert one(victim, "SELECT pg_backend_pid()") == pid_of(victim)
    query = (
        b"SELECT state, query, xact_start IS NOT NULL, query_start <= now(),"
        b" state_change >= query_start, backend_start <= query_start"
        b" FROM pg_stat_activity WHERE pid = %s"
    )
    victim.execute("BEGIN")
    assert killer.execute(query, (pid_of(victim),)).fetchall() == [
        ("idle in transaction", "BEGIN", True, True, True, True)
    ]
    victim.execute("COMMIT")
    assert killer.execute(query, (pid_of(victim),)).fetchall() == [
        ("idle", "COMMIT", False, True, True, True)
    ]


def test_a_statement_is_cancelled_and_its_session_goes_on(
    killer: Connection, victim: Connection, table: str
) -> None:
    running = busy(victim, killer, "SELECT pg_sleep(60)")
    assert one(killer, "SELECT pg_cancel_backend(%s)", pid_of(victim)) is True
    with pytest.raises(errors.QueryCanceled, match="^canceling statement due to user request$"):
        running.result(30)
    assert one(victim, "SELECT 1") == 1
    # of a block: it has failed
    victim.execute("BEGIN")
    victim.execute(f"INSERT INTO {table} VALUES (1)")
    running = busy(victim, killer, "SELECT pg_sleep(60)")
    assert one(killer, "SELECT pg_cancel_backend(%s)", pid_of(victim)) is True
    with pytest.raises(errors.QueryCanceled):
        running.result(30)
    with pytest.raises(errors.InFailedSqlTransaction):
        victim.execute("SELECT 1")
    victim.execute("ROLLBACK")
    assert one(killer, f"SELECT count(*) FROM {table}") == 0


def test_to_cancel_what_is_idle_does_nothing(killer: Connection, victim: Connection) -> None:
    assert one(killer, "SELECT pg_cancel_backend(%s)", pid_of(victim)) is True
    assert one(victim, "SELECT 1") == 1


def test_a_session_ends_in_the_midst_of_a_statement(killer: Connection, victim: Connection) -> None:
    running = busy(victim, killer, "SELECT pg_sleep(60)")
    assert one(killer, "SELECT pg_terminate_backend(%s)", pid_of(victim)) is True
    with pytest.raises(errors.AdminShutdown, match=f"^{ENDED}"):
        running.result(30)
    assert victim.closed
    until(lambda: not is_there(killer, pid_of(victim)), "the session is gone")


def test_what_a_session_had_not_committed_is_rolled_back(
    killer: Connection, victim: Connection, table: str
) -> None:
    victim.execute(f"INSERT INTO {table} VALUES (1)")
    victim.execute("BEGIN")
    victim.execute(f"INSERT INTO {table} VALUES (2)")
    victim.execute(f"DELETE FROM {table} WHERE i = 1")
    assert one(killer, "SELECT pg_terminate_backend(%s, 30000)", pid_of(victim)) is True
    assert not is_there(killer, pid_of(victim))  # it has been waited for
    with pytest.raises(errors.AdminShutdown, match=f"^{ENDED}"):
        victim.execute("COMMIT")
    assert killer.execute(f"SELECT i FROM {table}".encode()).fetchall() == [(1,)]
    killer.execute("SET lock_timeout = '5s'")
    killer.execute(f"UPDATE {table} SET i = 3")  # nobody holds a lock any more


def test_a_copy_that_is_cut_off_leaves_nothing(
    killer: Connection, victim: Connection, table: str
) -> None:
    def copied() -> None:
        with victim.cursor().copy(f"COPY {table} FROM STDIN".encode()) as copy:
            copy.write(b"1\n2\n")
            assert one(killer, "SELECT pg_terminate_backend(%s, 30000)", pid_of(victim)) is True
            copy.write(b"3\n")

    with pytest.raises(psycopg.OperationalError):
        copied()
    assert one(killer, f"SELECT count(*) FROM {table}") == 0


def test_there_is_a_warning_where_there_is_no_such_session(killer: Connection) -> None:
    told: list[tuple[str | None, ...]] = []
    killer.add_notice_handler(
        lambda each: told.append((each.severity, each.sqlstate, each.message_primary))
    )
    warning = ("WARNING", "01000", f"PID {NO_SUCH_PID} is not a PostgreSQL backend process")
    for function in ("pg_cancel_backend(%s)", "pg_terminate_backend(%s)"):
        assert one(killer, f"SELECT {function}", NO_SUCH_PID) is False
    assert one(killer, "SELECT pg_terminate_backend(%s, 100)", NO_SUCH_PID) is False
    assert told == [warning] * 3
    assert one(killer, "SELECT pg_cancel_backend(NULL)") is None
    assert one(killer, "SELECT pg_terminate_backend(NULL, 5)") is None
    assert one(killer, "SELECT pg_terminate_backend(5, NULL)") is None
    with pytest.raises(errors.NumericValueOutOfRange, match='^"timeout" must not be negative$'):
        killer.execute("SELECT pg_terminate_backend(%s, -1)", (NO_SUCH_PID,))
    with pytest.raises(errors.UndefinedFunction):
        killer.execute("SELECT pg_cancel_backend('1'::text)")
    assert len(told) == 3


def test_a_session_may_signal_itself(victim: Connection, killer: Connection) -> None:
    with pytest.raises(errors.QueryCanceled, match="canceling statement due to user request"):
        victim.execute("SELECT pg_cancel_backend(pg_backend_pid())")
    assert one(victim, "SELECT 1") == 1
    with pytest.raises(errors.AdminShutdown, match=f"^{ENDED}"):
        victim.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    until(lambda: not is_there(killer, pid_of(victim)), "the session is gone")


def test_sessions_are_picked_by_a_query(url: str, killer: Connection) -> None:
    picked = [psycopg.connect(url, autocommit=True, application_name="picked") for _ in range(3)]
    query = (
        b"SELECT pid, pg_terminate_backend(pid, 30000) AS done FROM pg_stat_activity"
        b" WHERE application_name = 'picked' AND pid <> pg_backend_pid() ORDER BY pid DESC"
    )
    pids = sorted(map(pid_of, picked), reverse=True)
    assert killer.execute(query).fetchall() == [(pid, True) for pid in pids]
    assert killer.execute(query).fetchall() == []
    for connection in picked:
        with pytest.raises(errors.AdminShutdown):
            connection.execute("SELECT 1")
        connection.close()


def test_a_session_ends_whose_client_does_not_take_its_rows(
    killer: Connection, victim: Connection
) -> None:
    enough = threading.Event()

    def read() -> None:
        with victim.cursor().copy("COPY (SELECT generate_series(1, 5000000)) TO STDOUT") as rows:
            next(iter(rows))
            enough.wait(60)
            for _ in rows:
                pass

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        try:
            active = "SELECT count(*) FROM pg_stat_activity WHERE pid = %s AND state = 'active'"
            until(lambda: one(killer, active, pid_of(victim)) == 1, "rows are being sent")
            assert one(killer, "SELECT pg_terminate_backend(%s, 30000)", pid_of(victim)) is True
        finally:
            enough.set()
        with pytest.raises(psycopg.OperationalError):
            reading.result(30)


def test_signals_are_refused_in_what_is_kept(server: Server) -> None:
    with server.connect() as connection:
        for sql in (
            "CREATE VIEW v AS SELECT pg_cancel_backend(1)",
            "CREATE MATERIALIZED VIEW v AS SELECT pg_sleep(1)",
            "CREATE MATERIALIZED VIEW v AS SELECT set_config('my.own', 'x', false)",
            "CREATE MATERIALIZED VIEW v AS SELECT pg_terminate_backend(1)",
            "CREATE TABLE signalling (i int CHECK (pg_cancel_backend(i)))",
            "SUBSCRIBE (SELECT pg_cancel_backend(1))",
        ):
            with pytest.raises(errors.FeatureNotSupported):
                connection.execute(sql.encode())
        with pytest.raises(errors.FeatureNotSupported, match="cannot be called for each row"):
            connection.execute("SELECT 1 FROM pg_stat_activity WHERE pg_cancel_backend(pid)")
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


@pytest.mark.parametrize(
    ("query", "times"),
    [
        ("SELECT pg_sleep(0.1), pg_sleep(0.1)", 2),
        ("SELECT pg_sleep(0.1), pg_sleep(0.1) FROM generate_series(1, 2)", 4),
        ("SELECT s, pg_sleep(0.1) FROM slow", 2),
        ("SELECT one.s, other.s FROM slow AS one, slow AS other", 2),
    ],
)
def test_calls_that_are_written_the_same_are_each_made(
    killer: Connection, query: str, times: int
) -> None:
    killer.execute(
        "DROP VIEW IF EXISTS slow; CREATE VIEW slow AS SELECT pg_sleep(0.1) IS NULL AS s"
    )
    began = time.monotonic()
    killer.execute(query)
    assert time.monotonic() - began >= 0.1 * times
