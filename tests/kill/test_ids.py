"""An id names one collection for ever: over drops, kills and restores from a backup."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from foreshore.ids import parse_global_id
from foreshore.storage.backup import back_up, restore
from tests.harness import Server, serving
from tests.kill.amid import kill_amid

CLIENTS = 3
Bound = dict[str, set[str]]  # to an id, the names of what it was seen to be

_NUMBERS = count()


def define(server: Server, bound: Bound, rounds: Iterator[int]) -> None:
    """Create and drop collections of all kinds, under distinct names, and record their ids."""
    with server.connect() as connection:
        for _ in rounds:
            number = next(_NUMBERS)
            connection.execute(f"CREATE TABLE t{number} (i int PRIMARY KEY, n serial)".encode())
            connection.execute(f"CREATE TEMP VIEW tv{number} AS SELECT 1".encode())
            connection.execute(
                f"CREATE MATERIALIZED VIEW m{number} AS SELECT i FROM t{number}".encode()
            )
            connection.execute(f"CREATE INDEX x{number} ON m{number} (i)".encode())
            note(connection, bound)
            connection.execute(f"DROP TABLE t{number} CASCADE".encode())
            connection.execute(f"BEGIN; CREATE TABLE undone{number} (i int)".encode())
            connection.execute("ROLLBACK")


def note(connection: psycopg.Connection[Any], bound: Bound) -> None:
    """Add the ids that are in use now."""
    found = connection.execute("SELECT id, name FROM mz_catalog.mz_objects WHERE id LIKE 'u%'")
    for id, name in found.fetchall():
        bound.setdefault(parse_global_id(id), set()).add(name)


def check(bound: Bound) -> None:
    assert {id: names for id, names in bound.items() if len(names) > 1} == {}


def test_new_ids_after_kills_were_never_used(data_dir: Path) -> None:
    server = Server(data_dir).start()
    bound: Bound = {}
    try:
        for _ in range(4):
            before = len(bound)
            kill_amid(
                server,
                CLIENTS,
                lambda _: define(server, bound, count()),
                lambda: len(bound) > before + 12,  # noqa: B023
            )
            check(bound)
        define(server, bound, iter(range(1)))
        check(bound)
        assert len(bound) > 4 * 12
    finally:
        server.stop()


@contextmanager
def restored(place: Path, data_dir: Path) -> Iterator[Server]:
    restore(place, data_dir)
    with serving(data_dir) as server:
        yield server


@pytest.mark.slow
def test_restored_databases_give_out_distinct_ids(tmp_path: Path) -> None:
    source, place = tmp_path / "data", tmp_path / "backup"
    bound: Bound = {}
    with serving(source) as server:
        define(server, bound, iter(range(2)))
        back_up(source, place)
        define(server, bound, iter(range(2)))  # what the backup does not know
        for name in ("one", "other"):
            with restored(place, tmp_path / name) as copy:
                define(copy, bound, iter(range(2)))
        back_up(tmp_path / "other", tmp_path / "again")
        with restored(tmp_path / "again", tmp_path / "copy of a copy") as copy:
            define(copy, bound, iter(range(2)))
            copy.kill()
            copy.start()
            define(copy, bound, iter(range(1)))
        define(server, bound, iter(range(2)))
    check(bound)
    assert len(bound) > 11 * 5
