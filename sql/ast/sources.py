"""Syntax of statements about sources."""

from typing import Literal as OneOf
from typing import TypeAlias

from foreshore.sql.ast.definitions import ColumnDefinition
from foreshore.sql.ast.expressions import Syntax
from foreshore.sql.ast.query import TableRef
from foreshore.sql.ast.watermarks import WatermarkDefinition


class SourceOption(Syntax):
    """An option in words, and its value as text, or as a list of names; None if it has none."""

    name: str
    value: str | tuple[str, ...] | None
    at: int


class GeneratorSyntax(Syntax):
    """LOAD GENERATOR name [(option, ...)]."""

    generator: str
    options: tuple[SourceOption, ...]
    at: int


class PostgresSyntax(Syntax):
    """POSTGRES CONNECTION name (option, ...)."""

    connection: TableRef
    options: tuple[SourceOption, ...]
    at: int


class StrategySyntax(Syntax):
    """KEY STRATEGY or VALUE STRATEGY: the id or the text of a schema, None for the newest."""

    of: str
    pinned: int | str | None
    at: int


class DocSyntax(Syntax):
    """[KEY | VALUE] DOC ON {TYPE relation | COLUMN relation.column}: a text of an Avro schema."""

    of: str  # empty: both
    relation: tuple[str, ...]
    column: str | None
    text: str
    at: int


class FormatSyntax(Syntax):
    """FORMAT name with what it needs: a registry's connection, or a schema, or columns."""

    name: str
    at: int
    registry: TableRef | None = None
    schema: str | None = None  # or the expression of REGEX
    message: str | None = None
    columns: int | tuple[str, ...] = 0  # of CSV: their number, or their names
    options: tuple[SourceOption, ...] = ()
    strategies: tuple[StrategySyntax, ...] = ()
    glue: bool = False  # whether the registry is one of AWS Glue
    docs: tuple[DocSyntax, ...] = ()


class IncludeSyntax(Syntax):
    """INCLUDE what ['header'] [AS name] [BYTES]."""

    what: str
    header: str | None
    name: str | None
    is_bytes: bool
    at: int


class MessagesSyntax(Syntax):
    """Formats, INCLUDE and ENVELOPE: how messages become rows.

    `value_format` is that of FORMAT too, which may hold for the key as well.
    """

    key_format: FormatSyntax | None
    value_format: FormatSyntax | None
    includes: tuple[IncludeSyntax, ...]
    envelope: str
    errors_column: str | None
    at: int

    @property
    def is_given(self) -> bool:
        """Return whether anything of it was written."""
        return self.value_format is not None or bool(self.includes) or self.envelope != "none"


class KafkaSyntax(Syntax):
    """KAFKA CONNECTION name (option, ...), and how messages become rows."""

    connection: TableRef
    options: tuple[SourceOption, ...]
    messages: MessagesSyntax
    at: int


class HeaderSyntax(Syntax):
    """INCLUDE HEADER 'name' AS column [BYTES]."""

    header: str
    column: str
    as_bytes: bool


class CheckInputSyntax(Syntax):
    """BODY, HEADERS or SECRET name, [AS column] [BYTES]; `secret` is None for the others."""

    what: str
    secret: TableRef | None
    column: str | None
    as_bytes: bool


class WebhookSyntax(Syntax):
    """WEBHOOK BODY FORMAT ...; `check` is the text of its condition."""

    body: str
    headers: tuple[HeaderSyntax, ...]
    all_headers: bool
    without_headers: tuple[str, ...]
    check: str
    inputs: tuple[CheckInputSyntax, ...]
    at: int


class FilesSyntax(Syntax):
    """FILES 'url' [USING AWS CONNECTION name] (option, ...)."""

    url: str
    connection: TableRef | None
    options: tuple[SourceOption, ...]
    at: int


class OverSyntax(Syntax):
    """OVER relation (option, ...)."""

    relation: TableRef
    options: tuple[SourceOption, ...]


class PythonSyntax(Syntax):
    """PYTHON 'module:function' (argument value, ...) [OVER relation (option, ...)]."""

    function: str
    options: tuple[SourceOption, ...]
    over: OverSyntax | None
    at: int


class IcebergSyntax(Syntax):
    """ICEBERG CATALOG CONNECTION name (option, ...) [USING AWS CONNECTION name]."""

    connection: TableRef
    options: tuple[SourceOption, ...]
    aws: TableRef | None
    at: int


ReadsSyntax: TypeAlias = (
    GeneratorSyntax
    | PostgresSyntax
    | KafkaSyntax
    | WebhookSyntax
    | FilesSyntax
    | PythonSyntax
    | IcebergSyntax
)


class FedTable(Syntax):
    """A table of the source, `reference`, and the relation to be made for it."""

    reference: str
    name: TableRef | None


class FedTables(Syntax):
    """FOR ALL TABLES, FOR SCHEMAS (name, ...) or FOR TABLES (reference [AS name], ...)."""

    every: bool
    schemas: tuple[str, ...] = ()
    tables: tuple[FedTable, ...] = ()


class CreateSourceStatement(Syntax):
    """CREATE SOURCE; `tables` is None without FOR."""

    name: TableRef
    cluster: str | None
    reads: ReadsSyntax
    tables: FedTables | None
    progress: TableRef | None
    if_not_exists: bool
    at: int
    columns: tuple[ColumnDefinition, ...] = ()  # that were declared
    watermark: WatermarkDefinition | None = None


class CreateSourceTableStatement(Syntax):
    """CREATE TABLE name [(column, ...)] FROM SOURCE source (REFERENCE r) [format] [WITH (options)].

    `columns` are names alone, and `declared` columns with types.
    """

    name: TableRef
    columns: tuple[str, ...] | None
    declared: tuple[ColumnDefinition, ...]
    source: TableRef
    reference: str
    messages: MessagesSyntax
    if_not_exists: bool
    watermark: WatermarkDefinition | None = None
    options: tuple[SourceOption, ...] = ()


class AddSourceTablesStatement(Syntax):
    """ALTER SOURCE source ADD TABLE reference [AS name], ..."""

    source: TableRef
    tables: tuple[FedTable, ...]
    if_exists: bool


class DropSourceTablesStatement(Syntax):
    """ALTER SOURCE source DROP TABLE name, ..."""

    source: TableRef
    names: tuple[TableRef, ...]
    tables_may_lack: bool
    cascade: bool
    if_exists: bool


class RefreshSourceTablesStatement(Syntax):
    """ALTER SOURCE source REFRESH TABLE name, ..."""

    source: TableRef
    names: tuple[TableRef, ...]
    if_exists: bool


class ValidateConnectionStatement(Syntax):
    """VALIDATE CONNECTION name [(PUBLICATION text)]."""

    name: TableRef
    publication: str | None = None


class AlterOptionsStatement(Syntax):
    """ALTER SOURCE or ALTER SINK name SET or RESET (option, ...), of a sink also RESUME."""

    kind: OneOf["source", "sink"]
    name: TableRef
    options: tuple[SourceOption, ...]
    resets: bool  # whether the options get their defaults
    if_exists: bool
    resumes: bool = False


class SetSinkFromStatement(Syntax):
    """ALTER SINK name SET FROM relation."""

    name: TableRef
    relation: TableRef
    if_exists: bool
