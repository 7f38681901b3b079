"""A topic of Kafka: its messages as rows."""

from typing import Literal as OneOf

import msgspec

from foreshore.sources.formats import Format
from foreshore.sources.outputs import Column


class Include(msgspec.Struct, frozen=True):
    """A column with something of a message beside its value, and its name.

    `header` is the name of one header.
    """

    what: OneOf["partition", "offset", "timestamp", "headers", "header"]
    name: str
    header: str = ""
    is_bytes: bool = False  # whether the header's value is bytes and not text


class Messages(msgspec.Struct, frozen=True):
    """How the messages of a topic become rows."""

    value: Format
    key: Format | None = None  # without it keys are not read
    columns: tuple[Column, ...] = ()  # of the value, if they were declared
    includes: tuple[Include, ...] = ()
    shows_key: bool = False  # whether the key has columns
    key_name: str | None = None  # of the only column of the key
    envelope: OneOf["none", "upsert", "debezium"] = "none"
    errors_column: str | None = None  # has why a value could not be decoded


class KafkaSource(msgspec.Struct, frozen=True, tag="kafka"):
    """A topic. Its messages are the source's own rows, or those of tables as these say.

    The source's rows and each table have a position of their own: a part is a partition, and the
    next offset of it to be read.
    """

    connection: str  # its id
    topic: str
    messages: Messages | None = None  # as rows of its own; None if it has none
    start_offsets: tuple[int, ...] = ()  # of the first partitions; -n: n messages before the end
    start_timestamp: int | None = None  # milliseconds; -n: n before the source is created
    group_prefix: str = ""
    batch_ms: int = 100  # for how long messages are gathered
