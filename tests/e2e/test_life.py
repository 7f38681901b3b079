"""The main job, as a person does it: tables, views that change by themselves, a kill, a restart."""

import subprocess
import threading
from pathlib import Path

import psycopg
import pytest

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
        with connection.cursor().copy("COPY cut FROM STDIN") as copy:
            for i in range(10_000):
                copy.write_row((i,))
            connection.close()  # in the middle: no CopyDone was sent
        assert watcher.execute("SELECT count(*) FROM cut").fetchall() == [(0,)]


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
        with pytest.raises(psycopg.errors.Error, match="not readable|not valid|AS OF"):
            connection.execute("SELECT i FROM past AS OF 1")


@pytest.mark.parametrize("command", [r"\d", r"\dt", r"\dv", r"\dm", r"\di", r"\l", r"\dn", r"\du"])
def test_psql_lists_what_there_is(server: Server, command: str) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS listed (i int NOT NULL, t text)")
    done = subprocess.run(
        [program("psql"), server.url, "-X", "-c", command], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    expected = {r"\l": "foreshore", r"\dn": "public", r"\du": "foreshore", r"\d": "listed"}
    assert expected.get(command, "listed" if command == r"\dt" else "") in done.stdout


def test_psql_describes_a_table(server: Server) -> None:
    with server.connect() as connection:
        connection.execute("CREATE TABLE described (i int NOT NULL, n numeric(8,2), t varchar(9))")
        connection.execute("CREATE INDEX described_i ON described (i)")
    done = subprocess.run(
        [program("psql"), server.url, "-X", "-A", "-c", r"\d described"],
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert "i|integer||not null|" in done.stdout
    assert "n|numeric(8,2)|||" in done.stdout
    assert "t|character varying(9)|||" in done.stdout
    assert "described_i" in done.stdout


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


def test_stopping_and_starting_keeps_all(data_dir: Path) -> None:
    with serving(data_dir) as server, server.connect() as connection:
        connection.execute("CREATE TABLE kept (i int)")
        connection.execute("INSERT INTO kept SELECT generate_series(1, 1000)")
    with serving(data_dir) as server, server.connect() as connection:
        assert connection.execute("SELECT count(*), sum(i) FROM kept").fetchall() == [
            (1000, 500500)
        ]
