"""The columns of a topic's rows."""

import asyncio

from foreshore.sources.formats import TextFormat
from foreshore.sources.kafka import KafkaSource
from foreshore.sources.outputs import OWN_ROWS, Output
from foreshore.storage.external.access import Access, Accesses
from foreshore.storage.external.kafka import Client
from foreshore.storage.ingest.formats.schemas import Asked, resolved
from foreshore.storage.ingest.kafka.layout import laid_out


async def outputs_of(spec: KafkaSource, accesses: Accesses) -> dict[str, Output]:
    """Return the rows of a source, if it has any; its topic must exist.

    Raises DatabaseError, also if a schema cannot be had.
    """
    topic_id = await asyncio.to_thread(_look_for, spec.topic, accesses[spec.connection])
    messages = spec.messages
    if messages is None:
        return {}
    is_text = isinstance(messages.value, TextFormat)
    is_change = messages.envelope == "debezium"
    asked = Asked(spec.topic, "value", "text" if is_text else "data", is_change=is_change)
    value = await resolved(messages.value, asked, accesses, messages.columns)
    key = None
    if messages.key is not None:
        of_key = Asked(spec.topic, "key", messages.key_name or "key")
        key = await resolved(messages.key, of_key, accesses)
    return {OWN_ROWS: laid_out(messages, value, key, topic_id)}


def _look_for(topic: str, access: Access) -> str | None:
    """Return the id of a topic, if it has one; raises if it does not exist."""
    client = Client(access)
    try:
        client.topic(topic)
        return client.topic_id(topic)
    finally:
        client.close()
