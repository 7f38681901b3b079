"""A restart with many keys, while replicas answer nothing: the server stays up and keys are right."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psycopg
import pytest
from psycopg.errors import UniqueViolation

from tests.harness import Server, serving, until
from tests.stopped_process import stop_process

AT_ONCE = 1_000_000  # rows of a COPY, which is one transaction


def _load(connection: psycopg.Connection[object], first: int, last: int) -> None:
    with connection.cursor().copy("COPY t FROM STDIN") as copy:
        for start in range(first, last, 20_000):
            rows = range(start, min(start + 20_000, last))
            copy.write("".join(f"{k}\t{k % 1000}\tnote {k % 100}\n" for k in rows))


def _time_passes(server: Server, seconds: int) -> None:
    """Wait until the server's own time has passed on."""
    with server.connect() as connection:
        query = "SELECT mz_now()::text::bigint"
        before = connection.execute(query).fetchone()
        assert before is not None

        def passed() -> bool:
            now = connection.execute(query).fetchone()
            return now is not None and now[0] > before[0] + 1000 * seconds

        until(passed, "time passes", 60)


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(100_000, marks=pytest.mark.full),
        pytest.param(20_000_000, marks=pytest.mark.slow),  # 10 minutes, 6 GB
    ],
)
@pytest.mark.timeout(3600)
def test_keys_are_built_after_a_kill_while_replicas_are_stopped(tmp_path: Path, rows: int) -> None:
    with serving(
        tmp_path / "data", "--checkpoint-interval", "3", "--checkpoint-size", "1"
    ) as server:
        with server.connect() as connection:
            connection.execute("CREATE TABLE t (id bigint PRIMARY KEY, n int, note text)")
            connection.execute("CREATE TABLE rests (id int PRIMARY KEY)")
            connection.execute("INSERT INTO rests VALUES (1), (2)")
            for start in range(0, rows, AT_ONCE):
                _load(connection, start, min(start + AT_ONCE, rows))
            if rows <= AT_ONCE:  # a view of more takes memory that this is not about
                connection.execute(
                    "CREATE MATERIALIZED VIEW v AS SELECT id, sum(n) FROM t GROUP BY id"
                )
                connection.execute("SELECT * FROM v WHERE id = 1")
            connection.execute("UPDATE t SET n = 5 WHERE id = 7")
            connection.execute("INSERT INTO t VALUES (%s, 1, 'x')", (rows,))
        server.kill()
        server.start()
        until(lambda: bool(server.children()), "a replica starts")
        stopped = server.children()
        for pid in stopped:
            stop_process(pid)
        _time_passes(server, 5)
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        with server.connect() as connection:
            found = connection.execute("SELECT n FROM t WHERE id IN (7, %s)", (rows,)).fetchall()
            assert sorted(found) == [(1,), (5,)]
            for table, key in (("t", 7), ("t", rows), ("t", rows - 1), ("rests", 2)):
                with pytest.raises(UniqueViolation):
                    connection.execute(f"INSERT INTO {table} (id) VALUES ({key})".encode())
            connection.execute("UPDATE t SET id = id + 2 WHERE id = %s", (rows,))
            connection.execute("INSERT INTO t VALUES (%s, 2, 'y')", (rows,))
            found = connection.execute("SELECT n FROM t WHERE id >= %s", (rows,)).fetchall()
            assert sorted(found) == [(1,), (2,)]
            assert connection.execute("SELECT count(*) FROM t").fetchone() == (rows + 2,)
        assert server.process is not None
        assert server.process.poll() is None
