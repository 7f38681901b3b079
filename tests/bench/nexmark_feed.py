"""A process that writes Nexmark's events to Kafka at a rate: `python -m tests.bench.nexmark_feed`.

It has a mock cluster, whose address it prints. A line `RATE SECONDS FILE` on its input lets it
write so many events a second to the topics person, auction and bid, for so long. Then FILE has for
each slice of events when it was written, in seconds since 1970, and how many bids there were before
it, and the process prints how many events it wrote and how far it was behind its rate at most.
"""

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.bench.nexmark import events
from tests.kafka import MockKafka

GENERATED = 20_000  # events that are made at once
CUTS = 10  # slices of these
PARTITIONS = 4  # that the mock cluster makes of a topic
OPTIONS = {
    "compression.type": "lz4",
    "batch.num.messages": "5000",
    "queue.buffering.max.messages": "1000000",
}
Slice: TypeAlias = Mapping[str, Sequence[bytes]]  # messages by topics


def main() -> None:
    """Serve one request after the other until the input ends."""
    kafka = MockKafka(partitions=PARTITIONS, **OPTIONS)
    for topic in ("person", "auction", "bid"):
        kafka.producer.list_topics(topic, timeout=10)  # which makes it
    print(kafka.address, flush=True)
    first = 0
    for line in sys.stdin:
        rate, seconds, file = line.split()
        count = round(int(rate) * float(seconds) / GENERATED)
        times, behind = _write(kafka, slices(first, count), GENERATED // CUTS / int(rate))
        np.save(Path(file), np.asarray(times))
        first += count * GENERATED
        print(f"{count * GENERATED} {behind:.3f}", flush=True)


def _write(
    kafka: MockKafka, made: Iterator[Slice], each_seconds: float
) -> tuple[list[tuple[float, int]], float]:
    """Write slices at their times; return the times, and how late the latest was in seconds."""
    times: list[tuple[float, int]] = []
    behind, bids, begins = 0.0, 0, 0.0
    for number, each in enumerate(made):
        begins = begins or time.time()
        early = begins + number * each_seconds - time.time()
        if early > 0:
            time.sleep(early)
        behind = max(behind, -early)
        times.append((time.time(), bids))
        partition = number % PARTITIONS
        for topic, values in each.items():
            for value in values:
                kafka.producer.produce(topic, value, partition=partition)
        bids += len(each["bid"])
        kafka.producer.poll(0)
    assert kafka.producer.flush(30) == 0
    times.append((time.time(), bids))
    return times, behind


def slices(first: int, count: int) -> Iterator[Slice]:
    """Yield the slices of so many parts of events from `first` on."""
    for number in range(count):
        made = events(first + number * GENERATED, GENERATED)
        texts = {topic: as_json(rows) for topic, rows in made.items()}
        for cut in range(CUTS):
            yield {
                topic: each[len(each) * cut // CUTS : len(each) * (cut + 1) // CUTS]
                for topic, each in texts.items()
            }


def as_json(rows: pa.Table) -> list[bytes]:
    """Return rows as JSON objects."""
    parts: list[pa.Array | str] = []
    for number, (name, column) in enumerate(zip(rows.column_names, rows.columns, strict=True)):
        quote = "" if pa.types.is_integer(column.type) else '"'
        parts.append(f'{"," if number else "{"}"{name}":{quote}')
        parts += [pc.cast(column.combine_chunks(), pa.string()), quote]
    made = pc.binary_join_element_wise(*parts, "}", "")
    found: list[bytes] = pc.cast(made, pa.binary()).to_pylist()
    return found


if __name__ == "__main__":
    main()
