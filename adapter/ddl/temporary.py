"""Temporary objects: a session's own, under names that hide all others, gone with the session.

They are items of the catalog like any other, in a schema for each session, but have no rows in the
catalog's shard. So all that works on a table works on them, and after a restart they are not there:
their shards are in no catalog, and what is in no catalog is dropped at a start.

    CREATE TEMP ...        makes the schema, if there is none, and the item in it
    COMMIT                 sees to ON COMMIT: such rows are never written, such tables never shown
    DISCARD TEMP           drops the items
    the session's end      leaves a schema of nobody, which `sweep` drops a moment later
"""

import asyncio
import logging
from collections.abc import Mapping
from functools import partial

from foreshore.adapter.ddl.drop import drop_objects
from foreshore.adapter.services.names import Names
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.sessions import Peer
from foreshore.adapter.transaction.catalog_change import CatalogChange
from foreshore.adapter.transaction.write import Write
from foreshore.catalog.state import PERMANENT
from foreshore.ids import temporary_schema
from foreshore.upkeep import goes_on

logger = logging.getLogger(__name__)

SWEEP_INTERVAL_S = 1.0


def before_commit(context: StatementContext) -> None:
    """Do what ON COMMIT says of the session's tables to the transaction that is to be committed."""
    items = context.planner.state.temporary_items(context.temporary_schema)
    for item in items:
        if item.on_commit == "delete rows":  # as every time: there are no others than its own
            context.transaction.unwrite(item.id)
    if dropped := [item for item in items if item.on_commit == "drop"]:
        drop_objects(context, dropped, cascade=True)


def discard(context: StatementContext) -> None:
    """Drop all temporary objects of the session, in its transaction."""
    if items := context.planner.state.temporary_items(context.temporary_schema):
        drop_objects(context, items, cascade=True)


async def run_sweeps(names: Names, sessions: Mapping[int, Peer]) -> None:
    """Drop the temporary objects of ended sessions every second, until cancelled."""
    while True:
        await asyncio.sleep(SWEEP_INTERVAL_S)
        dropped = partial(sweep, names, sessions)
        await goes_on(dropped, "temporary objects are not dropped yet")


async def sweep(names: Names, sessions: Mapping[int, Peer]) -> None:
    """Drop the temporary schemas of sessions that are not among `sessions` any more."""
    live = {temporary_schema(pid) for pid in sessions}
    change = names.catalog.transaction()
    for schema in change.base.parts:
        if schema != PERMANENT and schema not in live:
            change.drop_temporary(schema)
    if change.changed:
        await names.catalog_commits.commit(Write({}), CatalogChange(change))
