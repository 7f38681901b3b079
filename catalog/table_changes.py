"""Changes of ALTER TABLE outside of the table's definition: constraints, indexes, dependents.

A changed table is given by its old and new plans, and by `columns`: the previous position of each
new column, None for an added one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from foreshore.catalog.item import Item
from foreshore.catalog.names import Names
from foreshore.catalog.planned import Planned
from foreshore.catalog.state import State
from foreshore.constraint import Check, Unique, same
from foreshore.errors import DependentObjectsStillExist
from foreshore.expr.split import columns_used
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId

Columns = Sequence[int | None]


@dataclass(frozen=True, slots=True)
class AddedConstraints:
    """The added keys, CHECKs and NOT NULL columns."""

    keys: tuple[Unique, ...]
    checks: tuple[Check, ...]
    required: tuple[int, ...]

    def __bool__(self) -> bool:
        return bool(self.keys or self.checks or self.required)


def added_constraints(
    old: Planned, new: Planned, columns: Columns, *, rewritten: bool, converted: bool = False
) -> AddedConstraints:
    """Return the constraints of `new` that `old` lacks.

    If the table is `rewritten` these are all of its keys, which need new indexes. If columns are
    `converted` to other types, these are all of its constraints.
    """
    known = {each.text for each in old.constraints if isinstance(each, Check)}
    return AddedConstraints(
        tuple(
            key
            for key in new.unique
            if rewritten or not any(same(key, other) for other in old.unique)
        ),
        tuple(
            each
            for each in new.constraints
            if isinstance(each, Check) and (converted or each.text not in known)
        ),
        tuple(
            i
            for i, (column, place) in enumerate(zip(new.desc.columns, columns, strict=True))
            if not column.nullable
            and (converted or place is None or old.desc.columns[place].nullable)
        ),
    )


def check_dropped_constraints(
    names: Names, table: Item, old: Planned, new: Planned, columns: Columns
) -> None:
    """Raise if a maintained view or its index may rely on a constraint that is dropped."""
    kept = [_previous_key(each, columns) for each in new.unique]
    lost = [
        f"constraint {each.name} on {names.describe(table)}"
        for each in old.unique
        if set(each.columns) <= set(columns)  # else it is dropped with its column
        and not any(key is not None and same(each, key) for key in kept)
    ]
    lost += [
        f"NOT NULL of column {old.desc.names[at]} of {names.describe(table)}"
        for at, after in zip(columns, new.desc.columns, strict=True)
        if at is not None and after.nullable and not old.desc.columns[at].nullable
    ]
    relying = [
        f"{names.describe(item)} depends on {lost[0]}"
        for item in (names.state.items_above(table.id) if lost else ())
        if item.type == "materialized view" or (item.on is not None and item.on != table.id)
    ]
    if relying:
        raise DependentObjectsStillExist(
            f"cannot drop {lost[0]} because other objects depend on it",
            detail="\n".join(relying),
            hint="Drop what is maintained over the table first, and create it again.",
        )


def _previous_key(key: Unique, columns: Columns) -> Unique | None:
    """Return a key over the previous columns, None if one of its columns is new."""
    places = tuple(place for i in key.columns if (place := columns[i]) is not None)
    return replace(key, columns=places) if len(places) == len(key.columns) else None


def indexes_of_shard(
    state: State, planned: Mapping[GlobalId, Planned], table: GlobalId
) -> list[Item]:
    """Return the indexes whose contents come from the table's shard: on it and on views over it."""
    return [
        item
        for item in state.items_above(table)
        if item.on is not None
        and (
            item.on == table
            or (
                state.item(item.on).type == "view"
                and (definition := planned[item.on].definition) is not None
                and table in sources_of(definition)
            )
        )
    ]


def parts_of_column(
    state: State, planned: Mapping[GlobalId, Planned], table: GlobalId, at: int
) -> list[GlobalId]:
    """Return the indexes over a column of a table, and the sequences that it owns."""
    name = planned[table].desc.names[at]
    indexes = [
        item.id
        for item in state.indexes_on(table)
        if any(at in columns_used(scalar) for scalar in planned[item.id].key)
    ]
    owned = state.sequences_of(table)
    return indexes + [item.id for item in owned if item.owned_by and item.owned_by.column == name]


def moved_views(
    before: Mapping[GlobalId, Planned], planned: Mapping[GlobalId, Planned], state: State
) -> list[Item]:
    """Return the existing materialized views that will read other collections.

    `planned` are the new plans, `state` is the next state of the catalog.
    """
    found = []
    for id, each in planned.items():
        now, item = before.get(id), state.get(id)
        if now is not None and isinstance(item, Item) and item.type == "materialized view":
            assert now.definition is not None, item
            assert each.definition is not None, item
            if sources_of(now.definition) != sources_of(each.definition):
                found.append(item)
    return found
