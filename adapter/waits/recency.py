"""Real-time recency: a read waits for what the external systems of its sources have."""

import asyncio
from collections.abc import Iterable

from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.waits.stalled import attended
from foreshore.catalog.catalog import Catalog
from foreshore.catalog.item import Item
from foreshore.errors import QueryCanceled
from foreshore.ids import GlobalId
from foreshore.setting_kinds import milliseconds
from foreshore.sources.spec import is_pushed


def is_wanted(context: StatementContext) -> bool:
    """Return whether the statement reads at the newest time, and the session asks for recency."""
    return (
        context.variables.settings.waits_for_sources
        and context.prepared.made.peek is not None
        and context.transaction.time is None
        and context.isolation == "strict serializable"
    )


async def wait_for_sources(context: StatementContext, relations: Iterable[GlobalId]) -> None:
    """Wait until all is durable that the sources of some relations have outside now.

    Raises QueryCanceled after `real_time_recency_timeout`, FeatureNotSupported if a source cannot
    say what its external system has.
    """
    sources = sources_below(context.names.catalog, relations)
    if not sources:
        return
    limit = milliseconds(context.variables["real_time_recency_timeout"])
    try:
        with context.interrupts.running():
            async with asyncio.timeout(limit / 1000 if limit else None), asyncio.TaskGroup() as all:
                for id in sources:
                    all.create_task(_caught_up(context, id))
    except TimeoutError:
        raise QueryCanceled("canceling statement due to real-time recency timeout") from None
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _caught_up(context: StatementContext, id: GlobalId) -> None:
    """Wait for what a source has outside now; of one over a relation, for what is in that then."""
    ingestion = context.feeds.ingestion
    relation = ingestion.inputs.relation(id)
    if relation is not None:
        for below in sources_below(context.names.catalog, [relation]):
            await _caught_up(context, below)
    async with attended(context, ingestion.controller, id):
        if relation is None:
            await ingestion.caught_up(id)
        else:
            await ingestion.inputs.answered(id, context.times.oracle.read_ts())


def sources_below(catalog: Catalog, relations: Iterable[GlobalId]) -> set[GlobalId]:
    """Return the sources of relations, also below views."""
    found = set()
    for id in relations:
        for base in catalog.bases(id):
            item = catalog.state.get(base)
            if isinstance(item, Item) and item.feed:
                source = catalog.state.get(item.feed.source)
                spec = source.feed.spec if isinstance(source, Item) and source.feed else None
                if spec is not None and not is_pushed(spec):
                    found.add(GlobalId(item.feed.source))
    return found
