"""Reads of sources that have no rows yet, as their first snapshot is still being read.

Such a read, also of a view over the source, finds no rows and gets a notice. With SET
wait_for_snapshot = on it waits for the snapshot, as in Materialize.
"""

import asyncio
from collections.abc import Iterable

from foreshore.adapter.rights.authorize import authorize_any
from foreshore.adapter.services.feeds import Feeds
from foreshore.adapter.services.names import Names
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.waits.recency import sources_below
from foreshore.adapter.waits.stalled import attended
from foreshore.ids import GlobalId

_HINT = (
    "SET wait_for_snapshot = on lets reads wait for it;"
    " mz_internal.mz_source_statistics says how far it is."
)


def unfilled_sources(names: Names, feeds: Feeds, relations: Iterable[GlobalId]) -> set[GlobalId]:
    """Return the sources below relations, and below views, that have no snapshot yet."""
    controller = feeds.ingestion.controller
    found: set[GlobalId] = set()
    statuses = controller.statuses()
    for id in sources_below(names.catalog, relations):
        status = statuses.get(id)
        if status is not None and not status.is_filled:
            found.add(id)
    return found


async def wait_for_snapshots(context: StatementContext, relations: Iterable[GlobalId]) -> None:
    """Wait for the first snapshots of sources below relations if the session asks for it.

    Else, or if the transaction has its time already, send a notice for each of them.
    """
    sources = unfilled_sources(context.names, context.feeds, relations)
    if not sources:
        return
    await authorize_any(context)  # who may not read it learns nothing
    if context.variables["wait_for_snapshot"] != "on" or context.transaction.time is not None:
        for id in sorted(sources):
            _notify(context, id)
        return
    try:
        with context.interrupts.running():
            async with asyncio.TaskGroup() as all:
                for id in sources:
                    all.create_task(_filled(context, id))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _filled(context: StatementContext, id: GlobalId) -> None:
    controller = context.feeds.ingestion.controller
    async with attended(context, controller, id):
        await controller.filled(id)


def _notify(context: StatementContext, id: GlobalId) -> None:
    item = context.names.state.get(id)
    status = context.feeds.ingestion.controller.statuses().get(id)
    if item is None or status is None:
        return
    why = "its first snapshot is being read"
    if status.state == "stalled":
        why = f"it is stalled: {status.error}"
    context.notice(f'source "{item.name}" has no rows yet: {why}', hint=_HINT)
