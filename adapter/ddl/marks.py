"""The relation beside one with a watermark that has the time to which the clock has moved it.

`NAME_idle` is a part of the relation `NAME`, and is dropped with it. The relation's kept definition
names it by its id, so that a rename of either does not matter.
"""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from foreshore.adapter.ddl.objects import add_item, is_taken, schema_of
from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.item import Item
from foreshore.catalog.state import State
from foreshore.errors import DependentObjectsStillExist
from foreshore.item_view import Name
from foreshore.sql.bind.definitions.watermark import watermark_text
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import CreateTable
from foreshore.sql.planner import plan_statement
from foreshore.sql.rewrite.full_names import dotted
from foreshore.types import written_type

SUFFIX = "_idle"


def with_marks(context: StatementContext, plan: CreateTable) -> CreateTable:
    """Return the definition of a new relation with the id of its marks, if it needs these."""
    watermark, names = plan.desc.watermark, plan.desc.names
    if watermark is None or watermark.idle is None:
        return plan
    is_taken(context, _name(plan.name), if_not_exists=False)
    marked = msgspec.structs.replace(watermark, marks=context.catalog_change().allot_item())
    before, after = watermark_text(watermark, names), watermark_text(marked, names)
    assert plan.sql.count(before) == 1, plan.sql
    desc = msgspec.structs.replace(plan.desc, watermark=marked)
    return replace(plan, desc=desc, sql=plan.sql.replace(before, after))


def add_marks(context: StatementContext, of: Item, plan: CreateTable) -> None:
    """Add the relation of the marks of a new relation, if it needs one."""
    watermark = plan.desc.watermark
    if watermark is None or watermark.marks is None:
        return
    name, column = _name(plan.name), plan.desc.columns[watermark.column]
    text = f"CREATE TABLE {dotted(name.parts)} (at {written_type(column.type)})"
    (syntax,) = parse(text)
    made = plan_statement(syntax, context.planner.reader())
    assert isinstance(made, CreateTable), made
    schema = schema_of(context, name)
    add_item(context, made, schema, name.item, (of.id,), id=watermark.marks, part_of=of.id)


def check_no_marks(state: State, targets: Sequence[object]) -> None:
    """Raise DependentObjectsStillExist if one is to be dropped without what it is a part of."""
    for each in targets:
        if isinstance(each, Item) and each.is_marks and each.part_of:
            of = state.item(each.part_of)
            if of not in targets:
                raise DependentObjectsStillExist(
                    f"cannot drop table {each.name} because {of.kind} {of.name} requires it",
                    hint=f"You can drop {of.kind} {of.name} instead.",
                )


def _name(of: Name) -> Name:
    return Name(of.database, of.schema, f"{of.item}{SUFFIX}")
