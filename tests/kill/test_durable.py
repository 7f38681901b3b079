"""A durable subscription's consumer has each change once, though the server is killed under it.

One keeps what it has in a place of its own and confirms it; others write what they make of the
changes into the same database, and move the position in the same transaction.
"""

from __future__ import annotations

import threading
from collections import Counter
from itertools import count
from pathlib import Path

import psycopg
import pytest

from foreshore import failpoint
from tests.harness import Server, until
from tests.kill.amid import kill_amid

CHANGES = 40  # that are confirmed before each kill


class Copy:
    """The state of a consumer: rows, and the time up to which they are complete."""

    def __init__(self) -> None:
        self.rows: Counter[tuple[int, ...]] = Counter()
        self.upto = 0
        self.confirmed = 0

    def follow(self, server: Server, until: int | None = None) -> None:
        """Consume changes up to `until`: the loop of docs/subscribe.md."""
        stream = "COPY (SUBSCRIBE TO SUBSCRIPTION feed WITH (PROGRESS)) TO STDOUT"
        with server.connect() as confirming, server.connect() as connection:
            if self.upto:
                confirming.execute(f"ALTER SUBSCRIPTION feed ADVANCE TO {self.upto}".encode())
            changes: Counter[tuple[int, ...]] = Counter()
            with connection.cursor().copy(stream) as copy:
                copy.set_types(["int8", "bool", "int8", "int4", "int8"])
                for time, progressed, diff, *row in copy.rows():
                    if not progressed:
                        changes[tuple(row)] += diff
                        continue
                    for each, count in changes.items():
                        self.rows[each] += count
                        assert self.rows[each] >= 0, f"{each} goes before it comes"
                    self.confirmed += len(changes)
                    self.upto = time
                    changes.clear()
                    confirming.execute(f"ALTER SUBSCRIPTION feed ADVANCE TO {time}".encode())
                    if until is not None and time > until:
                        break
                connection.cancel_safe()
                try:
                    for _ in copy:
                        pass
                except psycopg.errors.QueryCanceled:
                    return


def test_consumer_over_kills_gets_each_change_once(data_dir: Path) -> None:
    server = Server(data_dir).start()
    copy = Copy()

    def work(client: int) -> None:
        if client == 0:
            copy.follow(server)
        with server.connect() as connection:
            while True:
                connection.execute("INSERT INTO t SELECT i % 3, i FROM generate_series(1, 5) AS i")
                connection.execute("DELETE FROM t WHERE i = 2")

    try:
        with server.connect() as connection:
            connection.execute("CREATE TABLE t (g int, i int)")
            connection.execute("INSERT INTO t VALUES (0, 100), (7, 7)")
            connection.execute(
                "CREATE MATERIALIZED VIEW sums AS SELECT g, sum(i) AS s FROM t GROUP BY g"
            )
            connection.execute("CREATE SUBSCRIPTION feed FOR sums")
        for _ in range(2):
            before = copy.confirmed
            kill_amid(server, 2, work, lambda: copy.confirmed > before + CHANGES)  # noqa: B023
            with server.connect() as connection:  # while it is away
                connection.execute("INSERT INTO t VALUES (7, 1)")
        with server.connect() as connection:
            row = connection.execute("SELECT mz_now()::text").fetchone()
            assert row is not None
            wanted = connection.execute("SELECT * FROM sums").fetchall()
        copy.follow(server, int(row[0]))
        assert +copy.rows == Counter(wanted)
        with server.connect() as connection:
            row = connection.execute(
                "SELECT position::text FROM mz_catalog.mz_subscriptions WHERE name = 'feed'"
            ).fetchone()
            assert row == (str(copy.upto),)
    finally:
        server.stop()


POINTS = ("log.written", "log.synced", "log.applied")


class Workers:
    """Clients that share one subscription: one of them records each change, once."""

    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.conflicts = 0
        self.numbers = count()

    def step(self, connection: psycopg.Connection) -> int:
        """Fetch changes, record them and advance, in one transaction; return their number."""
        with connection.transaction():
            connection.execute(
                "DECLARE c CURSOR FOR SUBSCRIBE TO SUBSCRIPTION feed WITH (PROGRESS)"
            )
            rows = connection.execute("FETCH ALL c WITH (TIMEOUT = '20ms')").fetchall()
            upto = max(int(row[0]) for row in rows if row[1])
            found = [row for row in rows if not row[1] and int(row[0]) < upto]
            for time, _, diff, i in found:
                assert diff == 1
                connection.execute("INSERT INTO done VALUES (%s, %s)", (time, i))
            connection.execute("UPDATE upto SET t = %s WHERE k = 1", (str(upto),))
            connection.execute(f"ALTER SUBSCRIPTION feed ADVANCE TO {upto}".encode())
            return len(found)

    def work(self, url: str, worker: int) -> None:
        """Consume, or write to the table, until the server has ended."""
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                while True:
                    if worker == 0:
                        number = next(self.numbers)
                        connection.execute("INSERT INTO t VALUES (%s)", (number,))
                        continue
                    try:
                        self.step(connection)
                    except psycopg.errors.SerializationFailure:
                        self.conflicts += 1
        except psycopg.OperationalError:
            return
        except Exception as error:
            self.failures.append(error)

    def check(self, server: Server) -> int:
        """Assert that the position agrees with the recorded changes."""
        assert not self.failures, self.failures
        with server.connect() as connection:
            row = connection.execute(
                "SELECT position = t, (SELECT count(*) FROM done), position"
                " FROM mz_catalog.mz_subscriptions, upto WHERE name = 'feed'"
            ).fetchone()
            assert row is not None
            assert row[0], "one of the two was committed without the other"
            taken = connection.execute(
                "SELECT count(*) FROM done d WHERE d.time >= (SELECT t FROM upto)"
            ).fetchone()
            assert taken == (0,)
            return int(row[1])


@pytest.mark.timeout(300)
def test_changes_and_position_are_committed_together(
    data_dir: Path,
) -> None:
    workers = Workers()
    server = Server(data_dir).start()
    try:
        with server.connect() as connection:
            connection.execute("CREATE TABLE t (i int)")
            connection.execute("CREATE TABLE done (time mz_timestamp, i int)")
            connection.execute("CREATE TABLE upto (k int PRIMARY KEY, t mz_timestamp)")
            connection.execute("CREATE SUBSCRIPTION feed FOR t")
            connection.execute(
                "INSERT INTO upto SELECT 1, position FROM mz_catalog.mz_subscriptions"
            )
        before = 0
        for point in POINTS:
            server.kill()
            server.environment = {failpoint.VARIABLE: f"{point}:80"}
            server.start()
            runs = [
                threading.Thread(target=workers.work, args=(server.url, worker))
                for worker in range(3)
            ]
            for run in runs:
                run.start()
            process = server.process
            assert process is not None
            until(lambda process=process: process.poll() is not None, f"{point} is reached")  # type: ignore[misc]
            for run in runs:
                run.join(60)
            server.kill()
            server.environment = {}
            server.start()
            done = workers.check(server)
            assert done > before, "nobody got on"
            before = done
        assert workers.conflicts, "they never met"
        with server.connect() as connection:
            row = connection.execute("SELECT count(*) FROM t").fetchone()
            assert row is not None
            while workers.check(server) < row[0]:
                workers.step(connection)
            assert (
                connection.execute("SELECT i FROM done ORDER BY i").fetchall()
                == connection.execute("SELECT i FROM t ORDER BY i").fetchall()
            )
    finally:
        server.stop()
