"""Nexmark's bids from Kafka: messages each second, and the processor time of who reads them.

`python -m tests.bench.kafka [MESSAGES]`. The brokers are a mock cluster in this process, which does
little but send; their time is not counted.
"""

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa

from tests.bench.nexmark import events
from tests.bench.processor_times import in_words, processor_seconds, since
from tests.harness import Server
from tests.kafka import MockKafka

KEYS = 50_000
INGESTION = ("ingestion", "storage.ingest.main")
TYPED = "(auction int8, bidder int8, price int8, channel text, date_time timestamp)"
FROM = "FROM KAFKA CONNECTION k (TOPIC 'bids')"
SOURCES = {
    "NONE, columns": f"{TYPED} {FROM} FORMAT JSON",
    "NONE, jsonb": f"{FROM} FORMAT JSON",
    "UPSERT, columns": f"{TYPED} {FROM} KEY FORMAT TEXT VALUE FORMAT JSON ENVELOPE UPSERT",
}


def main() -> None:
    """Print a line for each kind of source."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 400_000
    kafka = MockKafka()
    kafka.write("bids", bids(count))
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder, "data")).start()
        try:
            with server.connect() as connection:
                connection.execute(f"CREATE CONNECTION k TO KAFKA (BROKER '{kafka.address}')")
                for name, source in SOURCES.items():
                    print(measured(server, connection, count, name, source), flush=True)
        finally:
            server.stop()


def bids(count: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and JSON of bids."""
    made: pa.Table = events(0, count * 50 // 46 // 50 * 50 + 50)["bid"].slice(0, count)
    columns = [made.column(at).to_pylist() for at in range(made.num_columns)]
    for number, (auction, bidder, price, channel, at) in enumerate(zip(*columns, strict=True)):
        value = (
            f'{{"auction":{auction},"bidder":{bidder},"price":{price},'
            f'"channel":"{channel}","date_time":"{at.isoformat(" ")}"}}'
        )
        yield b"%d" % (number * 7919 % KEYS), value.encode()


def measured(
    server: Server, connection: psycopg.Connection[Any], count: int, name: str, source: str
) -> str:
    """Return what reading all messages took."""
    before, began = processor_seconds(server, *INGESTION), time.monotonic()
    connection.execute(f"CREATE SOURCE s {source}")
    while connection.execute('SELECT sum("offset") FROM s_progress').fetchone() != (count,):
        time.sleep(0.05)
    took = time.monotonic() - began
    used = since(before, processor_seconds(server, *INGESTION))
    connection.execute("DROP SOURCE s")
    return f"{name}: {in_words(count, took, used)}"


if __name__ == "__main__":
    main()
