"""Kafka as a kind of target: what is needed there before a sink writes."""

import asyncio

from foreshore.storage.export.exporter import Exporter
from foreshore.storage.export.kafka import progress
from foreshore.storage.export.kafka.exporter import KafkaExporter, access_of, producer_of
from foreshore.storage.export.kafka.layout import laid_out, target_of
from foreshore.storage.export.kafka.topics import Topics
from foreshore.storage.export.messages import Export


class KafkaSinkKind:
    """Topics of Kafka."""

    def exporter(self, export: Export) -> Exporter:
        """Return a new exporter."""
        return KafkaExporter(export)

    async def check(self, export: Export) -> None:
        """Make the topics if they are not there; raises if they must not be written."""
        await asyncio.to_thread(_make_topics, export)
        await laid_out(export)

    async def dispose(self, export: Export) -> None:
        """Remove the sink's frontier; the topic stays."""
        await asyncio.to_thread(_forget, export)


def _make_topics(export: Export) -> None:
    target, access = target_of(export), access_of(export)
    topics = Topics(access)
    topics.make(target.topic, target.partitions, target.replicas, target.settings)
    replicas = progress.replicas_of(access) or target.replicas
    topics.make(progress.topic_of(access), 1, replicas, progress.SETTINGS)
    producer = producer_of(export)
    try:
        producer.begin_after_others()  # may it write transactions?
    finally:
        producer.close()


def _forget(export: Export) -> None:
    producer = producer_of(export)
    try:
        producer.begin_after_others()
        producer.begin()
        topic = progress.topic_of(access_of(export))
        producer.write_to(topic, progress.PARTITION, export.name.encode(), None)
        producer.commit()
    finally:
        producer.close()


KIND = KafkaSinkKind()
