"""The catalog's rules on names, dependents and ids, and its encoding in the shard."""

import pyarrow as pa
import pytest

from foreshore.catalog.bootstrap import first_state
from foreshore.catalog.durable import difference, load
from foreshore.catalog.item import ColumnOf, ForeignKeyOf, Item, Object, Schema
from foreshore.catalog.state import State, is_system
from foreshore.catalog.transaction import Transaction
from foreshore.errors import (
    DataCorrupted,
    DependentObjectsStillExist,
    DuplicateTable,
    InvalidName,
)
from foreshore.ids import GlobalId


def describe(each: Object | ColumnOf | ForeignKeyOf) -> str:
    return f"{each.kind} {each.name}"


def public(state: State) -> Schema:
    database = state.database("foreshore")
    assert database is not None
    schema = state.schema(database.id, "public")
    assert schema is not None
    return schema


def add(
    transaction: Transaction, type: str, name: str, *needs: Item, on: Item | None = None
) -> Item:
    return transaction.create_item(
        transaction.allot_item(),
        type,  # type: ignore[arg-type]
        public(transaction.state),
        name,
        "o1",
        f"CREATE {type} {name}",
        [need.id for need in needs],
        on=on.id if on else None,
    )


def drop(transaction: Transaction, *targets: Object, cascade: bool = False) -> list[str]:
    dropped = transaction.drop(targets, cascade=cascade, describe=describe)
    transaction.state.check()
    return [each.name for each in dropped.objects]


def test_a_table_with_views_is_not_dropped_without_cascade() -> None:
    transaction = Transaction(first_state())
    table = add(transaction, "table", "t")
    view = add(transaction, "view", "v", table)
    add(transaction, "materialized view", "m", view)
    add(transaction, "index", "i", table, on=table)
    before = transaction.state
    with pytest.raises(DependentObjectsStillExist) as refused:
        drop(transaction, table)
    assert refused.value.message == "cannot drop table t because other objects depend on it"
    assert refused.value.detail == (
        "view v depends on table t\nmaterialized view m depends on view v"
    )
    assert transaction.state is before
    assert drop(transaction, table, cascade=True) == ["m", "v", "i", "t"]


def test_indexes_are_dropped_with_their_relation() -> None:
    transaction = Transaction(first_state())
    table = add(transaction, "table", "t")
    add(transaction, "index", "i", table, on=table)
    assert drop(transaction, table) == ["i", "t"]


def test_objects_named_together_are_dropped_together() -> None:
    transaction = Transaction(first_state())
    table = add(transaction, "table", "t")
    view = add(transaction, "view", "v", table)
    assert drop(transaction, table, view) == ["v", "t"]


def test_schema_in_use_is_not_dropped_but_database_is() -> None:
    transaction = Transaction(first_state())
    add(transaction, "table", "t")
    with pytest.raises(DependentObjectsStillExist):
        drop(transaction, public(transaction.state))
    database = transaction.state.database("foreshore")
    assert database is not None
    assert drop(transaction, database) == ["t", "public", "foreshore"]


def test_ids_and_oids_are_never_allotted_twice() -> None:
    transaction = Transaction(first_state())
    first = add(transaction, "table", "t")
    drop(transaction, first)
    again = add(transaction, "table", "t")
    assert (again.id, again.oid) > (first.id, first.oid)


def test_names_are_unique_in_a_schema_and_system_prefixes_reserved() -> None:
    transaction = Transaction(first_state())
    add(transaction, "table", "t")
    with pytest.raises(DuplicateTable, match='relation "t" already exists'):
        add(transaction, "view", "t")
    with pytest.raises(InvalidName):
        transaction.create_schema("d1", "pg_mine", "o1")
    assert transaction.free_name(public(transaction.state), "t") == "t1"


def test_a_rename_keeps_the_id_and_frees_the_name() -> None:
    transaction = Transaction(first_state())
    table = add(transaction, "table", "t")
    view = add(transaction, "view", "v", table)
    transaction.rename(table, "u")
    transaction.state.check()
    assert transaction.state.item(table.id).name == "u"
    assert transaction.state.item(view.id).depends_on == (table.id,)
    add(transaction, "table", "t")


def test_rows_of_shard_decode_to_state() -> None:
    states = [first_state()]
    transaction = Transaction(states[-1])
    table = add(transaction, "table", "t")
    add(transaction, "view", "v", table)
    states.append(transaction.state)
    transaction = Transaction(states[-1])
    transaction.rename(table, "u")
    drop(transaction, transaction.state.item(GlobalId("u2")))
    states.append(transaction.state)
    updates: list[pa.Table] = []
    before = None
    for time, state in enumerate(states):
        updates.append(difference(before, state, time))
        before = state
        loaded = load(updates)
        assert loaded is not None
        loaded.check()
        assert (loaded.objects, loaded.allotted) == (state.objects, state.allotted)
    assert load([]) is None


def test_objects_of_older_rows_change() -> None:
    """Rows without the fields that have a default are taken away as they are."""
    transaction = Transaction(first_state())
    add(transaction, "table", "t")
    rows = difference(None, transaction.state, 0)
    values = [
        value.replace(',"burst":null', "").replace(',"bound":[]', "")
        for value in rows.column("value").to_pylist()
    ]
    assert values != rows.column("value").to_pylist()
    older = rows.set_column(2, "value", pa.array(values))
    loaded = load([older])
    assert loaded is not None
    transaction = Transaction(loaded)
    for name in ("u", "v"):
        transaction.rename(transaction.state.item(GlobalId("u1")), name)
    cluster = transaction.state.cluster("quickstart")
    assert cluster is not None
    transaction.rename(cluster, "other")
    again = load([older, difference(loaded, transaction.state, 1)])
    assert again is not None
    assert again.objects == transaction.state.objects


def test_duplicate_row_in_shard_is_reported() -> None:
    rows = difference(None, first_state(), 0)
    with pytest.raises(DataCorrupted):
        load([rows, rows])


def test_items_come_after_their_dependencies() -> None:
    transaction = Transaction(first_state())
    first = add(transaction, "table", "t")
    view = add(transaction, "view", "v", first)
    late = transaction.create_item(
        GlobalId("u99"), "view", public(transaction.state), "w", "o1", "", [view.id]
    )
    items = [item.id for item in transaction.state.items() if not is_system(item.id)]
    assert items == [first.id, view.id, late.id]
