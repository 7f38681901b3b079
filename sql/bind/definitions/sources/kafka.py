"""Bind KAFKA CONNECTION."""

from collections.abc import Mapping, Sequence

from foreshore.errors import InvalidParameterValue
from foreshore.sources.formats import CsvFormat, Format, JsonFormat, RegexFormat
from foreshore.sources.kafka import Include, KafkaSource, Messages
from foreshore.sources.outputs import Column
from foreshore.sources.regex import group_names
from foreshore.sql import ast
from foreshore.sql.bind.connection import bind_connection
from foreshore.sql.bind.definitions.sources.declared import declared_columns
from foreshore.sql.bind.definitions.sources.formats import bind_format
from foreshore.sql.bind.definitions.sources.options import (
    OptionValue,
    Parse,
    count,
    milliseconds,
    parsed_options,
    text,
)
from foreshore.sql.bind.planning import Planning, located

LONGEST_BATCH_MS = 10_000
LONGEST_TOPIC = 249  # characters, by the rules of Kafka
_TOPIC_CHARACTERS = frozenset("._-")


def bind_kafka(
    planning: Planning, reads: ast.KafkaSyntax, declared: Sequence[ast.ColumnDefinition]
) -> KafkaSource:
    """Return which topic is read, and how its messages become rows."""
    connection = bind_connection(planning, reads.connection, "kafka")
    options = parsed_options("KAFKA CONNECTION", reads.options, _OPTIONS)
    with located(reads.at):
        if "topic" not in options:
            raise InvalidParameterValue('KAFKA CONNECTION needs the option "topic"')
        if "start_offsets" in options and "start_timestamp" in options:
            raise InvalidParameterValue("START OFFSET and START TIMESTAMP exclude each other")
    return KafkaSource(
        connection, messages=bind_messages(planning, reads.messages, declared), **options
    )


def bind_messages(
    planning: Planning, reads: ast.MessagesSyntax, declared: Sequence[ast.ColumnDefinition]
) -> Messages | None:
    """Return how messages become rows; None if nothing is said about it."""
    if not reads.is_given and not declared:
        return None
    if reads.value_format is None:
        raise InvalidParameterValue(
            "messages of Kafka need a format",
            hint="Add FORMAT JSON, for instance.",
            position=reads.at + 1,
        )
    value = bind_format(planning, reads.value_format)
    shown = next((each for each in reads.includes if each.what == "key"), None)
    is_keyed = reads.envelope != "none"
    key = None
    if reads.key_format is not None:
        key = bind_format(planning, reads.key_format, of="key")
    elif is_keyed or shown is not None:
        key = bind_format(planning, reads.value_format, of="key")
    return Messages(
        value,
        key=key if is_keyed or shown is not None else None,
        columns=_declared(planning, value, declared),
        includes=_includes(reads.includes),
        shows_key=is_keyed or shown is not None,
        key_name=None if shown is None else shown.name,
        envelope=reads.envelope,  # type: ignore[arg-type]
        errors_column=reads.errors_column,
    )


def _declared(
    planning: Planning, value: Format, declared: Sequence[ast.ColumnDefinition]
) -> tuple[Column, ...]:
    """Return the declared columns, which not every format can have."""
    if not declared:
        return ()
    with located(declared[0].at):
        match value:
            case JsonFormat():
                has = len(declared)
            case CsvFormat(columns=columns):
                has = len(columns)
            case RegexFormat(pattern=pattern):
                has = len(group_names(pattern))
            case _:
                raise InvalidParameterValue("the format has columns of its own")
        if has != len(declared):
            raise InvalidParameterValue(
                f"{len(declared)} columns are declared, and the format has {has}"
            )
    return declared_columns(planning, declared)


def _includes(includes: Sequence[ast.IncludeSyntax]) -> tuple[Include, ...]:
    return tuple(
        Include(each.what, each.name or each.header or each.what, each.header or "", each.is_bytes)  # type: ignore[arg-type]
        for each in includes
        if each.what != "key"
    )


# --- options -----------------------------------------------------------------------------------


def topic_name(name: str, value: OptionValue) -> str:
    """Return the name of a topic, by the rules of Kafka."""
    found = text(name, value)
    is_plain = all(
        (each.isascii() and each.isalnum()) or each in _TOPIC_CHARACTERS for each in found
    )
    if not is_plain or len(found) > LONGEST_TOPIC or found in (".", ".."):
        raise InvalidParameterValue(
            f'"{found}" cannot be the name of a topic',
            hint=f"Use up to {LONGEST_TOPIC} ASCII letters, digits, '.', '_' and '-'.",
        )
    return found


def _offsets(name: str, value: OptionValue) -> tuple[int, ...]:
    return tuple(
        _signed(name, each) for each in ((value,) if isinstance(value, str) else value or ())
    )


def _signed(name: str, value: OptionValue) -> int:
    """Return a number that may be negative."""
    if isinstance(value, str) and value.startswith("-"):
        return -count(name, value.removeprefix("-"))
    return count(name, value)


def _timestamp(name: str, value: OptionValue) -> int:
    found = _signed(name, value)
    if found > 253_402_300_799_999:
        raise InvalidParameterValue(f'option "{name}" must be milliseconds since 1970')
    return found


def batch_interval(name: str, value: OptionValue) -> int:
    """Return the milliseconds for which messages are gathered."""
    found = milliseconds(name, value)
    if found > LONGEST_BATCH_MS:
        raise InvalidParameterValue(f'option "{name}" must be at most {LONGEST_BATCH_MS} ms')
    return found


_OPTIONS: Mapping[str, tuple[str, Parse]] = {
    "topic": ("topic", topic_name),
    "start offset": ("start_offsets", _offsets),
    "start timestamp": ("start_timestamp", _timestamp),
    "group id prefix": ("group_prefix", text),
    "timestamp interval": ("batch_ms", batch_interval),
}
