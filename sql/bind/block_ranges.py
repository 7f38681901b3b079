"""Ranges of ctid, by which clients split the reading of a table, such as block 0 to block 9.

A row here has no place in a file. A table is as if it had one block, number 0, so a range of whole
blocks has all of its rows or none, and ranges that cover all blocks read each row once. A range
that begins or ends within block 0, and any other use of ctid, is refused.
"""

import re
from typing import TYPE_CHECKING

from foreshore.errors import UndefinedColumn
from foreshore.expr.ir import FALSE, TRUE, Scalar
from foreshore.sql import ast
from foreshore.sql.bind.columns import table_of_system_column
from foreshore.sql.bind.scope import resolve_column

if TYPE_CHECKING:
    from foreshore.sql.bind.binder import Binder

_PLACE = re.compile(r"\s*\(\s*(\d{1,10})\s*,\s*(\d{1,5})\s*\)\s*\Z", re.ASCII)
_FIRST, _LAST = (0, 1), (0, 65_535)  # the places that a row of the block may have
_SWAPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def bind_block_between(binder: "Binder", expr: ast.Between) -> Scalar | None:
    """Return whether the rows of a table are within a range of ctid; None if it is none."""
    if not _is_ctid(binder, expr.arg) or expr.symmetric:
        return None
    parts = [_holds(">=", expr.low), _holds("<=", expr.high)]
    if False not in parts and None in parts:
        return None
    return TRUE if (False not in parts) != expr.negated else FALSE


def bind_block_comparison(binder: "Binder", expr: ast.Operation) -> Scalar | None:
    """Return whether the rows of a table are on one side of a ctid; None if it is none."""
    if expr.operator not in _SWAPPED or expr.left is None:
        return None
    if _is_ctid(binder, expr.left):
        holds = _holds(expr.operator, expr.right)
    elif _is_ctid(binder, expr.right):
        holds = _holds(_SWAPPED[expr.operator], expr.left)
    else:
        return None
    return None if holds is None else TRUE if holds else FALSE


def _is_ctid(binder: "Binder", expr: ast.Expression) -> bool:
    """Whether this is the system column, and not one of a table's own or NULL of an outer join."""
    if not isinstance(expr, ast.ColumnRef) or expr.parts[-1] != "ctid":
        return False
    try:
        resolve_column(binder.scope, expr.parts, expr.at)
    except UndefinedColumn:
        return not table_of_system_column(binder, expr.parts, expr.at)[0].outer
    return False


def _holds(operator: str, expr: ast.Expression) -> bool | None:
    """Return whether all rows are on this side of a place, or none is; None: it is not known."""
    if isinstance(expr, ast.CastTo) and expr.type.name[-1] == "tid" and not expr.type.dimensions:
        expr = expr.arg
    found = _PLACE.match(expr.value) if isinstance(expr, ast.String) else None
    if found is None:
        return None
    place = int(found[1]), int(found[2])
    ends = [_compare(operator, end, place) for end in (_FIRST, _LAST)]
    return ends[0] if ends[0] == ends[1] else None


def _compare(operator: str, row: tuple[int, int], place: tuple[int, int]) -> bool:
    match operator:
        case "<":
            return row < place
        case "<=":
            return row <= place
        case ">":
            return row > place
        case _:
            return row >= place
