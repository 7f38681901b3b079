"""Syntax of statements about sinks."""

from typing import Literal as OneOf
from typing import TypeAlias

from foreshore.sql.ast.changes import AsOf
from foreshore.sql.ast.expressions import Expression, Syntax
from foreshore.sql.ast.query import TableRef
from foreshore.sql.ast.sources import FormatSyntax, IcebergSyntax, SourceOption

SinkEnvelope: TypeAlias = OneOf["upsert", "debezium", "append"]


class PostgresTargetSyntax(Syntax):
    """POSTGRES CONNECTION name (option, ...)."""

    connection: TableRef
    options: tuple[SourceOption, ...]
    at: int


class PlaceTargetSyntax(Syntax):
    """DELTA (option, ...) or FILES (option, ...)."""

    kind: OneOf["delta", "files"]
    options: tuple[SourceOption, ...]
    at: int


class PartitionBySyntax(Syntax):
    """PARTITION BY expression, and its text."""

    expression: Expression
    text: str
    at: int  # where the text begins


class KafkaTargetSyntax(Syntax):
    """KAFKA CONNECTION name (option, ...)."""

    connection: TableRef
    options: tuple[SourceOption, ...]
    partition_by: PartitionBySyntax | None
    at: int


class SinkHeaderSyntax(Syntax):
    """HEADER 'name' = 'value' or HEADER 'name' = SECRET name."""

    name: str
    value: str
    secret: TableRef | None
    at: int


class WebhookTargetSyntax(Syntax):
    """WEBHOOK (option, ...)."""

    options: tuple[SourceOption, ...]
    headers: tuple[SinkHeaderSyntax, ...]
    secret: TableRef | None
    at: int


class PythonTargetSyntax(Syntax):
    """PYTHON 'module:name' (argument value, ...)."""

    function: str
    options: tuple[SourceOption, ...]
    at: int


TargetSyntax: TypeAlias = (
    PostgresTargetSyntax
    | PlaceTargetSyntax
    | KafkaTargetSyntax
    | WebhookTargetSyntax
    | PythonTargetSyntax
    | IcebergSyntax
)


class SinkKey(Syntax):
    """KEY (column, ...) [NOT ENFORCED]."""

    columns: tuple[str, ...]
    enforced: bool
    at: int


class SinkMessagesSyntax(Syntax):
    """[HEADERS column] FORMAT format, or KEY FORMAT format VALUE FORMAT format."""

    headers: str | None
    key: FormatSyntax | None
    value: FormatSyntax | None
    at: int


class WaitForSinksStatement(Syntax):
    """WAIT FOR SINKS name, ... or WAIT FOR ALL SINKS."""

    sinks: tuple[TableRef, ...] | None  # None: all
    as_of: AsOf | None


class CreateSinkStatement(Syntax):
    """CREATE SINK."""

    name: TableRef
    cluster: str | None
    relation: TableRef
    target: TargetSyntax
    key: SinkKey | None
    messages: SinkMessagesSyntax | None
    envelope: SinkEnvelope | None
    options: tuple[SourceOption, ...]
    if_not_exists: bool
    at: int
