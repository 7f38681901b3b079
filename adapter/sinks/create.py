"""CREATE SINK, in the catalog. Its process begins when the transaction has committed."""

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.clusters import cluster_called
from foreshore.adapter.ddl.objects import add_item, is_taken, schema_of
from foreshore.adapter.definitions.plan_items import plan_item
from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.builtin.registry import refuse_system_inputs
from foreshore.errors import FeatureNotSupported
from foreshore.expr.ir import Get
from foreshore.sql.plan import CreateSink


async def check_target(context: StatementContext, plan: CreateSink) -> None:
    """Raise DatabaseError if a new sink could not write to its target, which is asked."""
    name, subscription = plan.subscription.name, plan.subscription
    reader = context.planner.reader()
    schema = reader.schema(name.database or context.database, name.schema or "")
    taken = schema is not None and reader.state.is_taken(schema.id, name.item)
    if taken and subscription.if_not_exists:
        return
    with context.interrupts.running():
        await context.feeds.exports.check(plan.spec, subscription.query.desc)


def create_sink(context: StatementContext, plan: CreateSink) -> Completed:
    """Run CREATE SINK; it begins with the contents at the time at which the transaction commits."""
    subscription = plan.subscription
    refuse_system_inputs(subscription.query.relation, "a sink")
    if is_taken(context, subscription.name, if_not_exists=subscription.if_not_exists):
        return Completed("CREATE SINK")
    item = add_item(
        context,
        subscription,
        schema_of(context, subscription.name),
        subscription.name.item,
        subscription.depends_on,
        cluster=cluster_called(context.planner, context.cluster, plan.cluster).id,
        sink=plan.spec,
    )
    # Plan it from its text as the next start will, so that the same history is held.
    change, planned = context.catalog_change(), context.planner.reader().planned
    found = change.planned[item.id] = plan_item(change.state, planned, item)
    if not isinstance(found.definition, Get):
        raise FeatureNotSupported(
            "sinks of relations whose columns have changed are not supported",
            hint="Create a materialized view of it.",
        )
    return Completed("CREATE SINK")
