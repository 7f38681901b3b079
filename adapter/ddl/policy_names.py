"""Policies follow the names of tables and columns."""

from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType

from msgspec import UNSET
from msgspec.structs import replace as with_fields

from foreshore.adapter.definitions.catalog_reader import with_present_names
from foreshore.adapter.definitions.plan_items import plan_item
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.planner import Planner
from foreshore.catalog.item import Item
from foreshore.catalog.planned import Planned
from foreshore.errors import DatabaseError, FeatureNotSupported
from foreshore.sql.rewrite.policy_texts import (
    policy_statement,
    policy_texts,
    with_other_names,
)

NOTHING_RENAMED: Mapping[str, str] = MappingProxyType({})


def follow_names(
    context: StatementContext, table: Item, columns: Mapping[str, str] = NOTHING_RENAMED
) -> None:
    """Rewrite the policies that name a table for its present name, and for new names of columns.

    Raises FeatureNotSupported if one of them then would not mean the same.
    """
    change = context.catalog_change()
    items = map(change.state.item, change.state.dependents(table.id))
    for item in sorted((each for each in items if each.is_policy), key=lambda each: each.oid):
        new = _with_names(context, item, table, columns)
        if new is None:
            raise FeatureNotSupported(
                f"{context.planner.reader().describe(item)} cannot follow the new name",
                hint="Drop the policy first, and create it again.",
            )
        change.put(new)
        change.planned[new.id] = planned_policy(context.planner, new)


def _with_names(
    context: StatementContext, item: Item, table: Item, columns: Mapping[str, str]
) -> Item | None:
    """Return a policy with other names, which means the same; None if none does."""
    state, texts = context.catalog_change().state, policy_texts(item.create_sql)
    assert item.policy, item
    of = state.item(item.policy.table)
    wanted = planned_policy(context.planner, item)
    present = policy_texts(with_present_names(state, item))
    texts = with_fields(texts, using=present.using, check=present.check)
    known = {
        id: tuple(with_fields(each, name=columns.get(each.name, each.name)) for each in remembered)
        if id == table.id
        else remembered
        for id, remembered in (item.known or {}).items()
    }
    keys = {
        id: tuple(tuple(columns.get(name, name) for name in key) for key in remembered)
        if id == table.id
        else remembered
        for id, remembered in (item.known_keys or {}).items()
    }
    for using, check in with_other_names(texts, of.name, columns):
        new = with_fields(
            item,
            create_sql=policy_statement(item.name, state.full_name(of), using, check),
            bound=tuple((state.full_name(state.item(id)), id) for _, id in item.bound),
            known=known or UNSET,
            known_keys=keys or item.known_keys,
        )
        with suppress(DatabaseError):
            if planned_policy(context.planner, new) == wanted:
                return new
    return None


def planned_policy(planner: Planner, item: Item) -> Planned:
    """Return a policy as it is planned in the transaction."""
    reader = planner.reader()
    return plan_item(reader.state, reader.planned, item)
