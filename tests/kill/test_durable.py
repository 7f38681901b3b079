"""A durable subscription's consumer has each change once, though the server is killed under it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import psycopg

from tests.harness import Server
from tests.kill.amid import kill_amid

CHANGES = 40  # that are confirmed before each kill


class Copy:
    """What a consumer keeps: rows, and the time before which they are all; changed together."""

    def __init__(self) -> None:
        self.rows: Counter[tuple[int, ...]] = Counter()
        self.upto = 0
        self.confirmed = 0

    def follow(self, server: Server, until: int | None = None) -> None:
        """Go on from here, until `until`: the loop of docs/subscribe.md."""
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


def test_over_kills_a_consumer_loses_and_doubles_nothing(data_dir: Path) -> None:
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
