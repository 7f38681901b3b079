"""Bound items of FROM."""

from dataclasses import dataclass, field

from foreshore.expr.ir import (
    Relation,
)
from foreshore.sql.bind.needs import Origins
from foreshore.sql.bind.order import UNORDERED, RowOrder
from foreshore.sql.bind.scope import Scope, Slot, Table
from foreshore.types import ColumnType


@dataclass
class BoundItem:
    """A bound item of FROM: a relation and the names of its columns."""

    relation: Relation
    columns: list[ColumnType]
    tables: list[Table]
    visible: list[Slot]
    order: RowOrder = UNORDERED
    origins: Origins = field(default_factory=dict)


def scope_of(part: BoundItem, parent: Scope | None) -> Scope:
    """Return the scope of the item's columns."""
    return Scope(
        list(part.columns),
        list(part.tables),
        list(part.visible),
        parent,
        order=part.order,
        origins=part.origins,
    )
