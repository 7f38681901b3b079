"""A server with a missing file: it serves the rest, and everything when the file is back."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.files.writing import BUSY
from tests.harness import Server, indexed, until
from tests.storage.test_corrupt_shard import flipped

ROWS = 60
QUERIES = {
    "SELECT count(*), sum(amount) FROM orders": [(ROWS, sum(range(ROWS)))],
    "SELECT amount FROM orders WHERE id = 7": [(7,)],
    "SELECT n FROM by_customer WHERE customer = 1": [(ROWS // 3,)],
    "SELECT * FROM totals": [(sum(range(ROWS)),)],
    "SELECT count(*), sum(amount) FROM other": [(ROWS, sum(range(ROWS)))],
    "SELECT amount FROM other WHERE id = 7": [(7,)],
    "SELECT * FROM other_totals": [(sum(range(ROWS)),)],
}
SAYS = r"table foreshore\.public\.orders is damaged: batch \"(u\d+/[0-9-]+\.parquet)\" "


def fill(server: Server) -> None:
    """Make tables, an indexed view and materialized views, most of them in batches."""
    with server.connect() as connection:
        for name in ("orders", "other"):
            connection.execute(
                f"CREATE TABLE {name} (id int PRIMARY KEY, customer int, amount int)".encode()
            )
        connection.execute(
            "CREATE VIEW by_customer AS SELECT customer, count(*) AS n FROM orders GROUP BY customer"
        )
        connection.execute("CREATE INDEX ON by_customer (customer)")
        for view, table in (("totals", "orders"), ("other_totals", "other")):
            connection.execute(
                f"CREATE MATERIALIZED VIEW {view} AS SELECT sum(amount) FROM {table}".encode()
            )
        for i in range(ROWS):
            for name in ("orders", "other"):
                connection.execute(f"INSERT INTO {name} VALUES ({i}, {i % 3}, {i})".encode())
        check(connection)


def check(connection: psycopg.Connection[Any], *, damaged: bool = False) -> None:
    """Assert all answers; if `damaged` that those fail at once that need the table `orders`."""
    for query, answer in QUERIES.items():
        begun = time.monotonic()
        if not damaged or "other" in query:
            assert connection.execute(query.encode()).fetchall() == answer, query
            continue
        with pytest.raises(psycopg.errors.DataCorrupted, match=SAYS):
            connection.execute(query.encode())
        assert time.monotonic() - begun < 20, query


def inspected(directory: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "foreshore.server.main", "inspect", str(directory), *options],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("how", ["flipped", pytest.param("gone", marks=pytest.mark.slow)])
def test_server_goes_on_without_file_and_recovers_when_it_is_back(tmp_path: Path, how: str) -> None:
    server = Server(tmp_path / "data", program=(BUSY,))
    try:
        server.start()
        fill(server)
        blob = tmp_path / "data" / "blob"
        with server.connect() as connection:
            found = connection.execute("SELECT id FROM mz_tables WHERE name = 'orders'").fetchone()
        assert found is not None
        folder = blob / found[0]
        until(lambda: len(list(folder.glob("*.parquet"))) > 0, "the table is in a batch")
        server.stop()
        kept = tmp_path / "kept"
        shutil.copytree(folder, kept)
        for file in folder.iterdir():
            if how == "gone":
                file.unlink()
            else:
                file.write_bytes(flipped(file.read_bytes()))
        for _ in range(2):
            server.start()
            with server.connect() as connection:
                check(connection, damaged=True)
                with pytest.raises(psycopg.errors.DataCorrupted, match=SAYS):
                    connection.execute("INSERT INTO orders VALUES (1000, 1, 1)")
                with pytest.raises(psycopg.errors.DataCorrupted, match=SAYS):
                    connection.execute("UPDATE orders SET amount = 0")
                connection.execute("CREATE TABLE IF NOT EXISTS fresh (a int)")
                connection.execute("INSERT INTO fresh VALUES (1)")
                check(connection, damaged=True)
                children = server.children()
                time.sleep(1)
                assert server.children() == children  # no replica starts again and again
            server.stop()
        told = inspected(tmp_path / "data", "--verify")
        assert told.returncode == 1
        corruptions = [line for line in told.stdout.splitlines() if line.startswith("DAMAGED")]
        assert len(corruptions) == len(list(kept.iterdir()))
        for line in corruptions:
            assert line.startswith(f"DAMAGED blob/{folder.name}/"), line
            assert line.endswith(f", of {folder.name}  foreshore.public.orders"), line
        for file in kept.iterdir():
            shutil.copy(file, folder / file.name)
        server.start()
        with server.connect() as connection:
            check(connection)
            indexed(connection, "by_customer")
            assert connection.execute("SELECT * FROM fresh").fetchall() == [(1,), (1,)]
            connection.execute("INSERT INTO orders VALUES (1000, 1, 1)")
            assert connection.execute("SELECT * FROM totals").fetchall() == [
                (sum(range(ROWS)) + 1,)
            ]
        server.stop()
        assert inspected(tmp_path / "data", "--verify").returncode == 0
    finally:
        server.stop()
