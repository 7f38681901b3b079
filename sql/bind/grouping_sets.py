"""GROUP BY with ROLLUP, CUBE and GROUPING SETS: the sets of keys that it denotes.

    GROUP BY a, ROLLUP (b, c)    =    GROUPING SETS ((a, b, c), (a, b), (a))

Each element of GROUP BY is a list of sets; the clause is their product. `Grouping` groups the rows
once for each set, so a maintained view has one reduction per set, over shared rows.
"""

from collections.abc import Callable, Sequence
from itertools import combinations

from foreshore.errors import StatementTooComplex, TooManyColumns
from foreshore.expr.ir import Node, Scalar
from foreshore.sql import ast
from foreshore.types import INT4, SqlType

MAX_SETS = 4096
MAX_CUBE = 12
Key = Callable[[ast.Expression], Scalar]
Element = ast.Expression | ast.GroupingSets


class GroupingRef(Node, frozen=True, cache_hash=True):
    """GROUPING(args) of the query whose aggregates have number `owner`; only during binding."""

    owner: int
    args: tuple[Scalar, ...]
    at: int
    type: SqlType = INT4
    nullable: bool = False


def expand(elements: Sequence[Element], key: Key, *, distinct: bool) -> list[tuple[Scalar, ...]]:
    """Return the grouping sets of GROUP BY, each as its keys; `key` binds an expression."""
    sets: list[list[Scalar]] = [[]]
    for element in elements:
        own = _sets_of(element, key)
        if len(sets) * len(own) > MAX_SETS:
            raise _too_many()
        if len(own) == 1:
            for each in sets:
                each += own[0]
        else:
            sets = [[*left, *right] for left in sets for right in own]
    found = [tuple(dict.fromkeys(each)) for each in sets]
    if distinct:
        return list({frozenset(each): each for each in reversed(found)}.values())[::-1]
    return found


def _sets_of(element: Element, key: Key) -> list[tuple[Scalar, ...]]:
    if not isinstance(element, ast.GroupingSets):
        return [_part(element, key)]
    if element.kind == "sets":
        if not element.elements:
            return [()]
        sets = [each for part in element.elements for each in _sets_of(part, key)]
        if len(sets) > MAX_SETS:
            raise _too_many()
        return sets
    parts = [_part(part, key) for part in element.elements]
    if element.kind == "rollup":
        return [_joined(parts[:count]) for count in range(len(parts), -1, -1)]
    if len(parts) > MAX_CUBE:
        raise TooManyColumns(f"CUBE is limited to {MAX_CUBE} elements", position=element.at + 1)
    return [
        _joined(chosen)
        for count in range(len(parts), -1, -1)
        for chosen in combinations(parts, count)
    ]


def _part(element: Element, key: Key) -> tuple[Scalar, ...]:
    """Return the keys of an expression: several of `(a, b)`."""
    assert not isinstance(element, ast.GroupingSets)
    if isinstance(element, ast.Row) and not element.named:
        return tuple(map(key, element.items))
    return (key(element),)


def _joined(parts: Sequence[tuple[Scalar, ...]]) -> tuple[Scalar, ...]:
    return tuple(scalar for part in parts for scalar in part)


def _too_many() -> StatementTooComplex:
    return StatementTooComplex(f"too many grouping sets present (maximum {MAX_SETS})")
