"""The server is killed while roles and schemas are named and dropped: the catalog stays whole."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from foreshore import failpoint
from foreshore.catalog.builtin.registry import BUILTINS
from foreshore.server.main import _contents
from tests.harness import Server, until

NAMES = (
    "GRANT SELECT ON ut TO cc",
    "GRANT cc TO dd",
    "ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO cc",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA sc GRANT SELECT ON TABLES TO PUBLIC",
    "CREATE POLICY p ON ut TO cc",
    "ALTER TABLE ut OWNER TO cc",
    "CREATE TABLE sc.x (a int)",
)
ENDS = (
    "DROP OWNED BY cc",
    "DROP ROLE cc",
    "DROP SCHEMA sc CASCADE",
    "CREATE ROLE cc",
    "CREATE SCHEMA sc",
    "ALTER TABLE ut OWNER TO foreshore",
    "DROP POLICY IF EXISTS p ON ut",
)
POINTS = ("log.written", "log.synced", "log.applied", "catalog.committed")


def run(url: str, statements: tuple[str, ...], failed: list[str], *, blocks: bool) -> None:
    """Run statements again and again until the server is gone; note those that break something."""
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            while True:
                for sql in statements:
                    try:
                        if blocks:
                            with connection.transaction():
                                connection.execute(sql.encode())
                        else:
                            connection.execute(sql.encode())
                    except (psycopg.OperationalError, psycopg.InterfaceError):
                        if connection.broken:
                            raise
                    except psycopg.DatabaseError as error:
                        if (error.sqlstate or "XX000").startswith("XX"):
                            failed.append(f"{sql}: {error}")
    except (psycopg.OperationalError, psycopg.InterfaceError):
        return  # the server has ended


def ended(server: Server, work: Callable[[], None]) -> None:
    """Work until the server, which may not listen yet, has ended."""
    assert server.process is not None
    while server.process.poll() is None:
        work()
        time.sleep(0.02)


@pytest.mark.timeout(600)
def test_catalog_is_whole_after_kills_at_commit(data_dir: Path) -> None:
    server = Server(data_dir).start()
    try:
        with server.connect() as connection:
            for sql in ("CREATE TABLE ut (a int)", "CREATE ROLE dd"):
                connection.execute(sql.encode())
        failed: list[str] = []
        for number, point in enumerate(POINTS):
            server.kill()
            server.environment = {failpoint.VARIABLE: f"{point}:{7 + 5 * number}"}
            server.spawn()
            works = [
                lambda blocks=blocks, part=part: run(server.url, part, failed, blocks=blocks)
                for part in (NAMES, ENDS, ENDS[::-1])
                for blocks in (False, True)
            ]
            threads = [threading.Thread(target=ended, args=(server, work)) for work in works]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(60)
                assert not thread.is_alive(), f"{point} was not reached"
            until(lambda: not server.processes(), "the replicas of the ended server end", 10)
            assert not failed
            assert _contents(data_dir).dangling == (), point
            server.environment = {}
            server.start()
            with server.connect() as connection:
                for builtin in BUILTINS.values():
                    relation = f'{builtin.schema}."{builtin.name}"'
                    connection.execute(f"SELECT * FROM {relation} LIMIT 1".encode())
    finally:
        server.stop()
