"""Columns are added and dropped under writes, and the server is killed: the table is old or new."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest

from foreshore import failpoint
from tests.harness import Server, until

WRITERS = 3
POINTS = ("shard.filled", "catalog.committed")


@dataclass
class Client:
    """The state that the clients of one server track: acknowledged keys, the column's default."""

    acknowledged: list[int] = field(default_factory=list)
    asked: int = 0
    extra: set[int | None] = field(
        default_factory=lambda: {None}
    )  # what it may be; None: no column
    failures: list[Exception] = field(default_factory=list)

    def write(self, url: str, writer: int) -> None:
        """Insert until the server has ended."""
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                while True:
                    self.asked += 1
                    key = self.asked * WRITERS + writer
                    connection.execute("INSERT INTO t (k, v) VALUES (%s, %s)", (key, key % 7))
                    self.acknowledged.append(key)
        except psycopg.OperationalError:
            return
        except Exception as error:
            self.failures.append(error)

    def alter(self, url: str) -> None:
        """Add and drop a column until the server has ended."""
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                while True:
                    (present,) = self.extra
                    to = len(self.acknowledged) if present is None else None
                    self.extra.add(to)
                    if to is None:
                        connection.execute("ALTER TABLE t DROP COLUMN extra")
                    else:
                        connection.execute(
                            f"ALTER TABLE t ADD COLUMN extra int DEFAULT {to}".encode()
                        )
                    self.extra = {to}
                    time.sleep(0.1)  # the writers are to get on as well
        except psycopg.OperationalError:
            return
        except Exception as error:
            self.failures.append(error)

    def check(self, server: Server) -> None:
        """Assert that every acknowledged row is there once, and that all have the same columns."""
        assert not self.failures, self.failures
        with server.connect() as connection:
            (columns,) = connection.execute(
                "SELECT string_agg(attname, ',' ORDER BY attnum) FROM pg_attribute"
                " WHERE attrelid = 't'::regclass AND attnum > 0"
            ).fetchall()
            rows = connection.execute("SELECT * FROM t").fetchall()
            keys = [row[0] for row in rows]
            assert len(set(keys)) == len(keys), "a row is there twice"
            assert set(self.acknowledged) <= set(keys), "an acknowledged row is lost"
            assert all(row[1] == row[0] % 7 for row in rows)
            if columns == ("k,v,extra",):
                (default,) = {row[2] for row in rows}
                assert default in self.extra - {None}
                self.extra = {default}
            else:
                assert columns == ("k,v",)
                assert None in self.extra
                self.extra = {None}
            total = [(len(rows), sum(row[1] for row in rows))]
            assert connection.execute("SELECT count(*), sum(v) FROM t").fetchall() == total
            assert connection.execute("SELECT n, total FROM totals").fetchall() == total
            assert connection.execute("SELECT * FROM by_v WHERE v = 3").fetchall() == [
                (3, sum(row[1] == 3 for row in rows))
            ]
            with pytest.raises(psycopg.errors.UniqueViolation):
                connection.execute("INSERT INTO t (k) VALUES (%s)", (keys[0],))


@pytest.mark.timeout(300)
def test_table_after_kill_during_alter_is_old_or_new(data_dir: Path) -> None:
    client = Client()
    server = Server(data_dir).start()
    try:
        with server.connect() as connection:
            for statement in (
                "CREATE TABLE t (k bigint PRIMARY KEY, v int)",
                "INSERT INTO t VALUES (3, 3)",
                "CREATE MATERIALIZED VIEW totals AS SELECT count(*) AS n, sum(v) AS total FROM t",
                "CREATE VIEW by_v AS SELECT v, count(*) FROM t GROUP BY v",
                "CREATE INDEX by_v_v ON by_v (v)",
            ):
                connection.execute(statement.encode())
        client.acknowledged.append(3)
        client.asked = 1
        for point in POINTS:
            server.kill()
            server.environment = {failpoint.VARIABLE: f"{point}:2"}
            server.start()
            runs = [
                threading.Thread(target=client.alter, args=(server.url,)),
                *(
                    threading.Thread(target=client.write, args=(server.url, writer))
                    for writer in range(WRITERS)
                ),
            ]
            for run in runs:
                run.start()
            process = server.process
            assert process is not None
            until(lambda process=process: process.poll() is not None, f"{point} is reached")  # type: ignore[misc]
            for run in runs:
                run.join(60)
            until(lambda: not server.processes(), "the replicas of the ended server end", 10)
            server.environment = {}
            server.start()
            try:
                client.check(server)
            except AssertionError as error:
                raise AssertionError(f"after an end at {point}") from error
    finally:
        server.stop()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_view_history_survives_alter_and_kills(data_dir: Path) -> None:
    known: list[tuple[int, int]] = []  # times, and how many rows there were
    server = Server(data_dir).start()

    def add_row(connection: psycopg.Connection) -> None:
        count = len(known)
        connection.execute("INSERT INTO t (k) VALUES (%s)", (count,))
        ((time, found),) = connection.execute("SELECT mz_now()::text, n FROM rows").fetchall()
        assert found == count + 1
        known.append((int(time), found))

    try:
        with server.connect() as connection:
            connection.execute("CREATE TABLE t (k int)")
            connection.execute(
                "CREATE MATERIALIZED VIEW rows WITH (RETAIN HISTORY FOR '1h')"
                " AS SELECT count(*) AS n FROM t"
            )
            connection.execute("CREATE SUBSCRIPTION followed FOR rows")
            add_row(connection)
            connection.execute("ALTER TABLE t ADD COLUMN a int")
        server.kill()
        server.start()
        with server.connect() as connection:  # before the replica has come back
            connection.execute("ALTER TABLE t DROP COLUMN a")
            add_row(connection)
            connection.execute("ALTER TABLE t ADD COLUMN a int")
            time.sleep(0.3)
        changes = ("DROP COLUMN a", "ADD CONSTRAINT one UNIQUE (k)", "ALTER COLUMN k SET NOT NULL")
        for change in changes:
            server.kill()
            server.environment = {failpoint.VARIABLE: "catalog.committed:1"}
            server.start()
            with server.connect() as connection:
                add_row(connection)
                with pytest.raises(psycopg.OperationalError):
                    connection.execute(f"ALTER TABLE t {change}".encode())
        server.kill()  # to see it ended
        server.environment = {}
        server.start()
        with server.connect() as connection:
            for at, count in known:
                rows = connection.execute(f"SELECT n FROM rows AS OF {at}".encode()).fetchall()
                assert rows == [(count,)], at
            connection.execute("BEGIN")
            connection.execute("DECLARE c CURSOR FOR SUBSCRIBE TO SUBSCRIPTION followed")
            steps = [(diff, count - (diff < 0)) for _, count in known for diff in (-1, 1)]
            fetch = f"FETCH {len(steps) + 1} c WITH (TIMEOUT = '60s')"
            told = connection.execute(fetch.encode()).fetchall()
            assert sorted((diff, n) for _, diff, n in told) == sorted([(1, 0), *steps])
    finally:
        server.stop()
