"""Sinks to Kafka: messages each second, and the processor time of who writes them.

`python -m tests.bench.kafka_sink [MESSAGES]`. The relation has Nexmark's bids, keyed by their numbers:
first its contents are written, then an update of each row. The broker is `noida-db` in a process of
its own; its time is not counted, but it uses the machine's processors too.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psycopg

from tests.bench.processor_times import in_words, processor_seconds, since
from tests.broker import Broker
from tests.broker import serving as serving_broker
from tests.harness import Server
from tests.kafka_topics import TopicReader, reading
from tests.schema_registry import PASSWORD, USER
from tests.schema_registry import serving as serving_registry

BIDS = """
INSERT INTO bids SELECT i, i::int8 * 7919 % 1000, i::int8 * 104729 % 5000, (i::int8 * 31 % 100000)::numeric / 100,
    'channel ' || i % 100, '2024-01-01'::timestamp + i * interval '1 ms'
FROM generate_series(1, {}) i
"""
TABLE = (
    "CREATE TABLE bids (id int8 PRIMARY KEY, auction int8 NOT NULL, bidder int8 NOT NULL,"
    " price numeric(12, 2), channel text, date_time timestamp)"
)
EXPORT = ("export", "storage.export.main")
AVRO = "AVRO USING CONFLUENT SCHEMA REGISTRY CONNECTION csr"
FORMATS = {
    "JSON, UPSERT": "FORMAT JSON ENVELOPE UPSERT",
    "JSON, DEBEZIUM": "FORMAT JSON ENVELOPE DEBEZIUM",
    "Avro, UPSERT": f"FORMAT {AVRO} ENVELOPE UPSERT",
    "text, UPSERT": "KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE UPSERT",
}


def main() -> None:
    """Print a line for each format."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 400_000
    with (
        tempfile.TemporaryDirectory() as folder,
        serving_broker(Path(folder, "broker")) as broker,
        serving_registry() as registry,
    ):
        key = Path(folder, "key")
        key.touch(mode=0o600)
        key.write_text(os.urandom(32).hex())
        server = Server(Path(folder, "data"), ("--secrets-key-file", str(key))).start()
        try:
            with server.connect() as connection:
                connection.execute(f"CREATE CONNECTION k TO KAFKA (BROKER '{broker.address}')")
                connection.execute(f"CREATE SECRET pw AS '{PASSWORD}'")
                to_registry = f"URL '{registry.url}', USERNAME '{USER}', PASSWORD SECRET pw"
                connection.execute(
                    f"CREATE CONNECTION csr TO CONFLUENT SCHEMA REGISTRY ({to_registry})"
                )
                for number, (name, format) in enumerate(FORMATS.items()):
                    measure(server, connection, broker, count, name, f"t{number}", format)
        finally:
            server.stop()


def measure(
    server: Server,
    connection: psycopg.Connection[Any],
    broker: Broker,
    count: int,
    name: str,
    topic: str,
    format: str,
) -> None:
    """Print what it takes to write all rows, and an update of each."""
    connection.execute(TABLE)
    connection.execute(BIDS.format(count))
    broker.create(topic)
    sink = f"CREATE SINK s FROM bids INTO KAFKA CONNECTION k (TOPIC '{topic}') KEY (id) {format}"
    updated = "UPDATE bids SET price = price + 1"
    with reading(broker.address, topic) as reader:
        for what, statement, total in (
            ("contents", sink, count),
            ("updates", updated, 2 * count),
        ):
            took = timed(server, partial(connection.execute, statement), reader, total)
            print(f"{name}, {what}: {in_words(count, *took)}", flush=True)
    connection.execute("DROP SINK s")
    connection.execute("DROP TABLE bids")


def timed(
    server: Server, begin: Callable[[], object], reader: TopicReader, total: int
) -> tuple[float, dict[str, float]]:
    """Return how long it took until a topic had so many messages, and processor times."""
    before, began = processor_seconds(server, *EXPORT), time.monotonic()
    begin()
    while len(reader.read()) < total:
        time.sleep(0.05)
    took = time.monotonic() - began
    return took, since(before, processor_seconds(server, *EXPORT))


if __name__ == "__main__":
    main()
