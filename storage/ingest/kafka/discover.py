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
    """Return the output of a source, whose topic must exist.

    Raises DatabaseError, also if a schema cannot be had.
    """
    await asyncio.to_thread(_look_for, spec.topic, accesses[spec.connection])
    is_text = isinstance(spec.value, TextFormat)
    asked = Asked(
        f"{spec.topic}-value", "text" if is_text else "data", is_change=spec.envelope == "debezium"
    )
    value = await resolved(spec.value, asked, accesses, spec.columns)
    key = None
    if spec.key is not None:
        of_key = Asked(f"{spec.topic}-key", spec.key_name or "key")
        key = await resolved(spec.key, of_key, accesses)
    return {OWN_ROWS: laid_out(spec, value, key)}


def _look_for(topic: str, access: Access) -> None:
    client = Client(access)
    try:
        client.topic(topic)
    finally:
        client.close()
