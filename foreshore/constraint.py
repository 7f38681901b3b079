"""Constraints: what a table promises of its rows.

A `Unique` constraint says that no two rows agree in all of its columns; rows with a NULL there are
left out of it, unless `nulls_distinct` is False, as NULL then equals NULL. A `Check` says that its
condition is not FALSE for any row. That a column is never NULL is said by its `ColumnType`.
A unique index says what a `Unique` constraint says, and is none by name.
"""

from dataclasses import dataclass
from typing import TypeAlias

from foreshore.expr.ir import Scalar


@dataclass(frozen=True, slots=True)
class Unique:
    """UNIQUE, PRIMARY KEY or a unique index over the columns at these positions."""

    name: str
    columns: tuple[int, ...]
    primary: bool = False
    nulls_distinct: bool = True
    is_index: bool = False  # made by CREATE UNIQUE INDEX


def same(one: Unique, other: Unique) -> bool:
    """Whether two unique constraints say the same, whatever they are called."""
    return one.columns == other.columns and one.nulls_distinct == other.nulls_distinct


@dataclass(frozen=True, slots=True)
class Check:
    """CHECK of `condition` over the table's columns, written as `text`."""

    name: str
    condition: Scalar
    text: str


Constraint: TypeAlias = Unique | Check
