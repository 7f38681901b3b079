"""ALTER SINK ... SET and RESET: options that a running sink may get anew."""

import msgspec

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.objects import find_if_exists
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.sources.changes.options import with_options
from foreshore.catalog.item import Item
from foreshore.sinks.spec import SinkSpec, kind_of
from foreshore.sql.plan import AlterSink


def alter_sink(context: StatementContext, plan: AlterSink) -> Completed:
    """Run ALTER SINK ... SET and RESET; once committed, the sink goes on from its frontier."""
    found = find_if_exists(context, "sink", plan.name, if_exists=plan.if_exists, altered=True)
    if found is not None:
        assert isinstance(found, Item), found
        spec = found.sink
        assert isinstance(spec, SinkSpec), found
        own = {name: value for name, value in plan.changes.items() if name == "commit_ms"}
        others = {name: value for name, value in plan.changes.items() if name not in own}
        what = f"sinks to {kind_of(spec.target).upper()}"
        target = with_options(spec.target, others, what)
        spec = msgspec.structs.replace(with_options(spec, own, what), target=target)
        context.catalog_change().put(msgspec.structs.replace(found, sink=spec))
    return Completed("ALTER SINK")
