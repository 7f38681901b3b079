"""The columns and keys of a table as the definitions over it know them.

A view's statement keeps the column names that it was written with, and its plan may rely on the
keys and NOT NULL of that time only. `Item.known` and `Item.known_keys` record both when a table is
altered for the first time after the view was created.
"""

from collections.abc import Collection, Sequence
from itertools import count

from msgspec.structs import replace

from foreshore.catalog.item import Item, KnownColumn
from foreshore.catalog.state import State
from foreshore.catalog.transaction import Transaction
from foreshore.expr.ir import Get, Literal, Map, Project, Relation
from foreshore.ids import GlobalId
from foreshore.types import ColumnType, RelationDesc


def views_naming(state: State, table: GlobalId) -> list[Item]:
    """Return the views and subscriptions that name a table, oldest first."""
    items = sorted(map(state.item, state.dependents(table)), key=lambda item: item.oid)
    return [item for item in items if item.on is None]


def known_columns(item: Item, table: GlobalId, desc: RelationDesc) -> list[KnownColumn]:
    """Return the columns of `table`, which has `desc` now, as `item` knows them."""
    known = (item.known or {}).get(table)
    if known is None:
        known = tuple(KnownColumn(name, name) for name in desc.names)
    nullable = {n for n, column in zip(desc.names, desc.columns, strict=True) if column.nullable}
    return [replace(each, nullable=each.nullable or each.now in nullable) for each in known]


def without_column(
    known: Sequence[KnownColumn], name: str, column: ColumnType
) -> list[KnownColumn]:
    """Return known columns after the column that is called `name` now was dropped."""
    return [
        KnownColumn(each.name, None, column.type) if each.now == name else each for each in known
    ]


def remember_columns(
    change: Transaction, table: GlobalId, desc: RelationDesc, dropped: Collection[int] = ()
) -> None:
    """Record for each view that names `table` its columns and keys, before they are altered."""
    for item in views_naming(change.state, table):
        known = known_columns(item, table, desc)
        keys = _known_keys(item, table, known, desc)
        for place in dropped:
            known = without_column(known, desc.names[place], desc.columns[place])
        change.remember(item, table, known, keys)


def rename_columns(
    change: Transaction, table: GlobalId, names: Sequence[str], renamed: dict[str, str]
) -> None:
    """Record new names of columns, from old to new, of a table that had columns `names`.

    Views keep their own names for the columns. Sequences follow their column.
    """
    for item in views_naming(change.state, table):
        known = (item.known or {}).get(table) or [KnownColumn(name, name) for name in names]
        now = [replace(c, now=renamed.get(c.now, c.now)) if c.now else c for c in known]
        change.remember(item, table, now)
    for sequence in change.state.sequences_of(table):
        owner = sequence.owned_by
        assert owner, sequence
        column = renamed.get(owner.column, owner.column)
        change.own_sequence(sequence, replace(owner, column=column))


def _known_keys(
    item: Item, table: GlobalId, known: Sequence[KnownColumn], desc: RelationDesc
) -> list[tuple[str, ...]]:
    """Return the keys of `table` that a plan of `item` may rely on, in its own column names."""
    names = {each.now: each.name for each in known}
    by_name = [[desc.names[place] for place in key] for key in desc.keys]
    present = [tuple(names[name] for name in key) for key in by_name if set(key) <= names.keys()]
    keys = (item.known_keys or {}).get(table)
    if keys is None:
        return present
    # A key that was dropped meanwhile, when nothing maintained relied on it, stays dropped.
    return [key for key in keys if any(set(each) <= set(key) for each in present)]


def as_known(
    id: GlobalId,
    table: RelationDesc,
    known: Sequence[KnownColumn],
    known_keys: Sequence[tuple[str, ...]] | None,
    definition: Relation | None = None,
) -> tuple[RelationDesc, Relation]:
    """Return the columns of table `id` as a definition knows them, and the relation over it.

    A column that was dropped is NULL. A column or key that has become stricter counts as before.
    A view that is expanded has a `definition`.
    """
    nullable = {each.now for each in known if each.nullable}
    present = {each.name: each.now for each in known}
    keys = table.keys
    if known_keys is not None:
        keys = _still_keys(table, [[present[name] for name in key] for key in known_keys])
    columns = tuple(
        ColumnType(column.type, nullable=column.nullable or name in nullable)
        for name, column in zip(table.names, table.columns, strict=True)
    )
    relation = definition or Get(id, columns, keys, table.append_only, table.watermark)
    gone = tuple(Literal(None, each.type) for each in known if each.type is not None)
    if gone:
        relation = Map(relation, gone)
        columns += tuple(ColumnType(literal.type) for literal in gone)
    nulls = count(len(table.names))
    places = [next(nulls) if each.now is None else table.names.index(each.now) for each in known]
    shown_keys = tuple(
        tuple(places.index(i) for i in key) for key in keys if set(key) <= set(places)
    )
    names = tuple(each.name for each in known)
    known_columns = tuple(columns[i] for i in places)
    mark = table.watermark
    if mark is not None:
        at = mark.column
        mark = replace(mark, column=places.index(at)) if at in places else None
    desc = RelationDesc(
        names, known_columns, shown_keys, append_only=table.append_only, watermark=mark
    )
    return desc, Project(relation, tuple(places))


def _still_keys(
    table: RelationDesc, keys: Sequence[Sequence[str | None]]
) -> tuple[tuple[int, ...], ...]:
    """Return those of `keys`, given by present column names, that contain a key of `table`."""
    places = [
        tuple(table.names.index(name) for name in key if name is not None)
        for key in keys
        if None not in key
    ]
    return tuple(key for key in places if any(set(each) <= set(key) for each in table.keys))
