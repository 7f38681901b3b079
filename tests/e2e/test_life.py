"""The main job, as a person does it: tables, views that change by themselves, a kill, a restart."""

import queue
import re
import socket
import subprocess
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner

from foreshore.server.main import main
from tests.harness import Server, program, serving, until


def test_a_view_changes_by_itself_and_survives_a_kill(data_dir: Path) -> None:
    server = Server(data_dir).start()
    try:
        with server.connect() as connection:
            connection.execute("CREATE TABLE orders (id int, item text, price numeric(10,2))")
            connection.execute(
                "CREATE VIEW sales AS SELECT item, sum(price) AS total FROM orders GROUP BY item"
            )
            connection.execute("CREATE INDEX sales_by_item ON sales (item)")
            connection.execute(
                "CREATE MATERIALIZED VIEW dear AS SELECT id FROM orders WHERE price > 5"
            )
            connection.execute("INSERT INTO orders VALUES (1, 'tea', 3.50), (2, 'pot', 12)")
            query = "SELECT item, total::text FROM sales ORDER BY item"
            assert connection.execute(query).fetchall() == [("pot", "12.00"), ("tea", "3.50")]
            connection.execute("UPDATE orders SET price = price + 2 WHERE item = 'tea'")
            assert connection.execute(query).fetchall() == [("pot", "12.00"), ("tea", "5.50")]
            dear = "SELECT id FROM dear ORDER BY id"
            assert connection.execute(dear).fetchall() == [(1,), (2,)]
        server.kill()
        server.start()
        with server.connect() as connection:
            assert connection.execute(query).fetchall() == [("pot", "12.00"), ("tea", "5.50")]
            connection.execute("DELETE FROM orders WHERE item = 'pot'")
            assert connection.execute(query).fetchall() == [("tea", "5.50")]
            assert connection.execute(dear).fetchall() == [(1,)]
    finally:
        assert server.stop() == 0


@pytest.mark.full
def test_take_over_on_the_addresses_of_the_live_server(data_dir: Path) -> None:
    first = Server(data_dir).start()
    second = Server(data_dir, ("--take-over",), port=first.port, http_port=first.http_port)
    try:
        with first.connect() as connection:
            connection.execute("CREATE TABLE kept (i int)")
            connection.execute("INSERT INTO kept VALUES (1)")
        second.start()
        assert first.process is not None
        assert first.process.wait(30) != 0
        with second.connect() as connection:
            assert connection.execute("SELECT i FROM kept").fetchall() == [(1,)]
        health = f"http://127.0.0.1:{second.http_port}/health"
        with urllib.request.urlopen(health, timeout=10) as answer:
            assert answer.status == 200
    finally:
        first.stop()
        assert second.stop() == 0


