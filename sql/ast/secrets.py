"""Syntax of statements about secrets."""

from foreshore.sql.ast.expressions import Expression, Syntax
from foreshore.sql.ast.query import TableRef


class CreateSecretStatement(Syntax):
    """CREATE SECRET [IF NOT EXISTS] name AS value."""

    name: TableRef
    value: Expression
    if_not_exists: bool


class AlterSecretStatement(Syntax):
    """ALTER SECRET [IF EXISTS] name AS value."""

    name: TableRef
    value: Expression
    if_exists: bool
