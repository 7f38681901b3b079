"""CREATE TABLE: its columns, sequences and constraints; CREATE TABLE AS."""

from dataclasses import replace

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.create import create_index, refuse_reserved
from foreshore.adapter.ddl.marks import add_marks, with_marks
from foreshore.adapter.ddl.objects import add_item, is_taken, schema_of
from foreshore.adapter.ddl.sequences import add_sequence
from foreshore.adapter.ddl.tables.foreign_keys import add_foreign_keys
from foreshore.adapter.definitions.plan_items import constraint_names
from foreshore.adapter.read.pipeline import wait_until_requested
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.write.source import queried_rows, with_row_outputs
from foreshore.adapter.write.stage import checked
from foreshore.adapter.write.stage_changes import stage
from foreshore.adapter.write.target import target_of
from foreshore.catalog.item import OwnedBy
from foreshore.ids import GlobalId
from foreshore.sql.bind.definitions.sequence import new_sequence
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import (
    CreateIndex,
    CreateTable,
    CreateTableAs,
)
from foreshore.sql.planner import plan_statement
from foreshore.table_rows import TableRows


async def create_table(context: StatementContext, plan: CreateTable) -> Completed:
    """Run CREATE TABLE."""
    if not is_taken(context, plan.name, if_not_exists=plan.if_not_exists):
        id = add_table(context, plan)
        if plan.foreign_keys:
            await add_foreign_keys(context, id, plan.foreign_keys)
        for text in plan.indexes:
            (syntax,) = parse(text)
            index = plan_statement(syntax, context.planner.reader())
            assert isinstance(index, CreateIndex), index
            create_index(context, index)
    return Completed("CREATE TABLE")


def add_table(context: StatementContext, plan: CreateTable) -> GlobalId:
    """Return the id of a new table, in the transaction's catalog."""
    refuse_reserved(plan.desc.names)
    id = context.catalog_change().allot_item()
    schema = schema_of(context, plan.name)
    if plan.sequences:
        plan = with_sequences(context, id, plan)
    plan = with_marks(context, plan)
    item = add_item(
        context,
        plan,
        schema,
        plan.name.item,
        id=id,
        constraints=constraint_names(plan),
        retain_ms=plan.retain_ms,
        on_commit=plan.on_commit,
    )
    add_marks(context, item, plan)
    return id


async def create_table_as(context: StatementContext, plan: CreateTableAs) -> Completed:
    """Run CREATE TABLE ... AS or SELECT ... INTO.

    The query runs as in INSERT ... SELECT, and the table is created when its rows are known. Others
    see both at the same time.
    """
    as_of = None
    if plan.as_of is not None and plan.with_data:
        as_of = await wait_until_requested(context, plan.as_of)
        assert isinstance(context.prepared.made.plan, CreateTableAs), context.prepared.made.plan
        plan = context.prepared.made.plan
    if is_taken(context, plan.definition.name, if_not_exists=plan.if_not_exists):
        return Completed("CREATE TABLE AS")
    if not plan.with_data:
        add_table(context, plan.definition)
        return Completed("CREATE TABLE AS")
    rows = await queried_rows(context, (), as_of=as_of)
    rows = await with_row_outputs(context, rows, plan.row_outputs)
    id = add_table(context, plan.definition)
    target = target_of(context, id)
    made = TableRows.of_table(target.desc, rows)
    made = checked(context, target, made)
    await stage(context, target, inserted=made)
    return Completed(f"SELECT {made.count}")


def with_sequences(context: StatementContext, table: GlobalId, plan: CreateTable) -> CreateTable:
    """Create the sequences of a table's columns; return the table's definition with them."""
    for each in plan.sequences:
        is_taken(context, each.name, if_not_exists=False)
        owner = OwnedBy(table, plan.desc.names[each.column], each.identity)
        add_sequence(context, new_sequence(each.name, each.sequence), owner)
    (syntax,) = parse(plan.sql)
    defined = plan_statement(syntax, context.planner.reader(), defined=True)
    assert isinstance(defined, CreateTable), defined
    return replace(defined, retain_ms=plan.retain_ms, on_commit=plan.on_commit)
