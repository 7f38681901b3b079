"""Sinks that get another relation again and again, though the server is killed: no change twice."""

import random
import threading
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import msgspec
import psycopg
import pytest

from tests.broker import serving
from tests.effort import examples
from tests.harness import Server
from tests.kafka_topics import reading
from tests.kill.under_load import kill_and_start, loading, options_of

KILLS = examples(8)
KEYS = 60
WITH = "WITH (COMMIT INTERVAL '10 ms')"
SINKS = ("a", "b", "c", "d")

pytestmark = pytest.mark.full


def test_targets_follow_relations_over_kills(tmp_path: Path, postgres_url: str) -> None:
    place = tmp_path / "out"
    place.mkdir()
    with serving(tmp_path / "broker") as broker:
        server = Server(tmp_path / "data", ("--copy-dir", str(place))).start()
        _set_up(server, place, postgres_url, broker.address)
        with loading(partial(_load, server.url)), loading(partial(_switch, server.url)):
            kill_and_start(server, KILLS)
        with server.connect() as connection:
            connection.execute("SET statement_timeout = '120 s'")
            connection.execute("WAIT FOR ALL SINKS")
            for sink in SINKS:
                connection.execute(f"ALTER SINK {sink} SET FROM y")
            connection.execute("WAIT FOR ALL SINKS")
            rows = connection.execute("SELECT id, v FROM y ORDER BY id").fetchall()
        assert len({v for _, v in rows}) > 2
        with psycopg.connect(postgres_url, autocommit=True) as target:
            assert target.execute("SELECT id, v FROM set_from.t ORDER BY id").fetchall() == rows
            target.execute("DROP SCHEMA set_from CASCADE")
        merged = deltalake.DeltaTable(str(place / "merged")).to_pyarrow_table().to_pylist()
        assert sorted((row["id"], row["v"]) for row in merged) == rows
        log = deltalake.DeltaTable(str(place / "log")).to_pyarrow_table().to_pylist()
        _check_log([tuple(row.values()) for row in log], rows)
        _check_topic(broker.address, rows)
        assert server.stop() == 0


def _set_up(server: Server, place: Path, postgres_url: str, broker: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as target:
        target.execute("DROP SCHEMA IF EXISTS set_from CASCADE")
        target.execute("CREATE SCHEMA set_from")
    topic = "TOPIC 'switched') KEY (id) FORMAT JSON ENVELOPE DEBEZIUM"
    with server.connect() as connection:
        for each in (
            "CREATE TABLE x (id int PRIMARY KEY, v int NOT NULL)",
            "CREATE TABLE y (id int PRIMARY KEY, v int NOT NULL)",
            f"INSERT INTO x SELECT i, 0 FROM generate_series(1, {KEYS}) AS i",
            f"CREATE CONNECTION pg TO POSTGRES ({options_of(postgres_url)})",
            f"CREATE CONNECTION k TO KAFKA (BROKER '{broker}')",
            f"CREATE SINK a FROM x INTO POSTGRES CONNECTION pg (TABLE 'set_from.t') {WITH}",
            f"CREATE SINK b FROM x INTO DELTA (URL '{place}/merged') {WITH}",
            f"CREATE SINK c FROM x INTO DELTA (URL '{place}/log') ENVELOPE APPEND {WITH}",
            f"CREATE SINK d FROM x INTO KAFKA CONNECTION k ({topic} {WITH}",
        ):
            connection.execute(each)


def _load(url: str, ends: threading.Event) -> None:
    """Write and delete rows of both tables, with values that occur once."""
    number, seed = 0, random.Random(1)
    while not ends.is_set():
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                while not ends.wait(0.005):
                    number += 1
                    key, table = seed.randint(1, KEYS), seed.choice("xy")
                    connection.execute(
                        f"INSERT INTO {table} VALUES ({key}, {number})"
                        f" ON CONFLICT (id) DO UPDATE SET v = {number}"
                    )
                    gone, table = seed.randint(1, KEYS), seed.choice("xy")
                    connection.execute(f"DELETE FROM {table} WHERE id = {gone}")
        except psycopg.OperationalError:
            ends.wait(0.1)


def _switch(url: str, ends: threading.Event) -> None:
    """Give sinks the other table, as often as they let themselves be given it."""
    seed = random.Random(2)
    while not ends.is_set():
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                while not ends.wait(0.05):
                    sink, table = seed.choice(SINKS), seed.choice("xy")
                    try:
                        connection.execute(f"ALTER SINK {sink} SET FROM {table}")
                    except psycopg.errors.ObjectNotInPrerequisiteState:
                        continue  # the change before is not written
        except psycopg.OperationalError:
            ends.wait(0.1)


def _check_log(changes: list[Any], rows: list[Any]) -> None:
    """Check that each change is there once, and that they lead to the rows."""
    assert len(changes) == len(set(changes))
    found: Counter[Any] = Counter()
    for id, v, _, diff in changes:
        found[id, v] += diff
    assert {row: count for row, count in found.items() if count} == dict.fromkeys(rows, 1)


def _check_topic(broker: str, rows: list[Any]) -> None:
    """Check that each message has the row before that the one before of its key has left."""
    with reading(broker, "switched") as reader:
        seen: dict[bytes | None, Any] = {}
        messages = reader.read()
        assert len(messages) > KEYS
        for each in messages:
            change = msgspec.json.decode(each.value or b"")
            assert change["before"] == seen.get(each.key)
            seen[each.key] = change["after"]
    left = sorted((row["id"], row["v"]) for row in seen.values() if row is not None)
    assert left == rows
