"""Parse what ALTER TABLE says of PostgreSQL's storage and replication, which has no effect here.

Migrations and restores of dumps set fill factors, statistics and the like; they change no answer.
"""

import re

from foreshore.errors import InvalidParameterValue
from foreshore.sql import ast
from foreshore.sql.parse.relation_options import RelationOptionParser

_OF_TABLES = re.compile(
    r"fillfactor|parallel_workers|toast_tuple_target|user_catalog_table|vacuum_\w++"
    r"|autovacuum_\w++|log_autovacuum_min_duration"
)
_OF_COLUMNS = re.compile(r"n_distinct(_inherited)?")
_IDENTITIES = ("default", "full", "nothing")


def table_tuning(parser: RelationOptionParser) -> ast.WithoutEffect | None:
    """Parse SET (...), RESET (...), CLUSTER ON, REPLICA IDENTITY; None for another action."""
    if _options(parser, _OF_TABLES):
        return ast.WithoutEffect()
    if parser.accept("cluster", "on"):
        return ast.WithoutEffect(index=parser.name())
    if parser.accept("set", "without", "cluster"):
        return ast.WithoutEffect()
    if parser.accept("replica", "identity"):
        if parser.accept("using", "index"):
            return ast.WithoutEffect(index=parser.name())
        if not any(map(parser.accept, _IDENTITIES)):
            parser.fail()
        return ast.WithoutEffect()
    return None


def column_tuning(parser: RelationOptionParser, column: str) -> ast.WithoutEffect | None:
    """Parse SET STATISTICS, STORAGE, COMPRESSION, (...) of a column; None for another action."""
    if parser.accept("set", "statistics"):
        parser.accept_symbol("-")
        parser.advance()
    elif parser.accept("set", "storage") or parser.accept("set", "compression"):
        parser.label()
    elif not _options(parser, _OF_COLUMNS):
        return None
    return ast.WithoutEffect(column=column)


def _options(parser: RelationOptionParser, known: re.Pattern[str]) -> bool:
    """Parse `SET (name = value, ...)` or `RESET (name, ...)`, if it is there."""
    if not (parser.at_word("set", "reset") and parser.peek(1).value == "("):
        return False

    def option() -> None:
        name = parser.label()
        if parser.accept_symbol("."):  # of the TOAST table
            name = parser.label()
        if not known.fullmatch(name):
            raise InvalidParameterValue(f'unrecognized parameter "{name}"')
        if parser.accept_symbol("="):
            parser.accept_symbol("-")
            parser.advance()

    parser.advance()
    parser.in_parentheses(option)
    return True
