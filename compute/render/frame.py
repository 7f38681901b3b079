"""A SELECT under construction, and parts of SQL text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from foreshore.expr.columns import columns_of, type_of
from foreshore.expr.equality import has_one_form
from foreshore.expr.ir import Column, Reduce, Relation, Scalar
from foreshore.expr.traversal import walk_scalars
from foreshore.types import SqlType, is_float


@dataclass(frozen=True, slots=True)
class Frame:
    """A SELECT under construction."""

    source: str  # the FROM items; empty for a single row without a table
    columns: tuple[str, ...]
    diff: str
    carry: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    computed: bool = False  # some column is more than a reference


class Render(Protocol):
    """Renders a scalar as SQL."""

    def __call__(self, scalar: Scalar, /) -> str:
        """Return SQL over the current row."""
        ...


def partition_by(by: Sequence[str]) -> str:
    """Return the PARTITION BY of a window, empty for a window over all rows."""
    return f"PARTITION BY {', '.join(by)} " if by else ""


def group_by(forms: Sequence[str]) -> str:
    """Return the GROUP BY of `forms`, empty if there are none."""
    return f" GROUP BY {', '.join(forms)}" if forms else ""


def types_of(relation: Relation) -> list[SqlType]:
    """Return the types of the columns of `relation`."""
    return [column.type for column in columns_of(relation)]


def uses_columns(scalars: Iterable[Scalar]) -> bool:
    """Whether any of `scalars` depends on the row."""
    return any(isinstance(s, Column) for scalar in scalars for s in walk_scalars(scalar))


def is_accumulable(reduce: Reduce) -> bool:
    """Whether maintained sums over a group's entries determine its row."""
    return all(
        aggregate.function in ("count", "sum") and not aggregate.distinct
        for aggregate in reduce.aggregates
    ) and all(has_one_form(type) or is_float(type) for type in map(type_of, reduce.group_key))
