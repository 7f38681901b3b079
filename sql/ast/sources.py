"""Syntax of statements about sources."""

from typing import TypeAlias

from foreshore.sql.ast.expressions import Syntax
from foreshore.sql.ast.query import TableRef


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


ReadsSyntax: TypeAlias = GeneratorSyntax | PostgresSyntax


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


class CreateSourceTableStatement(Syntax):
    """CREATE TABLE name [(column, ...)] FROM SOURCE source (REFERENCE reference)."""

    name: TableRef
    columns: tuple[str, ...] | None
    source: TableRef
    reference: str
    if_not_exists: bool


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


class ValidateConnectionStatement(Syntax):
    """VALIDATE CONNECTION name."""

    name: TableRef
