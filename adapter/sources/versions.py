"""Tables of PostgreSQL that several relations of a source read, each with its own columns.

So a view can move to another version of a table while the old one goes on. The first relation has
the output of the table's name; each other one has an output of its own, which remembers the table.
"""

from collections.abc import Iterable

import msgspec

from foreshore.adapter.external.details import details_of, table_of
from foreshore.adapter.sources.chosen import found_reference
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.planner import Planner
from foreshore.catalog.groups import parts_of
from foreshore.catalog.item import Item
from foreshore.errors import InvalidParameterValue
from foreshore.sources.outputs import Output
from foreshore.sources.postgres import PostgresSource, TableOptions, with_options
from foreshore.sources.spec import Feed, SourceSpec
from foreshore.storage.ingest.messages import Discovered
from foreshore.storage.ingest.postgres.details import Details


async def discovered_with(
    context: StatementContext, spec: SourceSpec, reference: str, options: TableOptions
) -> Discovered:
    """Return the outputs of a source where one table has options of its own.

    Raises InvalidParameterValue if the source is none of PostgreSQL.
    """
    if not isinstance(spec, PostgresSource):
        raise InvalidParameterValue(
            "only tables of PostgreSQL sources have options",
            hint="Leave out WITH (...).",
        )
    ingestion = context.feeds.ingestion
    present = await ingestion.discovered(spec)
    found = found_reference(present.outputs, reference)
    # Without a slot it is a new source, of which all names must exist.
    return await ingestion.discovered(
        with_options(msgspec.structs.replace(spec, slot=""), found, options)
    )


async def discovered_for(
    context: StatementContext, spec: PostgresSource, tables: Iterable[Item]
) -> Discovered:
    """Return the outputs of a source, and among them those of relations, by their own options."""
    ingestion = context.feeds.ingestion
    present = await ingestion.discovered(spec)
    outputs = dict(present.outputs)
    for each in tables:
        assert each.feed, each
        options, table = details_of(each.feed).options, table_of(each.feed)
        found = present
        if options is not None:
            found = await ingestion.discovered(with_options(spec, table, options))
        outputs.pop(each.feed.reference, None)
        if table in found.outputs:
            outputs[each.feed.reference] = found.outputs[table]
    return Discovered(present.spec, outputs)


def feed_of(
    planner: Planner,
    source: Item,
    reference: str,
    output: Output,
    name: str,
    options: TableOptions | None,
) -> Feed:
    """Return the feed of a new relation, called `name`, of a PostgreSQL source."""
    taken = {
        each.feed.reference for each in planner.state.items_of(parts_of(source.id)) if each.feed
    }
    details = msgspec.json.decode(output.details, type=Details)
    own = reference
    if reference in taken:
        own = f"{reference} as {name}"
        while own in taken:  # it was renamed meanwhile, or is in another schema
            own += "'"
        details = msgspec.structs.replace(details, table=reference)
    details = msgspec.structs.replace(details, options=options)
    return Feed(source.id, own, details=msgspec.json.encode(details).decode())
