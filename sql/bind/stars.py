"""Bind `*` without some columns, and ORDER BY ALL."""

from collections.abc import Sequence

import msgspec

from foreshore.errors import DuplicateColumn, UndefinedColumn
from foreshore.sql import ast


def check_star(star: ast.Star, names: Sequence[str]) -> dict[str, ast.Expression]:
    """Return the expressions of REPLACE by name; raises an error for a name that is no column."""
    found: dict[str, ast.Expression] = {}
    named = (*star.excluded, *((name, at) for name, _, at in star.replaced))
    for place, (name, at) in enumerate(named):
        if name not in names:
            raise UndefinedColumn(f'column "{name}" does not exist', position=at + 1)
        if name in dict(named[:place]):
            raise DuplicateColumn(f'column "{name}" specified more than once', position=at + 1)
    for name, value, _ in star.replaced:
        found[name] = value
    return found


def order_of_all(order_by: Sequence[ast.SortKey], count: int) -> tuple[ast.SortKey, ...]:
    """Return sort keys with those of each output column in place of ALL."""
    keys: list[ast.SortKey] = []
    for key in order_by:
        if not (isinstance(key.expr, ast.Star) and not key.expr.qualifier):
            keys.append(key)
            continue
        numbers = (ast.Number(str(place), key.at) for place in range(1, count + 1))
        keys += [msgspec.structs.replace(key, expr=number) for number in numbers]
    return tuple(keys)
