"""Syntax of statements about connections."""

from foreshore.sql.ast.expressions import Syntax
from foreshore.sql.ast.query import TableRef


class ConnectionOption(Syntax):
    """An option in words: its value as text, secret or connection; none: it is to be removed."""

    name: str
    text: str | None
    secret: TableRef | None
    at: int
    connection: TableRef | None = None


class CreateConnectionStatement(Syntax):
    """CREATE CONNECTION [IF NOT EXISTS] name TO kind (option, ...) [WITH (VALIDATE)]."""

    name: TableRef
    kind: str
    options: tuple[ConnectionOption, ...]
    if_not_exists: bool
    at: int
    validate: bool = False


class AlterConnectionStatement(Syntax):
    """ALTER CONNECTION name SET (option, ...), DROP (option, ...), or ROTATE KEYS."""

    name: TableRef
    options: tuple[ConnectionOption, ...]
    if_exists: bool
    rotate: bool = False  # ROTATE KEYS, without options
    validate: bool = False  # WITH (VALIDATE)
