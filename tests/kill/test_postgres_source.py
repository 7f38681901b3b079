"""pgbench upstream while whole servers are killed on either side, and the slot is dropped once.

Every read sees all of a transaction or nothing of it, and at the end all rows are equal.
"""

import contextlib
import hashlib
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.adapter.sources.publisher import options_of
from tests.harness import (
    Server,
    free_port,
    initialised_postgres,
    program,
    running_postgres,
    until,
)

TABLES = {
    "pgbench_accounts": "aid",
    "pgbench_branches": "bid",
    "pgbench_tellers": "tid",
    "pgbench_history": "tid, bid, aid, delta, mtime",
}
SOURCE = "CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR ALL TABLES"
SUMS = """
SELECT (SELECT coalesce(sum(abalance), 0) FROM pgbench_accounts),
    (SELECT coalesce(sum(tbalance), 0) FROM pgbench_tellers),
    (SELECT coalesce(sum(bbalance), 0) FROM pgbench_branches),
    (SELECT coalesce(sum(delta), 0) FROM pgbench_history)
"""


@dataclass
class Upstream:
    """A PostgreSQL server that can be crashed, with pgbench's tables."""

    folder: Path
    port: int = field(default_factory=free_port)
    _running: ExitStack = field(default_factory=ExitStack)

    @property
    def url(self) -> str:
        return f"postgres://postgres@127.0.0.1:{self.port}/postgres"

    def start(self) -> None:
        self._running.enter_context(
            running_postgres(self.folder, signal.SIGQUIT, ("wal_level=logical",), self.port)
        )

    def crash(self) -> None:
        """End it at once, without a checkpoint."""
        self._running.close()

    def pgbench(self, *options: str) -> "subprocess.Popen[bytes]":
        reach = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres")
        return subprocess.Popen(
            [program("pgbench"), *reach, *options, "postgres"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def prepare(self, scale: int) -> None:
        """Fill the tables and publish them."""
        assert self.pgbench("-i", "-q", "-s", str(scale)).wait() == 0
        with psycopg.connect(self.url, autocommit=True) as connection:
            for name in TABLES:
                connection.execute(f"ALTER TABLE {name} REPLICA IDENTITY FULL".encode())
            connection.execute("CREATE PUBLICATION p FOR ALL TABLES")


@dataclass
class Load:
    """pgbench, again and again, until it is to stop."""

    upstream: Upstream
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        while not self.stopping.is_set():
            bench = self.upstream.pgbench("-n", "-c", "4", "-T", "3600")
            while bench.poll() is None and not self.stopping.wait(0.1):
                pass
            bench.terminate()
            bench.wait()


@dataclass
class Reader:
    """Reads the sums until it is to stop; a server that is away is no fault."""

    server: Server
    stopping: threading.Event = field(default_factory=threading.Event)
    seen: set[Any] = field(default_factory=set)
    wrong: list[Any] = field(default_factory=list)

    def run(self) -> None:
        while not self.stopping.wait(0.05):
            with contextlib.suppress(psycopg.Error), self.server.connect() as connection:
                while not self.stopping.is_set():
                    (row,) = connection.execute(SUMS).fetchall()
                    self.seen.add(row)
                    if len(set(row)) > 1:
                        self.wrong.append(row)


@pytest.mark.parametrize(
    ("scale", "kills"),
    [
        pytest.param(1, 3, marks=pytest.mark.full),
        pytest.param(10, 10, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]),
    ],
)
def test_all_is_equal_after_kills_of_both_servers(tmp_path: Path, scale: int, kills: int) -> None:
    with initialised_postgres() as folder:
        upstream, server = Upstream(folder), Server(tmp_path / "data")
        upstream.start()
        upstream.prepare(scale)
        server.start()
        with server.connect() as connection:
            connection.execute(f"CREATE CONNECTION pg TO POSTGRES ({options_of(upstream.url)})")
            connection.execute(SOURCE)
        load, reader = Load(upstream), Reader(server)
        threads = [threading.Thread(target=each.run) for each in (load, reader)]
        for thread in threads:
            thread.start()
        try:
            for turn in range(kills):
                moved(server, reader)
                server.kill()
                if turn == kills // 2:
                    drop_slot(upstream)
                server.start()
                moved(server, reader)
                upstream.crash()
                upstream.start()
        finally:
            load.stopping.set()
            threads[0].join()
        caught_up(server, upstream)
        # Since the last start of our server the slot was not dropped, so nothing was read again.
        assert "rows_read_again" not in str(states(server))
        reader.stopping.set()
        threads[1].join()
        assert not reader.wrong
        assert len(reader.seen) > kills
        with server.connect() as ours, psycopg.connect(upstream.url) as theirs:
            for table, order in TABLES.items():
                assert digest(ours, table, order) == digest(theirs, table, order), table
        assert server.stop() == 0
        upstream.crash()


def moved(server: Server, reader: Reader) -> None:
    """Wait until reads have seen two more states."""
    before = len(reader.seen)
    until(lambda: len(reader.seen) > before + 1, f"changes arrive: {states(server)}", 180)


def states(server: Server) -> object:
    """Return what the source says of itself."""
    with contextlib.suppress(psycopg.Error), server.connect() as connection:
        return connection.execute("TABLE mz_internal.mz_source_statuses").fetchall()
    return None


def drop_slot(upstream: Upstream) -> None:
    """Drop the slot of the source, whose server has just been killed."""
    active = "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active"
    with psycopg.connect(upstream.url, autocommit=True) as connection:
        until(lambda: not connection.execute(active).fetchall(), "nobody reads the slot")
        connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")


def caught_up(server: Server, upstream: Upstream) -> None:
    """Wait until our position is where the server's log ends."""
    with psycopg.connect(upstream.url, autocommit=True) as connection:
        query = "SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn"
        (row,) = connection.execute(query.encode()).fetchall()

    def is_there() -> bool:
        with server.connect() as connection:
            query = 'SELECT "offset" FROM s_progress WHERE part = %s'
            found = connection.execute(query, ("lsn",)).fetchall()
            return bool(found) and found[0][0] >= int(row[0])

    until(is_there, "all is here", 180)


def digest(connection: psycopg.Connection[Any], table: str, order: str) -> tuple[int, str]:
    """Return the number of rows of a table, and a hash of them in their order."""
    hashed, count = hashlib.sha256(), 0
    for row in in_parts(connection, f"SELECT * FROM {table} ORDER BY {order}"):
        hashed.update(repr(row).encode())
        count += 1
    return count, hashed.hexdigest()


def in_parts(connection: psycopg.Connection[Any], query: str) -> Iterator[Any]:
    with connection.cursor() as cursor:
        cursor.execute(query.encode())
        yield from cursor
