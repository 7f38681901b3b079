"""A mock cluster of Kafka brokers in this process, on ports of the system's choosing."""

from collections.abc import Iterable

from confluent_kafka import Producer


class MockKafka:
    """Brokers of librdkafka's mock cluster, and a producer for them.

    A topic is made when it is first written to.
    """

    def __init__(self, *, partitions: int = 4, **options: str) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": "replaced",
                "test.mock.num.brokers": 1,
                "log_level": 1,
                "linger.ms": 5,
                "compression.type": "zstd",  # the brokers keep 5 MB of a partition, compressed
                **options,
            }
        )
        brokers = self.producer.list_topics(timeout=10).brokers.values()
        self.address = ",".join(f"{each.host}:{each.port}" for each in brokers)

    def write(
        self,
        topic: str,
        messages: Iterable[tuple[bytes | None, bytes | None]],
        *,
        partition: int | None = None,
        headers: list[tuple[str, bytes | None]] | None = None,
        timestamp: int = 0,
    ) -> None:
        """Write keys and values, and wait until they are there."""
        more: dict[str, int] = {} if partition is None else {"partition": partition}
        failed: list[object] = []

        def told(error: object, _: object) -> None:
            if error is not None:
                failed.append(error)

        for number, (key, value) in enumerate(messages):
            self.producer.produce(
                topic, value, key, headers=headers, timestamp=timestamp, on_delivery=told, **more
            )
            if number % 10_000 == 0:
                self.producer.poll(0)
        assert self.producer.flush(30) == 0
        assert not failed, failed[0]
