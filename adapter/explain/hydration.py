"""Which engine hydrates a view in bulk, for EXPLAIN PHYSICAL PLAN."""

from collections.abc import Mapping

from foreshore.adapter.statement.context import StatementContext
from foreshore.compute.flow.bulk_hydration import BULK_ROWS
from foreshore.compute.hydrate.policy import Machines, Volume, choose, mode_of
from foreshore.compute.hydrate.volume import estimated
from foreshore.expr.ir import Relation
from foreshore.expr.traversal import sources_of
from foreshore.hydrate_mode import HydrateMode


def hydration(
    context: StatementContext,
    relation: Relation,
    options: Mapping[str, str],
    hydrate: HydrateMode | None,
) -> str:
    """Return a line with the engine, nothing if there are so few rows that operators do it.

    `options` are those of the replica; `hydrate` is the object's own mode.
    """
    tables = context.tables
    kept = {
        id: Volume(tables.storage.count_updates(id), tables.storage.size_bytes(id))
        for id in sources_of(relation)
        if id in tables.capabilities
    }
    volume, mode = estimated(relation, kept), hydrate or mode_of(options)
    if volume.rows < BULK_ROWS and mode == "auto":
        return ""
    return f"\nHydration: {choose(mode, volume, Machines.of_options(options))}"
