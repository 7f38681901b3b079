"""Messages of Kafka come once each, though the server and its ingestion process are killed."""

import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.effort import examples
from tests.harness import Server
from tests.kafka import MockKafka

MESSAGES = 200_000
KEYS = 5_000
KILLS = examples(10)

pytestmark = pytest.mark.full

SOURCES = (
    "CREATE SOURCE each (n int8 NOT NULL) FROM KAFKA CONNECTION k (TOPIC 't') FORMAT JSON"
    " INCLUDE PARTITION, OFFSET",
    "CREATE SOURCE last (n int8 NOT NULL) FROM KAFKA CONNECTION k (TOPIC 't') KEY FORMAT TEXT"
    " VALUE FORMAT JSON ENVELOPE UPSERT",
)
EXPECTED = (MESSAGES, MESSAGES, MESSAGES * (MESSAGES - 1) // 2)


def test_each_message_comes_once_over_kills(tmp_path: Path) -> None:
    kafka = MockKafka()
    messages = [(b"%d" % (n * 7919 % KEYS), b'{"n": %d}' % n) for n in range(MESSAGES)]
    kafka.write("t", messages[:1000])
    writing = threading.Thread(target=_write, args=(kafka, messages[1000:]))
    server = Server(tmp_path / "data").start()
    try:
        with server.connect() as connection:
            connection.execute(f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}')")
            for each in SOURCES:
                connection.execute(each)
        writing.start()
        seed = random.Random(5)
        for number in range(KILLS):
            time.sleep(seed.uniform(0.3, 1.5))
            if number % 2:
                kill_ingestion(server)
            else:
                server.kill()
                server.start()
        writing.join()
        with server.connect() as connection:
            _wait(connection)
            found = "SELECT count(*), count(DISTINCT n), sum(n) FROM each"
            assert connection.execute(found).fetchone() == EXPECTED
            twice = 'SELECT 1 FROM each GROUP BY partition, "offset" HAVING count(*) > 1'
            assert connection.execute(twice).fetchone() is None
            rows: Any = connection.execute("SELECT key, n FROM last").fetchall()
            assert len(rows) == KEYS
            newest = {key.decode(): n for n, (key, _) in enumerate(messages)}
            assert dict(rows) == newest
            errors = (
                "SELECT (SELECT count(*) FROM each_errors) + (SELECT count(*) FROM last_errors)"
            )
            assert connection.execute(errors).fetchone() == (0,)
    finally:
        server.stop()


def _write(kafka: MockKafka, messages: list[tuple[bytes, bytes]]) -> None:
    """Write in parts, so that messages come while processes are killed."""
    size = max(1, len(messages) // (8 * KILLS))
    for start in range(0, len(messages), size):
        kafka.write("t", messages[start : start + size])
        time.sleep(0.1)


def kill_ingestion(server: Server) -> None:
    """Kill the ingestion processes of a server."""
    for pid in server.processes():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if b"storage.ingest.main" in command:
                os.kill(pid, signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended


def _wait(connection: psycopg.Connection[Any]) -> None:
    """Wait until both sources have read all."""
    for source in ("each", "last"):
        read = f'SELECT sum("offset") FROM {source}_progress'
        for _ in range(1200):
            if connection.execute(read).fetchone() == (MESSAGES,):
                break
            time.sleep(0.1)
        else:
            raise AssertionError(
                connection.execute("TABLE mz_internal.mz_source_statuses").fetchall()
            )
