"""A server with batches in S3 and consensus in PostgreSQL: kills, take-over, lost connections."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import psycopg
import pytest

from tests.harness import ObjectStore, Server, file_sizes, until

ROWS = 300_000  # of 150 bytes: more than a segment of the log
FILL = (
    f"INSERT INTO kept SELECT i, 'x' || repeat(md5(i::text), 4) FROM generate_series(1, {ROWS}) i"
)

_names = count(1)


@pytest.fixture
def services(objects: ObjectStore, postgres_url: str) -> tuple[str, ...]:
    """Return the options of a new database in the services that tests share."""
    name = f"server{next(_names)}"
    return "--blob", objects.url(name), "--consensus", f"{postgres_url}?schema={name}"


@contextmanager
def started(data_dir: Path, services: tuple[str, ...]) -> Iterator[Server]:
    server = Server(data_dir, services)
    try:
        yield server.start()
    finally:
        server.stop()


def fill(server: Server) -> None:
    """Make a table and a view of it, most of whose rows are in batches on return."""
    with server.connect() as connection:
        connection.execute("CREATE TABLE kept (i int, t text)")
        connection.execute(
            "CREATE MATERIALIZED VIEW sums AS SELECT count(*) AS n, sum(i) AS s FROM kept"
        )
        connection.execute(FILL.encode())
        connection.execute("INSERT INTO kept VALUES (-1, 'tail')")
        stored = connection.execute("SELECT count(*) FROM kept WHERE t LIKE 'x%'").fetchall()
        assert stored == [(ROWS,)]
    log = server.data_dir / "log"
    until(
        lambda: sum(file_sizes(log).values()) < 1 << 20,
        "the log has become batches",
    )
    assert not (server.data_dir / "blob").exists()
    assert not (server.data_dir / "consensus.sqlite").exists()


def check(server: Server, more: int = 0) -> None:
    with server.connect() as connection:
        summed = ROWS * (ROWS + 1) // 2 - 1
        expected = [(ROWS + 1 + more, summed)]
        assert connection.execute("SELECT count(*), sum(i) FROM kept").fetchall() == expected
        assert connection.execute("SELECT n, s FROM sums").fetchall() == expected
        with connection.transaction():  # what this process reads for itself
            connection.execute("INSERT INTO kept VALUES (0, 'own')")
            own = connection.execute("SELECT count(*) FROM kept").fetchall()
            assert own == [(ROWS + 2 + more,)]
            raise psycopg.Rollback


@pytest.mark.timeout(600)
def test_start_after_kill_has_everything(data_dir: Path, services: tuple[str, ...]) -> None:
    with started(data_dir, services) as server:
        fill(server)
        check(server)
        server.kill()
        until(lambda: not server.processes(), "its replicas end", 10)
        server.start()
        check(server)
        with server.connect() as connection:
            connection.execute("CREATE VIEW ends AS SELECT min(i) AS a, max(i) AS b FROM kept")
            connection.execute("CREATE DEFAULT INDEX ON ends")
            assert connection.execute("SELECT a, b FROM ends").fetchall() == [(-1, ROWS)]


@pytest.mark.timeout(600)
def test_take_over_fences_the_first_server(data_dir: Path, services: tuple[str, ...]) -> None:
    with started(data_dir, services) as first:
        fill(first)
        with started(data_dir, (*services, "--take-over")) as second:
            assert first.process is not None
            assert first.process.wait(30) != 0
            assert "another environment has taken over" in first.log.read_text()
            check(second)


@pytest.mark.timeout(600)
def test_writes_wait_while_consensus_connections_are_lost(
    data_dir: Path, services: tuple[str, ...], postgres_url: str
) -> None:
    with started(data_dir, services) as server, server.connect() as connection:
        connection.execute("CREATE TABLE kept (i int)")
        with psycopg.connect(postgres_url, autocommit=True) as operator:
            for i in range(300):
                connection.execute("INSERT INTO kept VALUES (%s)", (i,))
                if i % 20 == 0:
                    operator.execute(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                        " WHERE application_name = 'foreshore'"
                    )
        assert connection.execute("SELECT count(*) FROM kept").fetchall() == [(300,)]


def test_unreachable_or_unknown_service_is_named(data_dir: Path) -> None:
    for option, url, said in (
        ("--consensus", "postgresql://u:secret@127.0.0.1:1/d", "could not connect to consensus"),
        ("--blob", "gs://bucket", 'unrecognized blob store "gs"'),
    ):
        server = Server(data_dir, (option, url))
        before = server.spawn()
        assert server.process is not None
        assert server.process.wait(60) == 1
        log = server.log.read_bytes()[before:].decode()
        assert said in log
        assert "secret" not in log
