"""Syntax of statements about sources."""

from foreshore.sql.ast.expressions import Syntax
from foreshore.sql.ast.query import TableRef


class SourceOption(Syntax):
    """An option in words, and its value as text; None if it has none."""

    name: str
    value: str | None
    at: int


class GeneratorSyntax(Syntax):
    """LOAD GENERATOR name [(option, ...)]."""

    generator: str
    options: tuple[SourceOption, ...]
    at: int


class FedTable(Syntax):
    """A table of the source, `reference`, and the relation to be made for it."""

    reference: str
    name: TableRef | None


class CreateSourceStatement(Syntax):
    """CREATE SOURCE; `tables` is None without FOR, and empty for FOR ALL TABLES."""

    name: TableRef
    cluster: str | None
    reads: GeneratorSyntax
    tables: tuple[FedTable, ...] | None
    progress: TableRef | None
    if_not_exists: bool
    at: int


class CreateFedTableStatement(Syntax):
    """CREATE SUBSOURCE name OF SOURCE source (REFERENCE = text): the kept form of a part."""

    name: TableRef
    source: TableRef
    reference: str
