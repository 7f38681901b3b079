"""What the items of the catalog mean: their statements, planned.

That is not durable: it is made anew at every start, and when a table below was altered.
"""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec.structs import replace

from foreshore.adapter.session.catalog_reader import DefinitionCatalog, with_present_names
from foreshore.catalog.catalog import Planned
from foreshore.catalog.item import Item, ItemType
from foreshore.catalog.state import State
from foreshore.constraint import Unique
from foreshore.errors import DatabaseError, InternalError
from foreshore.ids import GlobalId
from foreshore.sql.bind.definitions.sequence import SEQUENCE_DESC
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import (
    CreateIndex,
    CreateMaterializedView,
    CreateSequence,
    CreateSubscription,
    CreateTable,
    CreateView,
)
from foreshore.sql.planner import plan_statement

Defining: TypeAlias = (
    CreateTable
    | CreateView
    | CreateMaterializedView
    | CreateIndex
    | CreateSequence
    | CreateSubscription
)
ITEM_TYPES: Mapping[type[Defining], ItemType] = {
    CreateTable: "table",
    CreateView: "view",
    CreateMaterializedView: "materialized view",
    CreateIndex: "index",
    CreateSequence: "sequence",
    CreateSubscription: "subscription",
}


def plan_items(state: State) -> dict[GlobalId, Planned]:
    """Return what planning makes of all items' statements."""
    planned: dict[GlobalId, Planned] = {}
    for item in state.items():
        try:
            planned[item.id] = plan_item(state, planned, item)
        except DatabaseError as error:
            raise InternalError(
                f"{item.kind} {item.name} ({item.id}) cannot be planned: {error.message}",
                detail=item.create_sql,
            ) from error
    return planned


def plan_item(
    state: State,
    planned: Mapping[GlobalId, Planned],
    item: Item,
    own: Callable[[GlobalId], bool] | None = None,
) -> Planned:
    """Return what planning makes of an item's statement.

    In a transaction that sees its `own` relations otherwise than others do, it is made of those.
    """
    (syntax,) = parse(item.create_sql)
    catalog = DefinitionCatalog(state, planned, item, own=own)
    plan = plan_statement(syntax, catalog, defined=True)
    assert isinstance(plan, Defining), item
    return planned_as(plan, planned, item.stored_names or ())


def planned_as(
    plan: Defining, planned: Mapping[GlobalId, Planned], stored: tuple[str, ...] = ()
) -> Planned:
    """Return the item that a statement defines, over the `planned` items.

    `stored` are the names of a table's columns in its shard, if they are other ones.
    """
    match plan:
        case CreateTable():
            return plan_created_table(plan, stored)
        case CreateView(query=query, depends_on_zone=depends_on_zone):
            return Planned(query.desc, query.relation, depends_on_zone=depends_on_zone)
        case CreateMaterializedView(query=query) | CreateSubscription(query=query):
            return Planned(query.desc, query.relation)
        case CreateSequence(sequence=sequence):
            return Planned(SEQUENCE_DESC, sequence=sequence)
        case CreateIndex(on=on, key=key):
            return Planned(planned[on].desc, key=key)


def verify_sql_round_trip(
    before: State,
    state: State,
    planned: Mapping[GlobalId, Planned],
    own: Callable[[GlobalId], bool],
) -> None:
    """Raise InternalError if an item would be something else when it is planned from its statement.

    That is how the next start has it. Those count whose definition is another than `before`;
    `planned` is what all items of `state` are, in a transaction that has written to its `own`.
    """
    for item in state.all(Item):
        then = before.get(item.id)
        if then is item or (isinstance(then, Item) and _reads(then) == _reads(item)):
            continue
        try:
            is_kept = any(
                plan_item(state, planned, item, o) == planned[item.id] for o in (None, own)
            )
            why = "it would be something else"
        except DatabaseError as error:
            is_kept, why = False, error.message
        if not is_kept:
            raise InternalError(
                f"{item.kind} {item.name} cannot be kept as its statement: {why}",
                detail=item.create_sql,
            )


def _reads(item: Item) -> object:
    """Return what of an item its planning reads."""
    return item.create_sql, item.bound, item.known, item.known_keys, item.stored_names, item.schema


def definition_text(state: State, planned: Mapping[GlobalId, Planned], item: Item) -> str:
    """Return an item's statement with the names that tables, and their columns, have now."""
    if not item.known and all(then == now for then, now in state.present_names(item).items()):
        return item.create_sql
    if item.type in ("table", "index", "sequence"):
        return with_present_names(state, item)
    (syntax,) = parse(item.create_sql)
    catalog = DefinitionCatalog(state, planned, item, shown=True)
    plan = plan_statement(syntax, catalog, defined=True)
    assert isinstance(plan, CreateView | CreateMaterializedView | CreateSubscription), item
    return plan.sql


def plan_created_table(plan: CreateTable, stored: tuple[str, ...] = ()) -> Planned:
    """Return what a table's definition means; `stored` are its columns' names in its shard."""
    return Planned(
        replace(plan.desc, stored=stored if stored != plan.desc.names else ()),
        None,
        plan.defaults,
        constraints=plan.constraints,
        generated=plan.generated,
    )


def constraint_names(plan: CreateTable) -> list[tuple[str, bool]]:
    """Return the names of a table's constraints, and whether each has an index."""
    return [(each.name, isinstance(each, Unique)) for each in plan.constraints]
