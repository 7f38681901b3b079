"""A sequence's numbers are given out once, though the server is killed while it gives them."""

from __future__ import annotations

from pathlib import Path

from tests.harness import Server
from tests.kill.amid import kill_amid

CLIENTS = 4


def test_no_number_is_given_twice_over_kills(data_dir: Path) -> None:
    server = Server(data_dir).start()
    given: list[int] = []
    inserted: list[int] = []

    def take(client: int) -> None:
        with server.connect() as connection:
            while True:
                row = connection.execute("SELECT nextval('s')").fetchone()
                assert row is not None
                given.append(row[0])
                row = connection.execute(
                    "INSERT INTO t (client) VALUES (%s) RETURNING id", (client,)
                ).fetchone()
                assert row is not None
                inserted.append(row[0])

    try:
        with server.connect() as connection:
            connection.execute("CREATE SEQUENCE s INCREMENT BY 3")
            connection.execute("CREATE TABLE t (id bigserial PRIMARY KEY, client int)")
        for _ in range(3):
            before = len(given)
            kill_amid(server, CLIENTS, take, lambda: len(given) > before + 60)  # noqa: B023
        assert len(set(given)) == len(given)
        assert all(number % 3 == 1 for number in given)
        with server.connect() as connection:
            ids = [id for (id,) in connection.execute("SELECT id FROM t").fetchall()]
            assert len(set(ids)) == len(ids)
            assert set(inserted) <= set(ids)
            row = connection.execute("SELECT nextval('s') FROM t LIMIT 1").fetchone()
            assert row is not None
            assert row[0] > max(given)
    finally:
        server.stop()


def test_what_is_left_of_a_range_is_given_after_a_proper_end(data_dir: Path) -> None:
    server = Server(data_dir).start()
    try:
        with server.connect() as connection:
            connection.execute("CREATE SEQUENCE s")
            connection.execute("SELECT nextval('s') FROM generate_series(1, 5)")
            connection.execute("CREATE SEQUENCE r")
            connection.execute("SELECT nextval('r'), nextval('r')")
            connection.execute("ALTER SEQUENCE r RESTART WITH 50")
        server.stop()
        server.start()
        with server.connect() as connection:
            row = connection.execute("SELECT nextval('s'), nextval('r')").fetchone()
            assert row == (6, 50)
    finally:
        server.stop()
