"""Plan the statements that define the items of the catalog.

Plans are not durable: each start makes them, and so does ALTER TABLE for the items above.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec.structs import replace

from foreshore.adapter.definitions.catalog_reader import DefinitionCatalog, with_present_names
from foreshore.catalog.item import Item, ItemType
from foreshore.catalog.planned import Planned
from foreshore.catalog.state import State
from foreshore.constraint import Unique, is_implied
from foreshore.errors import DatabaseError, InternalError
from foreshore.ids import GlobalId
from foreshore.sql.bind.definitions.sequence import SEQUENCE_DESC
from foreshore.sql.bind.python_calls import with_handler
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import (
    CreateDomain,
    CreateEnum,
    CreateFunction,
    CreateIndex,
    CreateMaterializedView,
    CreatePolicy,
    CreateSequence,
    CreateStructured,
    CreateSubscription,
    CreateTable,
    CreateView,
)
from foreshore.sql.planner import plan_statement
from foreshore.sql.view_expansion import view_over
from foreshore.types import RelationDesc
from foreshore.view_over import ViewOver

Defining: TypeAlias = (
    CreateTable
    | CreateView
    | CreateMaterializedView
    | CreateIndex
    | CreateSequence
    | CreateSubscription
    | CreateEnum
    | CreateDomain
    | CreateStructured
    | CreateFunction
    | CreatePolicy
)
ITEM_TYPES: Mapping[type[Defining], ItemType] = {
    CreateTable: "table",
    CreateView: "view",
    CreateMaterializedView: "materialized view",
    CreateIndex: "index",
    CreateSequence: "sequence",
    CreateSubscription: "subscription",
    CreateEnum: "type",
    CreateDomain: "domain",
    CreateStructured: "type",
    CreateFunction: "function",
    CreatePolicy: "policy",
}


def plan_items(state: State) -> dict[GlobalId, Planned]:
    """Return the plans of all items."""
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
    """Return the plan of an item.

    `own` returns whether the transaction sees a relation differently from others; the definitions
    of such relations are expanded.
    """
    (syntax,) = parse(item.create_sql)
    catalog = DefinitionCatalog(state, planned, item, own=own)
    plan = plan_statement(syntax, catalog, defined=True)
    assert isinstance(plan, Defining), item
    found = planned_as(plan, planned, item.stored_names or ())
    function = found.function
    if function is None or function.language != "python":
        return found
    if item.handler:
        return dataclasses.replace(
            found, function=dataclasses.replace(function, handler=item.handler)
        )
    return dataclasses.replace(found, function=with_handler(function))  # of an older version


def planned_as(
    plan: Defining, planned: Mapping[GlobalId, Planned], stored: tuple[str, ...] = ()
) -> Planned:
    """Return the plan of the item that a statement defines, over the `planned` items.

    `stored` are the names of the columns in a table's or materialized view's shard, if they differ.
    """
    match plan:
        case CreateTable():
            return plan_created_table(plan, stored)
        case CreateView(query=query, depends_on_zone=depends_on_zone, needs=needs):
            view = view_over(query.relation, lambda id: _view(planned.get(id)))
            return Planned(
                query.desc, query.relation, depends_on_zone=depends_on_zone, needs=needs, view=view
            )
        case CreateMaterializedView(query=query, needs=needs):
            desc = replace(query.desc, stored=stored if stored != query.desc.names else ())
            return Planned(desc, query.relation, needs=needs)
        case CreateSubscription(query=query, needs=needs):
            return Planned(query.desc, query.relation, needs=needs)
        case CreateDomain(domain=domain):
            return Planned(RelationDesc((), ()), domain=domain)
        case CreateFunction(function=function):
            return Planned(RelationDesc((), ()), function=function)
        case CreatePolicy(rows=rows):
            return Planned(RelationDesc((), ()), policy=rows)
        case CreateStructured(type=type):
            return Planned(RelationDesc((), ()), structure=type)
        case CreateEnum(labels=labels):
            return Planned(RelationDesc((), ()), labels=labels)
        case CreateSequence(sequence=sequence):
            return Planned(SEQUENCE_DESC, sequence=sequence)
        case CreateIndex(on=on, key=key):
            return Planned(planned[on].desc, key=key)


def _view(planned: Planned | None) -> ViewOver | None:
    return None if planned is None else planned.view


def verify_sql_round_trip(
    before: State,
    state: State,
    planned: Mapping[GlobalId, Planned],
    own: Callable[[GlobalId], bool],
) -> None:
    """Raise InternalError if an item's statement gives another plan than it has in `planned`.

    The next start plans it from the statement. Only items whose definition differs from the one in
    `before` are checked. `planned` has the plans of all items of `state`; `own` is as in
    `plan_item`.
    """
    for id in state.changed(before):
        item, then = state.get(id), before.get(id)
        if not isinstance(item, Item):
            continue
        if isinstance(then, Item) and _reads(then) == _reads(item):
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
    """Return the fields of an item that determine its plan."""
    return item.create_sql, item.bound, item.known, item.known_keys, item.stored_names, item.schema


def definition_text(state: State, planned: Mapping[GlobalId, Planned], item: Item) -> str:
    """Return an item's statement with the present names of tables and columns."""
    if not item.known and all(then == now for then, now in state.present_names(item).items()):
        return item.create_sql
    if item.type in ("table", "index", "sequence", "type", "domain", "function", "policy"):
        return with_present_names(state, item)
    (syntax,) = parse(item.create_sql)
    catalog = DefinitionCatalog(state, planned, item, shown=True)
    plan = plan_statement(syntax, catalog, defined=True)
    assert isinstance(plan, CreateView | CreateMaterializedView | CreateSubscription), item
    return plan.sql


def plan_created_table(plan: CreateTable, stored: tuple[str, ...] = ()) -> Planned:
    """Return the plan of a table; `stored` are its columns' names in its shard."""
    return Planned(
        replace(plan.desc, stored=stored if stored != plan.desc.names else ()),
        None,
        plan.defaults,
        constraints=plan.constraints,
        generated=plan.generated,
        computed=plan.computed,
    )


def constraint_names(plan: CreateTable) -> list[tuple[str, bool]]:
    """Return the names of a table's constraints, and whether each has an index."""
    return [
        (each.name, isinstance(each, Unique)) for each in plan.constraints if not is_implied(each)
    ]
