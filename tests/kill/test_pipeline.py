"""From a PostgreSQL server through a view into a table of it, though the server is killed."""

import threading
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.effort import examples
from tests.harness import Server, until
from tests.kill.under_load import kill_and_start, loading, options_of

KILLS = examples(5)

pytestmark = pytest.mark.full

UPSTREAM = (
    "CREATE SCHEMA pipeline",
    "CREATE TABLE pipeline.orders (id int PRIMARY KEY, item text, n int)",
    "ALTER TABLE pipeline.orders REPLICA IDENTITY FULL",
    "CREATE PUBLICATION pipeline FOR TABLE pipeline.orders",
)
PIPELINE = (
    "CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'pipeline') FOR ALL TABLES",
    "CREATE MATERIALIZED VIEW v AS SELECT item, sum(n) AS total FROM orders GROUP BY item",
    "CREATE SINK k FROM v INTO POSTGRES CONNECTION pg (TABLE 'pipeline.totals')"
    " KEY (item) NOT ENFORCED WITH (COMMIT INTERVAL '50 ms')",
)
TOTALS = "SELECT item, total::bigint FROM pipeline.totals ORDER BY item"
SLOTS = "SELECT slot_name FROM pg_replication_slots"
EXPECTED = "SELECT item, sum(n)::bigint FROM pipeline.orders GROUP BY item ORDER BY item"


def test_totals_follow_over_kills(tmp_path: Path, publisher_url: str) -> None:
    server = Server(tmp_path / "data").start()
    with psycopg.connect(publisher_url, autocommit=True) as upstream:
        for each in UPSTREAM:
            upstream.execute(each)
        others = set(_rows(upstream, SLOTS))  # of tests before
        with server.connect() as connection:
            connection.execute(f"CREATE CONNECTION pg TO POSTGRES ({options_of(publisher_url)})")
            for each in PIPELINE:
                connection.execute(each)
        with loading(partial(_load, publisher_url)):
            kill_and_start(server, KILLS)
        expected = upstream.execute(EXPECTED).fetchall()
        until(lambda: _rows(upstream, TOTALS) == expected, "the table has all totals", 60)
        with server.connect() as connection:
            connection.execute("DROP CONNECTION pg CASCADE")
        until(lambda: set(_rows(upstream, SLOTS)) <= others, "the slot is dropped", 60)
        assert server.stop() == 0
        upstream.execute("DROP PUBLICATION pipeline")
        upstream.execute("DROP SCHEMA pipeline CASCADE")


def _rows(connection: psycopg.Connection[Any], query: str) -> list[Any]:
    return connection.execute(query).fetchall()


def _load(url: str, ends: threading.Event) -> None:
    """Insert and delete orders until told to end."""
    number = 0
    with psycopg.connect(url, autocommit=True) as connection:
        while not ends.wait(0.003):
            number += 1
            row = (number, f"item {number % 7}", number)
            connection.execute("INSERT INTO pipeline.orders VALUES (%s, %s, %s)", row)
            if number % 3 == 0:
                connection.execute("DELETE FROM pipeline.orders WHERE id = %s", (number - 1,))
