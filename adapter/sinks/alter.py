"""ALTER SINK: options that a running sink may get anew, and RESUME in a restored database."""

import msgspec

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.objects import find_if_exists
from foreshore.adapter.ddl.options import with_options
from foreshore.adapter.external.inherited import is_paused
from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.item import Item
from foreshore.errors import ObjectNotInPrerequisiteState
from foreshore.sinks.spec import SinkSpec, kind_of
from foreshore.sql.plan import AlterSink


def alter_sink(context: StatementContext, plan: AlterSink) -> Completed:
    """Run ALTER SINK; once it has committed, the sink goes on from its frontier."""
    found = find_if_exists(
        context.planner, context.notice, "sink", plan.name, if_exists=plan.if_exists, altered=True
    )
    if found is not None:
        assert isinstance(found, Item), found
        spec = found.sink
        assert isinstance(spec, SinkSpec), found
        if plan.resumes:
            spec = _resumed(context, found, spec)
        own = {name: value for name, value in plan.changes.items() if name == "commit_ms"}
        others = {name: value for name, value in plan.changes.items() if name not in own}
        what = f"sinks to {kind_of(spec.target).upper()}"
        target = with_options(spec.target, others, what)
        spec = msgspec.structs.replace(with_options(spec, own, what), target=target)
        context.catalog_change().put(msgspec.structs.replace(found, sink=spec))
    return Completed("ALTER SINK")


def _resumed(context: StatementContext, item: Item, spec: SinkSpec) -> SinkSpec:
    """Return the sink of the original database as one of this database, under its old name."""
    lineage = context.names.lineage
    if not is_paused(lineage, item.id, spec):
        raise ObjectNotInPrerequisiteState(
            f'sink "{item.name}" is not paused',
            hint="Sinks are paused in a database that was restored from a backup.",
        )
    position = context.tables.subscriptions.position(item.id)
    assert position is not None, item
    return msgspec.structs.replace(
        spec,
        resumed_in=lineage.database,
        written_as=spec.written_as or lineage.restored_from or "",
        resumed_from=position.reached,
    )
