"""Table constraints.

`Unique`: no two rows agree in all of its columns. Rows with a NULL there are exempt, unless
`nulls_distinct` is False, which makes NULL equal NULL. `Check`: its condition is not FALSE for any
row. NOT NULL is part of a column's `ColumnType`. A unique index has a `Unique` constraint without a
name of its own.
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
    is_index: bool = False  # from CREATE UNIQUE INDEX


def same(one: Unique, other: Unique) -> bool:
    """Whether two unique constraints are the same apart from their names."""
    return one.columns == other.columns and one.nulls_distinct == other.nulls_distinct


@dataclass(frozen=True, slots=True)
class Check:
    """CHECK of `condition` over the table's columns, written as `text`.

    A check of a column's domain has the `domain`'s name; without a name it is NOT NULL.
    """

    name: str
    condition: Scalar
    text: str
    domain: str = ""


Constraint: TypeAlias = Unique | Check


def is_implied(constraint: Constraint) -> bool:
    """Whether a constraint is that of a column's domain, not of the table itself."""
    return isinstance(constraint, Check) and bool(constraint.domain)
