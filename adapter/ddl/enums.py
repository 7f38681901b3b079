"""CREATE TYPE, CREATE DOMAIN and ALTER TYPE.

Tables and views over an enum know its labels, so those that depend on it are planned anew when it
gets another one. Their contents stay as they are: a value is stored with its rank and the label
that it had first (foreshore/enum_labels.py).
"""

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.objects import add_item, schema_of
from foreshore.adapter.definitions.plan_items import plan_item
from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.item import Item
from foreshore.enum_labels import first_values, value_between
from foreshore.errors import (
    DuplicateObject,
    FeatureNotSupported,
    InvalidParameterValue,
    InvalidTextRepresentation,
    WrongObjectType,
)
from foreshore.sql.bind.definitions.enums import enum_statement
from foreshore.sql.plan import AlterEnum, CreateDomain, CreateEnum, CreateStructured


def create_enum(context: StatementContext, plan: CreateEnum) -> Completed:
    """Run CREATE TYPE ... AS ENUM."""
    schema = schema_of(context, plan.name)
    if context.catalog_change().state.is_taken(schema.id, plan.name.item):
        raise DuplicateObject(f'type "{plan.name.item}" already exists')
    add_item(context, plan, schema, plan.name.item, enum_values=first_values(plan.labels))
    return Completed("CREATE TYPE")


def create_domain(context: StatementContext, plan: CreateDomain) -> Completed:
    """Run CREATE DOMAIN."""
    return _create_type(context, plan, "CREATE DOMAIN")


def create_structured(context: StatementContext, plan: CreateStructured) -> Completed:
    """Run CREATE TYPE of records, lists or maps."""
    return _create_type(context, plan, "CREATE TYPE")


def _create_type(
    context: StatementContext, plan: CreateDomain | CreateStructured, tag: str
) -> Completed:
    schema = schema_of(context, plan.name)
    if context.catalog_change().state.is_taken(schema.id, plan.name.item):
        raise DuplicateObject(f'type "{plan.name.item}" already exists')
    add_item(context, plan, schema, plan.name.item, plan.depends_on)
    return Completed(tag)


def alter_enum(context: StatementContext, plan: AlterEnum) -> Completed:
    """Run ALTER TYPE ... ADD VALUE or RENAME VALUE."""
    reader = context.planner.reader()
    item = reader.object_called("type", plan.name.parts, altered=True)
    assert isinstance(item, Item), item
    if item.type != "type" or not isinstance(item.enum_values, tuple):
        raise WrongObjectType(f"{item.name} is not an enum")
    labels, values = list(reader.planned[item.id].labels), list(item.enum_values or ())
    if plan.renamed is not None:
        _refuse_maintained(context, item)
        place = _place(labels, plan.renamed)
        if plan.label in labels:
            raise DuplicateObject(f'enum label "{plan.label}" already exists')
        labels[place] = plan.label
    elif plan.label in labels:
        if not plan.if_not_exists:
            raise DuplicateObject(f'enum label "{plan.label}" already exists')
        message = f'enum label "{plan.label}" already exists, skipping'
        context.notice(message, sqlstate=DuplicateObject.sqlstate)
        return Completed("ALTER TYPE")
    else:
        place = len(labels)
        if plan.beside is not None:
            place = _place(labels, plan.beside) + (not plan.before)
        below = values[place - 1] if place else None
        above = values[place] if place < len(values) else None
        values.insert(place, value_between(below, above, plan.label))
        labels.insert(place, plan.label)
    change = context.catalog_change()
    statement = enum_statement(change.state.full_name(item), labels)
    altered = change.alter_enum(item, statement, tuple(values))
    plan_again(context, altered, renamed=plan.renamed)
    return Completed("ALTER TYPE")


def _place(labels: list[str], label: str) -> int:
    if label not in labels:
        raise InvalidParameterValue(f'"{label}" is not an existing enum label')
    return labels.index(label)


def _refuse_maintained(context: StatementContext, item: Item) -> None:
    """Raise if contents that are maintained may have the label as text."""
    for each in context.catalog_change().state.items_above(item.id):
        if each.type in ("materialized view", "index", "subscription"):
            raise FeatureNotSupported(
                f'a label of type "{item.name}" cannot be renamed, because {each.kind}'
                f' "{each.name}" is maintained over it',
                hint="Drop it, and create it again after renaming.",
            )


def plan_again(context: StatementContext, item: Item, *, renamed: str | None = None) -> None:
    """Plan an altered type and all that depends on it, which knows its name and labels.

    Raises FeatureNotSupported if the statement of one of them mentions the label `renamed`.
    """
    change = context.catalog_change()
    for each in (item, *change.state.items_above(item.id)):
        reader = context.planner.reader()
        try:
            change.planned[each.id] = plan_item(reader.state, reader.planned, each)
        except InvalidTextRepresentation:
            if renamed is None:
                raise
            raise FeatureNotSupported(
                f'label "{renamed}" of type "{item.name}" cannot be renamed, because the'
                f' definition of {each.kind} "{each.name}" mentions it',
                hint="Drop the default, constraint or view, and create it again after renaming.",
            ) from None
