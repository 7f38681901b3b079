"""Changes come to topics once each, though the server and its export process are killed."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from pathlib import Path

import msgspec
import psycopg
import pytest

from tests.broker import serving
from tests.effort import examples
from tests.harness import Server, until
from tests.kafka_topics import TopicReader, reading

KEYS = 10_000
ROUNDS = examples(100)  # in each, all rows are updated: KEYS * ROUNDS updates
KILLS = examples(10)

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]

SINKS = (
    "CREATE SINK newest FROM t INTO KAFKA CONNECTION k (TOPIC 'newest') KEY (id)"
    " KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE UPSERT WITH (COMMIT INTERVAL '100 ms')",
    "CREATE SINK changes FROM t INTO KAFKA CONNECTION k (TOPIC 'changes') KEY (id)"
    " KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE DEBEZIUM WITH (COMMIT INTERVAL '100 ms')",
)


class Row(msgspec.Struct):
    """A row of the table."""

    id: int
    n: int


class Change(msgspec.Struct):
    """A change of a row."""

    before: Row | None
    after: Row | None


def test_each_change_comes_once_over_kills(tmp_path: Path) -> None:
    with serving(tmp_path / "broker") as broker:
        server = Server(tmp_path / "data").start()
        try:
            with server.connect() as connection:
                connection.execute(f"CREATE CONNECTION k TO KAFKA (BROKER '{broker.address}')")
                connection.execute("CREATE TABLE t (id int PRIMARY KEY, n int NOT NULL)")
                connection.execute(f"INSERT INTO t SELECT i, 0 FROM generate_series(1, {KEYS}) i")
                for each in SINKS:
                    connection.execute(each)
            updating = threading.Thread(target=_update, args=(server,))
            updating.start()
            seed = random.Random(5)
            for number in range(KILLS):
                time.sleep(seed.uniform(1, 3))
                if number % 2:
                    _kill_exports(server)
                else:
                    server.kill()
                    server.start()
            updating.join()
            with server.connect() as connection:  # noida-db leaves out messages for who follows
                connection.execute("SET statement_timeout = '600 s'")
                connection.execute("WAIT FOR ALL SINKS")
            with reading(broker.address, "newest") as newest:
                _check_newest(newest)
            with reading(broker.address, "changes") as changes:
                _check_changes(changes)
        finally:
            server.stop()


def _update(server: Server) -> None:
    """Update all rows again and again; a round is repeated if it is not known to be done."""
    for number in range(1, ROUNDS + 1):
        while True:
            try:
                with server.connect() as connection:
                    connection.execute(f"UPDATE t SET n = {number} WHERE n < {number}")
                break
            except psycopg.Error:
                time.sleep(0.1)  # the server is being killed


def _kill_exports(server: Server) -> None:
    for pid in server.processes():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"storage.export.main" in command:
                os.kill(pid, signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended


def _wait(reader: TopicReader) -> None:
    """Wait until a topic has a message for the contents, and for each update."""
    expected = KEYS * (ROUNDS + 1)
    until(lambda: len(reader.read()) >= expected, f"{expected} messages", 600)
    assert len(reader.read()) == expected


def _check_newest(reader: TopicReader) -> None:
    _wait(reader)
    decode = msgspec.json.Decoder(Row).decode
    seen = dict.fromkeys(range(1, KEYS + 1), -1)
    for each in reader.messages:
        row = decode(each.value or b"")
        assert each.key == b"%d" % row.id
        assert row.n == seen[row.id] + 1
        seen[row.id] = row.n
    assert set(seen.values()) == {ROUNDS}


def _check_changes(reader: TopicReader) -> None:
    _wait(reader)
    decode = msgspec.json.Decoder(Change).decode
    seen: dict[bytes | None, Row | None] = {}
    for each in reader.messages:
        change = decode(each.value or b"")
        assert change.before == seen.get(each.key)
        seen[each.key] = change.after
    assert {row.n for row in seen.values() if row is not None} == {ROUNDS}
    assert len(seen) == KEYS
