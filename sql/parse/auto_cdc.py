"""The clauses of AUTO_CDC that name columns."""

from foreshore.errors import SyntaxError_
from foreshore.sql import ast


def column_names(columns: tuple[ast.Expression, ...]) -> tuple[tuple[str, int], ...]:
    """Return the names of a list of columns with their offsets; raises for anything else."""
    names: list[tuple[str, int]] = []
    for column in columns:
        if not isinstance(column, ast.ColumnRef) or len(column.parts) != 1:
            raise SyntaxError_("AUTO_CDC takes names of columns here", position=column.at + 1)
        names.append((column.parts[0], column.at))
    return tuple(names)


def sequence_columns(items: tuple[ast.Expression, ...]) -> tuple[ast.Expression, ...]:
    """Return the expressions of SEQUENCE BY: of `a, b`, `(a, b)` or `STRUCT(a, b)`."""
    match items:
        case (ast.Row(items=inner),):
            return inner
        case (ast.FunctionCall(name=("struct",), args=inner),) if inner:
            return tuple(inner)
        case _:
            return items
