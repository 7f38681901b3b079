"""CREATE SOURCE: the source and the relations that it writes, in the catalog.

Its process begins when the transaction has committed (`ingestion.py`).
"""

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.clusters import cluster_called
from foreshore.adapter.ddl.objects import add_item, is_taken, schema_of
from foreshore.adapter.session.context import StatementContext
from foreshore.errors import FeatureNotSupported
from foreshore.source_spec import OWN_ROWS, Feed, output_desc
from foreshore.sql.bind.definitions.sources import fed_table_text
from foreshore.sql.plan import CreateFedTable, CreateSource


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
        is_taken(context, each.name, if_not_exists=False)
        text = fed_table_text(each.name, plan.name, each.reference)
        desc = output_desc(plan.spec, each.reference)
        part = CreateFedTable(each.name, id, each.reference, desc, text)
        feed = Feed(id, each.reference)
        add_item(
            context, part, schema_of(context, each.name), each.name.item, (id,),
            feed=feed, part_of=id,
        )  # fmt: skip
    return Completed("CREATE SOURCE")
