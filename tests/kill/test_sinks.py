"""Sinks to PostgreSQL, Delta tables and files, though the server is killed: each change once."""

import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import psycopg
import pytest

from tests.effort import examples
from tests.harness import Server
from tests.kill.under_load import kill_and_start, loading, options_of

KILLS = examples(6)
WITH = "WITH (COMMIT INTERVAL '20 ms')"

pytestmark = pytest.mark.full


def test_each_change_arrives_once_over_kills(tmp_path: Path, postgres_url: str) -> None:
    place = tmp_path / "out"
    place.mkdir()
    server = Server(tmp_path / "data", ("--copy-dir", str(place))).start()
    _set_up(server, place, postgres_url)
    reader = Reader(place / "files")
    reader.start()
    try:
        with loading(partial(load, server.url)):
            kill_and_start(server, KILLS)
    finally:
        reader.stopping.set()
        reader.join()
    assert not reader.wrong
    assert reader.reads > KILLS
    with server.connect() as connection:
        connection.execute("SET statement_timeout = '120 s'")
        connection.execute("WAIT FOR ALL SINKS")
        rows = connection.execute("SELECT id, v FROM t ORDER BY id").fetchall()
    assert len(rows) > 20
    with psycopg.connect(postgres_url, autocommit=True) as target:
        assert target.execute("SELECT id, v FROM sinks.t ORDER BY id").fetchall() == rows
        target.execute("DROP SCHEMA sinks CASCADE")
    merged = deltalake.DeltaTable(str(place / "merged")).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["v"]) for row in merged) == rows
    table = deltalake.DeltaTable(str(place / "log")).to_pyarrow_table().to_pylist()
    log = [tuple(row.values()) for row in table]
    files = duckdb.sql(f"SELECT * FROM '{place}/files/*.parquet'").fetchall()
    small = [each for each in (place / "files").iterdir() if each.is_file()]
    assert len([each for each in small if each.stat().st_size < 1 << 20]) == 1
    for changes in (log, files):
        assert len(changes) == len(set(changes))  # none twice
        assert sum_of(changes) == Counter(rows)
    assert server.stop() == 0


class Reader(threading.Thread):
    """Reads all files of a sink again and again, as programs do that know nothing of it."""

    def __init__(self, place: Path) -> None:
        super().__init__()
        self._place = place
        self.stopping = threading.Event()
        self.wrong: list[object] = []
        self.reads = 0

    def run(self) -> None:
        seen: Counter[Any] = Counter()
        while not self.stopping.wait(0.02):
            if not any(self._place.glob("*.parquet")):
                continue
            try:
                with duckdb.connect() as connection:
                    query = f"SELECT * FROM '{self._place}/*.parquet'"
                    found = Counter(connection.sql(query).fetchall())
            except duckdb.Error as error:
                self.wrong.append(error)
                continue
            if max(found.values()) > 1 or seen - found:
                self.wrong.append((found - seen, seen - found))
            seen = found
            self.reads += 1


def _set_up(server: Server, place: Path, postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as target:
        target.execute("DROP SCHEMA IF EXISTS sinks CASCADE")
        target.execute("CREATE SCHEMA sinks")
    with server.connect() as connection:
        for each in (
            "CREATE TABLE t (id int PRIMARY KEY, v int)",
            f"CREATE CONNECTION pg TO POSTGRES ({options_of(postgres_url)})",
            f"CREATE SINK a FROM t INTO POSTGRES CONNECTION pg (TABLE 'sinks.t') {WITH}",
            f"CREATE SINK b FROM t INTO DELTA (URL '{place}/merged') {WITH}",
            f"CREATE SINK c FROM t INTO DELTA (URL '{place}/log') ENVELOPE APPEND {WITH}",
            f"CREATE SINK d FROM t INTO FILES (URL '{place}/files', FORMAT parquet) {WITH}",
        ):
            connection.execute(each)


def sum_of(changes: list[Any]) -> Counter[tuple[int, int]]:
    """Return the rows that are left when all changes were made."""
    found: Counter[tuple[int, int]] = Counter()
    for id, v, _, diff in changes:
        found[id, v] += diff
    return Counter({row: count for row, count in found.items() if count})


def load(url: str, ends: threading.Event) -> None:
    """Insert, change and delete rows until told to end, whether the server is there or not."""
    number = 0
    while not ends.is_set():
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                while not ends.wait(0.005):
                    number += 1
                    connection.execute("INSERT INTO t VALUES (%s, 0)", (number,))
                    connection.execute("UPDATE t SET v = v + 1 WHERE id = %s", (number - 3,))
                    connection.execute("DELETE FROM t WHERE id = %s", (number - 50,))
        except psycopg.OperationalError:
            ends.wait(0.1)
