"""A topic of Kafka that a sink writes."""

from typing import Literal as OneOf
from typing import TypeAlias

import msgspec

from foreshore.sources.formats import (
    AvroFormat,
    BytesFormat,
    Format,
    JsonFormat,
    TextFormat,
    registries_of,
)

Compression: TypeAlias = OneOf["none", "gzip", "snappy", "lz4", "zstd"]
WRITTEN_FORMATS = (JsonFormat, AvroFormat, TextFormat, BytesFormat)


class KafkaTarget(msgspec.Struct, frozen=True, tag="kafka"):
    """A topic, and how rows become its messages.

    A topic that is not there is made with these partitions, replicas and settings; None: as the
    broker has them by default. The key's columns are those of the sink.
    """

    connection: str  # its id
    topic: str
    value: Format
    key: Format | None = None  # None: messages have no keys
    headers: str | None = None  # the column that has them
    # The text of a number whose remainder is the partition; None: the key's hash chooses it.
    partition_by: str | None = None
    partitions: int | None = None
    replicas: int | None = None
    settings: dict[str, str] = {}
    compression: Compression = "lz4"
    group_prefix: str = ""  # of the consumer that reads the progress topic
    transaction_prefix: str = ""  # of the id of the transactions

    @property
    def registries(self) -> tuple[str, ...]:
        """Return the ids of the connections to schema registries."""
        return registries_of(self.key, self.value)

    def value_columns(self, key: tuple[str, ...], names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the columns of values: all, but of TEXT and BYTES what no other part has."""
        if not isinstance(self.value, TextFormat | BytesFormat) or len(names) == 1:
            return names
        return tuple(each for each in names if each not in key and each != self.headers)
