"""CREATE SOURCE: the source and the relations that it writes, in the catalog.

Its process begins when the transaction has committed (`ingestion.py`).
"""

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.clusters import cluster_called
from foreshore.adapter.ddl.objects import add_item, is_taken, schema_of
from foreshore.adapter.session.context import StatementContext
from foreshore.catalog.groups import parts_of
from foreshore.catalog.item import Item
from foreshore.catalog.state import State
from foreshore.errors import FeatureNotSupported
from foreshore.ids import GlobalId
from foreshore.source_spec import OWN_ROWS, PROGRESS, Feed, output_desc
from foreshore.sql.bind.definitions.sources import fed_table_text, written
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.plan import CreateFedTable, CreateSource
from foreshore.sql.rewrite.full_names import dotted


def create_source(context: StatementContext, plan: CreateSource) -> Completed:
    """Run CREATE SOURCE."""
    if plan.name.temporary:
        raise FeatureNotSupported("sources cannot be temporary")
    if is_taken(context, plan.name, if_not_exists=plan.if_not_exists):
        return Completed("CREATE SOURCE")
    id = context.catalog_change().allot_item()
    add_item(
        context,
        plan,
        schema_of(context, plan.name),
        plan.name.item,
        id=id,
        cluster=cluster_called(context, plan.cluster).id,
        feed=Feed(id, OWN_ROWS, plan.spec),
    )
    for each in plan.parts:
        text = fed_table_text(dotted(each.name.parts), dotted(plan.name.parts), each.reference)
        desc = output_desc(plan.spec, each.reference)
        create_fed_table(context, CreateFedTable(each.name, id, each.reference, desc, text))
    return Completed("CREATE SOURCE")


def create_fed_table(context: StatementContext, plan: CreateFedTable) -> Completed:
    """Create a relation that a source writes, a part of it."""
    is_taken(context, plan.name, if_not_exists=False)
    schema, feed = schema_of(context, plan.name), Feed(plan.source, plan.reference)
    item, inputs = plan.name.item, (plan.source,)
    add_item(context, plan, schema, item, inputs, feed=feed, part_of=plan.source)
    return Completed("CREATE SUBSOURCE")


def source_text(state: State, item: Item) -> str:
    """Return the statement that creates a source with its relations, by their present names.

    That of one of its relations is in the form in which it is kept.
    """
    name = dotted(state.full_name(item))
    assert item.feed, item
    if item.feed.spec is None:
        source = state.item(GlobalId(item.feed.source))
        return fed_table_text(name, dotted(state.full_name(source)), item.feed.reference)
    parts = {
        each.feed.reference: dotted(state.full_name(each))
        for each in state.items_of(parts_of(item.id))
        if each.feed
    }
    progress = parts.pop(PROGRESS)
    tables = [f"{quote_identifier(each)} AS {called}" for each, called in parts.items()]
    chosen = f" FOR TABLES ({', '.join(tables)})" if tables else ""
    cluster = quote_identifier(state.objects[item.cluster or ""].name)
    return (
        f"CREATE SOURCE {name} IN CLUSTER {cluster} FROM {written(item.feed.spec)}{chosen}"
        f" EXPOSE PROGRESS AS {progress}"
    )