@pytest.mark.full
def test_take_over_fails_if_another_program_keeps_an_address(data_dir: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        second = Server(data_dir, ("--take-over",), port=taken.getsockname()[1])
        second.spawn()
        assert second.process is not None
        assert second.process.wait(60) == 1
        assert "could not bind address" in second.log.read_text()


def test_a_directory_may_be_named_by_any_path(tmp_path: Path) -> None:
    (tmp_path / "beside").mkdir()
    with serving(tmp_path / "beside" / ".." / "data") as server, server.connect() as connection:
        connection.execute("CREATE TABLE t (i int)")
        connection.execute("INSERT INTO t SELECT generate_series(1, 1000)")
        assert connection.execute("SELECT sum(i) FROM t").fetchall() == [(500_500,)]
    shown = CliRunner().invoke(main, ["inspect", str(server.data_dir), "--verify"])
    assert shown.exit_code == 0, shown.output


def test_a_statement_that_fails_leaves_others_alone(server: Server) -> None:
    with server.connect() as one, server.connect() as other:
        one.execute("CREATE TABLE alone (i int)")
        one.execute("BEGIN")
        one.execute("INSERT INTO alone VALUES (1)")
        with pytest.raises(psycopg.errors.DivisionByZero):
            one.execute("SELECT 1 / 0")
        with pytest.raises(psycopg.errors.InFailedSqlTransaction):
            one.execute("SELECT 1")
        other.execute("INSERT INTO alone VALUES (2)")
        one.execute("ROLLBACK")
        assert one.execute("SELECT i FROM alone").fetchall() == [(2,)]


def test_a_copy_cut_short_leaves_nothing(server: Server) -> None:
    with server.connect() as watcher:
        watcher.execute("CREATE TABLE cut (i int)")
        connection = server.connect()
        connection.pgconn.exec_(b"COPY cut FROM STDIN")
        connection.pgconn.put_copy_data(b"".join(b"%d\n" % i for i in range(10_000)))
        copying = "SELECT count(*) FROM pg_stat_activity WHERE query = 'COPY cut FROM STDIN'"
        until(lambda: watcher.execute(copying).fetchall() == [(1,)], "the COPY is under way")
        connection.pgconn.finish()  # in the middle: no CopyDone was sent
        until(lambda: watcher.execute(copying).fetchall() == [(0,)], "the session is gone")
        assert watcher.execute("SELECT count(*) FROM cut").fetchall() == [(0,)]
        watcher.execute("INSERT INTO cut VALUES (1)")
        assert watcher.execute("SELECT i FROM cut").fetchall() == [(1,)]


def test_a_bad_line_in_a_copy_leaves_nothing(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE badly (i int, t text)")
        with (
            pytest.raises(psycopg.errors.InvalidTextRepresentation) as caught,
            connection.cursor().copy("COPY badly FROM STDIN") as copy,
        ):
            copy.write("1\tone\nzwei\ttwo\n")
        assert caught.value.diag.context == 'COPY badly, line 2, column i: "zwei"'
        assert connection.execute("SELECT count(*) FROM badly").fetchall() == [(0,)]


def test_a_cancelled_statement_ends_and_the_session_goes_on(server: Server) -> None:
    with server.connect() as connection:
        timer = threading.Timer(0.5, connection.cancel)
        timer.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(
                "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b"
            )
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_an_error_in_a_view_goes_when_its_row_goes(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE divisors (i int)")
        connection.execute(
            "CREATE MATERIALIZED VIEW quotients AS SELECT 100 / i AS q FROM divisors"
        )
        connection.execute("INSERT INTO divisors VALUES (5), (0)")
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("SELECT * FROM quotients")
        connection.execute("DELETE FROM divisors WHERE i = 0")
        assert connection.execute("SELECT * FROM quotients").fetchall() == [(20,)]


def test_subscribe_tells_each_change_once(server: Server) -> None:
    with server.connect() as connection, server.connect() as writer:
        writer.execute("CREATE TABLE watched (i int)")
        writer.execute("INSERT INTO watched VALUES (1)")
        writer.execute("CREATE VIEW doubled AS SELECT i * 2 AS d FROM watched")
        connection.execute("BEGIN")
        connection.execute("DECLARE c CURSOR FOR SUBSCRIBE doubled")
        changes: list[tuple[int, int]] = []

        def fetched(count: int) -> bool:
            rows = connection.execute("FETCH ALL c WITH (TIMEOUT = '100ms')").fetchall()
            changes.extend((int(diff), d) for _, diff, d in rows)
            return len(changes) >= count

        until(lambda: fetched(1), "the snapshot comes")
        writer.execute("UPDATE watched SET i = 3")
        until(lambda: fetched(3), "the change comes")
        assert (changes[0], sorted(changes[1:])) == ((1, 2), [(-1, 2), (1, 6)])


def test_cursors_outlive_their_transaction_where_they_can(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE held (i int)")
        connection.execute("INSERT INTO held VALUES (1), (2)")
        connection.execute("BEGIN")
        connection.execute("DECLARE h CURSOR WITH HOLD FOR SELECT i FROM held ORDER BY i")
        connection.execute("DECLARE p CURSOR FOR SELECT i FROM held ORDER BY i")
        connection.execute("COMMIT")
        connection.execute("INSERT INTO held VALUES (0)")
        assert connection.execute("FETCH ALL h").fetchall() == [(1,), (2,)]
        with pytest.raises(psycopg.errors.InvalidCursorName):
            connection.execute("FETCH ALL p")
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="WITH HOLD over SUBSCRIBE"):
            connection.execute("DECLARE s CURSOR WITH HOLD FOR SUBSCRIBE held")


def test_a_transaction_writes_to_two_tables_or_to_none(server: Server) -> None:
    with server.connect() as connection, server.connect() as other:
        connection.execute("CREATE TABLE debit (n int)")
        connection.execute("CREATE TABLE credit (n int)")
        both = "SELECT (SELECT sum(n) FROM debit), (SELECT sum(n) FROM credit)"
        for end, expected in (("ROLLBACK", (None, None)), ("COMMIT", (-5, 5))):
            connection.execute("BEGIN")
            connection.execute("INSERT INTO debit VALUES (-5)")
            connection.execute("INSERT INTO credit VALUES (5)")
            assert other.execute(both).fetchone() == (None, None)
            connection.execute(end.encode())
            assert other.execute(both).fetchone() == expected


def test_a_statement_that_takes_too_long_is_ended(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("SET statement_timeout = '300ms'")
        for slow in (
            "SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b",
            "SELECT pg_sleep(20)",
        ):
            with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
                connection.execute(slow.encode())
        connection.execute("RESET statement_timeout")
        assert connection.execute("SELECT 1").fetchall() == [(1,)]


def test_copy_out_as_csv_with_a_header(server: Server) -> None:
    query = "VALUES (1, 'a,b'), (2, NULL), (3, 'x\"y')"
    with (
        server.connect() as connection,
        connection.cursor().copy(
            f"COPY (SELECT * FROM ({query}) AS v(n, t) ORDER BY n) TO STDOUT CSV HEADER".encode()
        ) as copy,
    ):
        assert b"".join(copy) == b'n,t\n1,"a,b"\n2,\n3,"x""y"\n'


def test_all_reads_of_a_transaction_are_at_one_time(server: Server) -> None:
    with server.connect() as reader, server.connect() as writer:
        writer.execute("CREATE TABLE steady (i int)")
        writer.execute("INSERT INTO steady VALUES (1)")
        reader.execute("BEGIN READ ONLY")
        assert reader.execute("SELECT count(*) FROM steady").fetchall() == [(1,)]
        writer.execute("INSERT INTO steady VALUES (2)")
        assert reader.execute("SELECT count(*) FROM steady").fetchall() == [(1,)]
        reader.execute("COMMIT")
        assert reader.execute("SELECT count(*) FROM steady").fetchall() == [(2,)]


def test_the_past_can_be_read_as_it_was(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE past (i int)")
        connection.execute("INSERT INTO past VALUES (1)")
        row = connection.execute("SELECT mz_now()::text FROM past").fetchone()
        assert row is not None
        connection.execute("UPDATE past SET i = 2")
        then = connection.execute(f"SELECT i FROM past AS OF {int(row[0])}".encode()).fetchall()
        assert then == [(1,)]
        with pytest.raises(psycopg.errors.InvalidParameterValue) as caught:
            connection.execute("SELECT i FROM past AS OF 1")
        assert caught.value.diag.message_primary == "cannot read as of 1"
        readable = re.fullmatch(
            r"The inputs can be read from (\d+) on\.", caught.value.diag.message_detail or ""
        )
        assert readable is not None
        assert int(readable[1]) <= int(row[0])


def test_a_query_at_a_time_to_come_is_answered_then_or_cancelled(server: Server) -> None:
    with server.connect() as connection, server.connect() as other:
        connection.execute("CREATE TABLE ahead (i int)")
        answers: queue.SimpleQueue[object] = queue.SimpleQueue()

        def ask(as_of: str) -> None:
            try:
                answers.put(other.execute(f"SELECT i FROM ahead AS OF {as_of}".encode()).fetchall())
            except psycopg.Error as error:
                answers.put(error)

        threading.Thread(target=ask, args=["now() + interval '5 seconds'"]).start()
        connection.execute("INSERT INTO ahead VALUES (1)")
        assert answers.get(timeout=30) == [(1,)]
        threading.Thread(target=ask, args=["'9999-12-31'"]).start()
        pid = other.info.backend_pid

        def waits() -> bool:
            query = "SELECT query FROM mz_internal.mz_sessions WHERE connection_id = %s"
            row = connection.execute(query, [pid]).fetchone()
            return row is not None and "9999" in row[0]

        until(waits, "the query is under way")
        with pytest.raises(queue.Empty):
            answers.get(timeout=0.3)
        other.cancel()
        assert isinstance(answers.get(timeout=30), psycopg.errors.QueryCanceled)


def psql(server: Server, command: str) -> str:
    """Return what psql prints for one command, which must be neither an error nor a warning."""
    done = subprocess.run(
        [program("psql"), server.url, "-X", "-A", "-c", command], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def listed(server: Server) -> Server:
    """The shared server, with one object of each kind."""
    with server.connect() as connection:
        connection.execute("CREATE TABLE listed (i int NOT NULL, t text DEFAULT 'x')")
        connection.execute("CREATE VIEW listed_view AS SELECT i, t FROM listed WHERE i > 0")
        connection.execute(
            "CREATE MATERIALIZED VIEW listed_kept AS SELECT count(*) AS n FROM listed"
        )
        connection.execute("CREATE INDEX listed_index ON listed_view (i)")
    return server


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (r"\d", "public|listed|table|foreshore"),
        (r"\dt", "public|listed|table|foreshore"),
        (r"\dt+", "public|listed|table|foreshore"),
        (r"\dv", "public|listed_view|view|foreshore"),
        (r"\dm", "public|listed_kept|materialized view|foreshore"),
        (r"\di", "public|listed_index|index|foreshore|listed_view"),
        (r"\d listed", "t|text|||'x'"),
        (r"\d+ listed", "i|integer||not null||plain"),
        (r"\d listed_view", "i|integer|||"),
        (r"\d+ listed_view", "View definition:"),
        (r"\d listed_kept", "n|bigint|||"),
        (r"\d listed_index", "i|integer|yes|i"),
        (r"\l", "foreshore|foreshore|UTF8"),
        (r"\dn", "public|"),
        (r"\du", "foreshore|"),
        (r"\df nothing", "(0 rows)"),
        (r"\dT nothing", "(0 rows)"),
        (r"\conninfo", "foreshore"),
        (r"\sv listed_view", "CREATE OR REPLACE VIEW public.listed_view AS"),
        ("SHOW ALL", "statement_timeout|0|"),
    ],
)
def test_psql_lists_what_there_is(listed: Server, command: str, expected: str) -> None:
    assert expected in psql(listed, command)


def test_sizes_are_those_of_what_is_stored(server: Server) -> None:
    with server.connect() as connection:

        def asked(expression: str) -> Any:
            row = connection.execute(f"SELECT {expression}").fetchone()
            assert row is not None
            return row[0]

        connection.execute("CREATE TABLE sized (i int, t text)")
        connection.execute("CREATE VIEW sized_view AS SELECT i FROM sized")
        connection.execute("CREATE INDEX sized_index ON sized (i)")
        before = asked("pg_database_size(current_database())")
        assert asked("pg_table_size('sized')") == 0
        connection.execute(
            "INSERT INTO sized SELECT i, 'row ' || i FROM generate_series(1, 9999) i"
        )
        size = asked("pg_table_size('sized')")
        assert 9_999 <= size <= 9_999 * 100
        assert asked("pg_total_relation_size('sized')") == size
        assert asked("pg_relation_size('sized', 'main')") == size
        assert asked("pg_database_size(current_database())") >= before + size / 2
        assert asked("pg_relation_size('sized', 'fsm')") == 0
        assert asked("pg_indexes_size('sized')") == 0
        assert asked("pg_relation_size('sized_view')") == 0
        assert asked("pg_relation_size(99999)") is None
        assert asked("pg_database_size(99999)") is None
        assert asked("pg_size_pretty(pg_table_size('sized'))").endswith(" kB")
        with pytest.raises(psycopg.errors.InvalidCatalogName, match='database "x" does not exist'):
            asked("pg_database_size('x')")
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="invalid fork name"):
            asked("pg_relation_size('sized', 'x')")
    listed = psql(server, r"\dt+ sized")
    assert re.search(r"^public\|sized\|table\|foreshore\|permanent\|heap\|\d+ kB\|$", listed, re.M)
    assert re.search(r"^foreshore\|.*\|\d+ [kM]B\|", psql(server, r"\l+"), re.M)


@pytest.mark.full
def test_comments_are_shown_and_survive_a_kill(data_dir: Path) -> None:
    with serving(data_dir) as server:
        with server.connect() as connection:
            connection.execute("CREATE TABLE described (i int, t text)")
            connection.execute(
                "CREATE MATERIALIZED VIEW kept AS SELECT count(*) AS n FROM described"
            )
            for what in (
                "DATABASE foreshore",
                "SCHEMA public",
                "TABLE described",
                "COLUMN described.t",
                "MATERIALIZED VIEW kept",
                "CLUSTER quickstart",
                "ROLE foreshore",
            ):
                connection.execute(f"COMMENT ON {what} IS 'of the {what.lower()}'")
            connection.execute("ALTER TABLE described RENAME TO renamed")
        server.kill()
        server.start()
        assert "|of the table described\n" in psql(server, r"\dt+ renamed")
        assert "|of the column described.t\n" in psql(server, r"\d+ renamed")
        assert "|of the materialized view kept\n" in psql(server, r"\dm+ kept")
        assert "|of the schema public\n" in psql(server, r"\dn+ public")
        assert "|of the database foreshore\n" in psql(server, r"\l+ foreshore")
        assert "|of the role foreshore\n" in psql(server, r"\du+ foreshore")
        with server.connect() as connection:
            rows = connection.execute("SELECT comment FROM mz_internal.mz_comments WHERE id = 'c1'")
            assert rows.fetchall() == [("of the cluster quickstart",)]
            with pytest.raises(psycopg.errors.InsufficientPrivilege, match="system schema"):
                connection.execute("COMMENT ON SCHEMA pg_catalog IS 'x'")
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="COMMENT ON RULE is not"):
                connection.execute("COMMENT ON RULE r ON t IS 'x'")


def test_psql_describes_a_table(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE described (i int NOT NULL, n numeric(8,2), t varchar(9))")
        connection.execute("CREATE INDEX described_i ON described (i)")
    shown = psql(server, r"\d described")
    assert "i|integer||not null|" in shown
    assert "n|numeric(8,2)|||" in shown
    assert "t|character varying(9)|||" in shown
    assert "described_i" in shown


def test_pgbench_in_prepared_mode(server: Server, tmp_path: Path) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS benched (k int, v text)")
        connection.execute("INSERT INTO benched SELECT i, 'v' || i FROM generate_series(1, 100) i")
        connection.execute("CREATE INDEX benched_k ON benched (k)")
    script = tmp_path / "point.sql"
    script.write_text("\\set k random(1, 100)\nSELECT v FROM benched WHERE k = :k;\n")
    done = subprocess.run(
        [
            *(program("pgbench"), "-n", "-M", "prepared", "-c", "4", "-t", "50"),
            *("-f", str(script), server.url),
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "number of transactions actually processed: 200/200" in done.stdout


def test_pgbench_as_it_comes(server: Server) -> None:
    def pgbench(*args: str) -> subprocess.CompletedProcess[str]:
        command = [program("pgbench"), *args, server.url]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done

    assert "creating primary keys" in pgbench("-i", "-s", "2").stderr
    for script in ("select-only", "simple-update", "tpcb-like"):
        table = "accounts" if script == "simple-update" else "tellers"
        with server.connect() as connection:
            sums = f"SELECT sum({table[0]}balance) FROM pgbench_{table}"
            ((before,),) = connection.execute(sums).fetchall()
        told = pgbench("-b", script, "-c", "4", "-t", "20")  # sweeps, and empties the history
        assert "number of transactions actually processed: 80/80" in told.stdout
        assert "error" not in told.stderr, told.stderr
        with server.connect() as connection:
            ((after,),) = connection.execute(sums).fetchall()
            history = "SELECT coalesce(sum(delta), 0) FROM pgbench_history"
            ((change,),) = connection.execute(history).fetchall()
        assert after - before == change


def test_stopping_and_starting_keeps_all(data_dir: Path) -> None:
    with serving(data_dir) as server, server.connect() as connection:
        connection.execute("CREATE TABLE kept (i int)")
        connection.execute("INSERT INTO kept SELECT generate_series(1, 1000)")
    with serving(data_dir) as server, server.connect() as connection:
        assert connection.execute("SELECT count(*), sum(i) FROM kept").fetchall() == [
            (1000, 500500)
        ]


def test_an_idle_session_is_ended_and_a_block_or_a_long_statement_is_none(server: Server) -> None:
    with server.connect() as idle, server.connect() as block, server.connect() as busy:
        for connection in (idle, block, busy):
            connection.execute("SET idle_session_timeout = '1s'")
        block.execute("BEGIN")
        text = "SELECT count(*) FROM generate_series(1, 3) AS g(i)"
        ends = time.monotonic() + 3
        while time.monotonic() < ends:
            assert busy.execute(text).fetchone() == (3,)
            time.sleep(0.1)
        assert block.execute(text).fetchone() == (3,)
        with pytest.raises(psycopg.OperationalError) as ended:
            idle.execute(text)
        assert ended.value.sqlstate == "57P05"
        assert "terminating connection due to idle-session timeout" in str(ended.value)
        assert idle.closed


@pytest.mark.parametrize("cursor_class", [psycopg.ClientCursor, psycopg.Cursor])
def test_who_leaves_a_block_alone_is_ended_and_gives_up_what_it_has(
    server: Server, cursor_class: type[psycopg.Cursor]
) -> None:
    """With simple queries, which ClientCursor sends, and with prepared statements."""
    with server.connect() as other:
        other.execute("CREATE TABLE IF NOT EXISTS left_alone (k int PRIMARY KEY)")
        other.execute("INSERT INTO left_alone VALUES (1) ON CONFLICT DO NOTHING")
        with server.connect() as changed, server.connect() as failed, server.connect() as busy:
            for connection in (changed, failed, busy):
                connection.cursor_factory = cursor_class
                connection.execute("SET idle_in_transaction_session_timeout = '1s'")
            for connection in (changed, failed, busy):
                connection.execute("BEGIN")
            changed.execute("DELETE FROM left_alone WHERE k = %s", (1,))
            with pytest.raises(psycopg.errors.DivisionByZero):
                failed.execute("SELECT 1 / %s", (0,))
            ends = time.monotonic() + 3
            while time.monotonic() < ends:
                assert busy.execute("SELECT %s::int", (3,)).fetchone() == (3,)
                time.sleep(0.1)
            for connection in (changed, failed):
                with pytest.raises(psycopg.errors.IdleInTransactionSessionTimeout) as ended:
                    connection.execute("SELECT %s::int", (1,))
                assert ended.value.diag.severity == "FATAL"
                wanted = "terminating connection due to idle-in-transaction timeout"
                assert ended.value.diag.message_primary == wanted
                assert connection.closed
            busy.execute("COMMIT")
        deleted = other.execute("DELETE FROM left_alone WHERE k = 1")
        assert deleted.rowcount == 1, "the lock is free, and the other's DELETE came to nothing"
