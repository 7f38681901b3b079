"""The names of an item of FROM that is derived from another item, as TUMBLE and AUTO_CDC are."""

from collections.abc import Sequence
from dataclasses import replace

from foreshore.errors import InvalidColumnReference
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Relation
from foreshore.sql.bind.bound_item import BoundItem
from foreshore.sql.bind.scope import Slot, Table


def derived_item(
    part: BoundItem,
    relation: Relation,
    slots: Sequence[Slot],
    alias: str | None,
    columns: Sequence[str],
) -> BoundItem:
    """Return `relation`, derived from one table or query, under an alias that may name columns.

    Without an alias it has the name of what it is derived from.
    """
    if len(columns) > len(slots):
        raise InvalidColumnReference(
            f'table "{alias}" has {len(slots)} columns available '
            f"but {len(columns)} columns specified"
        )
    named = [replace(slot, name=name) for slot, name in zip(slots, columns, strict=False)]
    visible = [*named, *slots[len(columns) :]]
    (table,) = part.tables
    name, schema = (table.alias, table.schema) if alias is None else (alias, None)
    known = Table(name, schema, tuple(visible), unnamed=table.unnamed and alias is None)
    return BoundItem(relation, list(columns_of(relation)), [known], visible, origins=part.origins)
