"""SIGKILL at random moments under concurrent writers: every acknowledged write survives in full."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psycopg
import pytest

from tests.harness import Server, until

WRITERS = 4

VIEWS = {
    "totals": "SELECT writer, count(*) AS entries, sum(amount) AS amount FROM entries GROUP BY writer",
    "matched": "SELECT e.writer, e.seq, m.amount FROM entries e JOIN mirror m"
    " ON m.writer = e.writer AND m.seq = e.seq",
    "unmatched": "SELECT e.writer, e.seq FROM entries e LEFT JOIN mirror m"
    " ON m.writer = e.writer AND m.seq = e.seq WHERE m.seq IS NULL",
    "greatest": "SELECT writer, seq, amount FROM entries ORDER BY amount DESC, writer, seq LIMIT 5",
    "counters": "SELECT sum(n) AS n FROM counter",
}


@dataclass
class Writer:
    """A client that commits as fast as it can and records what was acknowledged."""

    number: int
    acknowledged: set[int] = field(default_factory=set)
    in_doubt: set[int] = field(default_factory=set)
    seq: int = 0
    bumps: int = 0  # acknowledged
    bumps_in_doubt: int = 0

    def run(self, url: str) -> None:
        """Write until the server has ended."""
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                while True:
                    self._write(connection)
        except psycopg.OperationalError:
            return

    def _write(self, connection: psycopg.Connection[Any]) -> None:
        self.seq += 1
        seq, amount = self.seq, self.seq * 7 % 101
        self.in_doubt.add(seq)
        with connection.transaction():  # both tables, or neither
            for table in ("entries", "mirror"):
                connection.execute(
                    f"INSERT INTO {table} VALUES (%s, %s, %s)".encode(), (self.number, seq, amount)
                )
        self.in_doubt.discard(seq)
        self.acknowledged.add(seq)
        if seq % 3 == 0:
            self.bumps_in_doubt += 1
            connection.execute("UPDATE counter SET n = n + 1 WHERE writer = %s", (self.number,))
            self.bumps_in_doubt -= 1
            self.bumps += 1


@dataclass
class Definer:
    """A client that creates and drops objects beside the writers."""

    present: set[str] = field(default_factory=set)
    in_doubt: set[str] = field(default_factory=set)
    failure: str | None = None
    number: int = 0
    numbers: list[int] = field(default_factory=list)  # of a sequence, in the order they came in

    def run(self, url: str) -> None:
        """Create and drop objects until the server has ended."""
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                while True:
                    self._define(connection)
                    time.sleep(0.05)  # the writers are to get on as well
        except psycopg.OperationalError:
            return
        except psycopg.Error as error:
            self.failure = f"a definition failed: {error}"

    def _define(self, connection: psycopg.Connection[Any]) -> None:
        self.number += 1
        kind = ("VIEW", "MATERIALIZED VIEW")[self.number % 2]
        name = f"{kind.split()[0].lower()}_{self.number}"
        self.in_doubt.add(name)
        query = "SELECT count(*) AS n FROM entries"
        connection.execute(f"CREATE {kind} {name} AS {query}".encode())
        self.in_doubt.discard(name)
        self.present.add(name)
        if kind == "VIEW":
            connection.execute(f"CREATE INDEX {name}_n ON {name} (n)".encode())
        row = connection.execute("INSERT INTO numbered DEFAULT VALUES RETURNING id").fetchone()
        assert row is not None
        self.numbers.append(row[0])
        more = "SELECT nextval('numbered_id_seq') FROM generate_series(1, 100)"
        self.numbers += [number for (number,) in connection.execute(more)]
        connection.execute("ALTER SEQUENCE restarted RESTART")
        connection.execute(
            "ALTER TABLE numbered DROP COLUMN IF EXISTS extra, ADD extra int DEFAULT 1"
        )
        if len(self.present) > 4:
            gone = min(self.present, key=lambda each: int(each.rpartition("_")[2]))
            self.present.discard(gone)
            self.in_doubt.add(gone)
            kind = "VIEW" if gone.startswith("view") else "MATERIALIZED VIEW"
            connection.execute(f"DROP {kind} {gone}".encode())
            self.in_doubt.discard(gone)

    def check(self, connection: psycopg.Connection[Any]) -> None:
        """Assert that exactly the acknowledged objects are there, and that they work."""
        found = connection.execute(
            "SELECT name FROM mz_catalog.mz_objects WHERE type IN ('view', 'materialized-view')"
            " AND name ~ '^(view|materialized)_[0-9]+$' AND id LIKE 'u%'"
        )
        names = {name for (name,) in found.fetchall()}
        assert self.present <= names <= self.present | self.in_doubt
        count = connection.execute("SELECT count(*) FROM entries").fetchall()
        for name in names:
            assert connection.execute(f"SELECT n FROM {name}".encode()).fetchall() == count, name
        self.present, self.in_doubt = names, set()
        assert self.numbers == sorted(set(self.numbers)), "a number was given out twice"


def prepare(server: Server) -> None:
    with server.connect() as connection:
        for table in ("entries", "mirror"):
            connection.execute(f"CREATE TABLE {table} (writer int, seq int, amount int)".encode())
        connection.execute("CREATE TABLE numbered (id bigserial)")
        connection.execute("CREATE SEQUENCE restarted")
        connection.execute("CREATE TABLE counter (writer int, n int)")
        for number in range(WRITERS):
            connection.execute("INSERT INTO counter VALUES (%s, 0)", (number,))
        for name, query in VIEWS.items():
            connection.execute(f"CREATE VIEW {name} AS {query}".encode())
            connection.execute(f"CREATE DEFAULT INDEX ON {name}".encode())
            connection.execute(f"CREATE MATERIALIZED VIEW {name}_mv AS {query}".encode())
        connection.execute(  # has an error at every second bump of a counter
            "CREATE MATERIALIZED VIEW failing AS SELECT 1 / (sum(n) % 2) AS n FROM counter"
        )


def check(server: Server, writers: list[Writer], definer: Definer, before: int) -> int:
    """Assert the invariants after a restart; return the time of the reads."""
    with server.connect() as connection:
        connection.execute("BEGIN READ ONLY")
        found: dict[str, set[tuple[int, int]]] = {}
        for table in ("entries", "mirror"):
            rows = connection.execute(f"SELECT writer, seq FROM {table}".encode()).fetchall()
            assert len(rows) == len(set(rows)), f"{table} has rows twice"
            found[table] = set(rows)
        assert found["entries"] == found["mirror"], "a transaction is half there"
        for name, query in VIEWS.items():
            recomputed = sorted(connection.execute(query.encode()).fetchall())
            for view in (name, f"{name}_mv"):
                kept = sorted(connection.execute(f"SELECT * FROM {view}".encode()).fetchall())
                assert kept == recomputed, view
        definer.check(connection)
        counters = dict(connection.execute("SELECT writer, n FROM counter").fetchall())
        row = connection.execute("SELECT mz_now()::text").fetchone()
        assert row is not None
        now = int(row[0])
        connection.execute("COMMIT")
    assert now > before, "time went back"
    for writer in writers:
        there = {seq for number, seq in found["entries"] if number == writer.number}
        assert writer.acknowledged <= there, "an acknowledged commit is lost"
        assert there <= writer.acknowledged | writer.in_doubt, "a commit nobody made"
        writer.acknowledged, writer.in_doubt = there, set()
        n = counters[writer.number]
        assert writer.bumps <= n <= writer.bumps + writer.bumps_in_doubt, "an update lost or twice"
        writer.bumps, writer.bumps_in_doubt = n, 0
    return now


@dataclass
class Reader:
    """A client that reads under writes; two reads as of one time never differ."""

    now: int = 0  # the latest time it saw
    failure: str | None = None

    def run(self, url: str) -> None:
        """Read until the server has ended."""
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                while self.failure is None:
                    self._read(connection)
        except psycopg.OperationalError:
            return

    def _read(self, connection: psycopg.Connection[Any]) -> None:
        with connection.transaction():
            connection.execute("SET TRANSACTION READ ONLY")
            seen = {
                tuple(connection.execute(query).fetchall())
                for query in (
                    "SELECT n FROM counters",
                    "SELECT n FROM counters_mv",
                    "SELECT sum(n) FROM counter",
                )
            }
            row = connection.execute("SELECT mz_now()::text").fetchone()
        assert row is not None
        if len(seen) > 1:
            self.failure = f"at one time: {seen}"
        if int(row[0]) < self.now:
            self.failure = f"time went from {self.now} back to {row[0]}"
        self.now = int(row[0])


def killed_while_starting(server: Server) -> None:
    """Start the server, and kill it before or just after it is ready."""
    server.spawn()
    time.sleep(random.uniform(0, 2))
    server.kill()


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kills", [5, pytest.param(200, marks=pytest.mark.slow)])
def test_kills_lose_no_acknowledged_write(data_dir: Path, kills: int) -> None:
    random.seed(20130101)
    server = Server(data_dir).start()
    ready: list[float] = []
    readable: list[float] = []
    try:
        prepare(server)
        writers = [Writer(number) for number in range(WRITERS)]
        reader, definer = Reader(), Definer()
        now = 0
        for kill in range(kills):
            runs = [*(writer.run for writer in writers), reader.run, definer.run]
            threads = [threading.Thread(target=run, args=(server.url,)) for run in runs]
            total = sum(len(writer.acknowledged) for writer in writers)
            for thread in threads:
                thread.start()
            goal = total + random.randrange(1, 60)
            until(
                lambda goal=goal: sum(len(w.acknowledged) for w in writers) >= goal,  # type: ignore[misc]
                "the writers get on",
            )
            server.kill()
            for thread in threads:
                thread.join()
            assert (reader.failure, definer.failure) == (None, None)
            until(lambda: not server.processes(), "the replicas of the killed server end", 10)
            if kill % 4 == 3:
                killed_while_starting(server)
            began = time.monotonic()
            server.start()
            ready.append(time.monotonic() - began)
            with server.connect() as connection:  # an answer, and not just any: `check` compares
                connection.execute("SELECT * FROM totals").fetchall()
            readable.append(time.monotonic() - began)
            now = check(server, writers, definer, max(now, reader.now))
        assert sum(len(writer.acknowledged) for writer in writers) > kills * WRITERS
    finally:
        server.stop()
    assert not server.processes()
    print(
        f"seconds from start, median (most): ready {median(ready):.1f} ({max(ready):.1f}),"
        f" a view read {median(readable):.1f} ({max(readable):.1f});"
        f" commits acknowledged: {sum(len(writer.acknowledged) for writer in writers)}"
    )
