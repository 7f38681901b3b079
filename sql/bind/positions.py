"""The positions that PostgreSQL reports for expressions."""

from typing import TYPE_CHECKING

from foreshore.sql import ast

if TYPE_CHECKING:
    pass


def at_of(expr: ast.Expression) -> int:
    """Return the position that PostgreSQL reports for an expression: its leftmost token."""
    while True:
        match expr:
            case ast.Operation(left=left) if left is not None:
                expr = left
            case ast.Is(arg=arg) | ast.InList(arg=arg) | ast.InQuery(arg=arg):
                expr = arg
            case ast.Between(arg=arg) | ast.Subscript(arg=arg) | ast.Collate(arg=arg):
                expr = arg
            case ast.Like(left=left) | ast.IsDistinct(left=left) | ast.Quantified(left=left):
                expr = left
            case ast.Connective(args=args):
                expr = args[0]
            case ast.CastTo(arg=arg, at=at) if at_plain(arg) < at:
                expr = arg
            case _:
                return expr.at


def at_plain(expr: ast.Expression) -> int:
    """Return the offset of the expression's own token."""
    return expr.at
