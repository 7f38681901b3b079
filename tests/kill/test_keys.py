"""Keys after a kill: each acknowledged row is there once, and no key is there twice."""

from __future__ import annotations

import threading
from pathlib import Path

import psycopg
import pytest

from tests.harness import Server, until

WRITERS = 6
KEYS = 400


def test_acknowledged_keys_exist_once_after_kill(data_dir: Path) -> None:
    server = Server(data_dir).start()
    acknowledged: list[tuple[int, int]] = []  # key, writer

    def insert(writer: int) -> None:
        try:
            with server.connect() as connection:
                for key in range(KEYS):
                    try:
                        connection.execute("INSERT INTO t VALUES (%s, %s)", (key, writer))
                        acknowledged.append((key, writer))
                    except psycopg.errors.UniqueViolation:
                        pass  # another was first
                    connection.execute(
                        "INSERT INTO n VALUES (1, 1) ON CONFLICT (k) DO UPDATE SET n = n.n + 1"
                    )
                    increments[writer] += 1
        except psycopg.OperationalError:
            pass  # the server was killed

    increments = [0] * WRITERS
    try:
        with server.connect() as connection:
            connection.execute("CREATE TABLE t (k int PRIMARY KEY, writer int)")
            connection.execute("CREATE TABLE n (k int PRIMARY KEY, n int)")
        for _ in range(2):
            threads = [threading.Thread(target=insert, args=(i,)) for i in range(WRITERS)]
            before = len(acknowledged)
            for thread in threads:
                thread.start()
            until(lambda: len(acknowledged) > before + 20, "some keys are written")  # noqa: B023
            server.kill()
            for thread in threads:
                thread.join()
            server.start()
            with server.connect() as connection:
                rows = connection.execute("SELECT k, writer FROM t").fetchall()
                assert len({key for key, _ in rows}) == len(rows)
                assert set(acknowledged) <= set(rows)
                for key, writer in acknowledged[:20]:
                    found = connection.execute("SELECT writer FROM t WHERE k = %s", (key,))
                    assert found.fetchall() == [(writer,)]
                    with pytest.raises(psycopg.errors.UniqueViolation) as refused:
                        connection.execute("INSERT INTO t VALUES (%s, -1)", (key,))
                    detail = refused.value.diag.message_detail
                    assert detail == f"Key (k)=({key}) already exists."
                ((counted,),) = connection.execute("SELECT n FROM n WHERE k = 1").fetchall()
                # the last of each writer may have happened without its hearing of it
                assert sum(increments) <= counted <= sum(increments) + 2 * WRITERS
    finally:
        server.stop()
