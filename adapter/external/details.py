"""The state that relations of PostgreSQL sources keep of their tables."""

import msgspec

from foreshore.sources.postgres import PostgresSource
from foreshore.sources.spec import Feed, SourceSpec
from foreshore.storage.ingest.postgres.details import Details


def details_of(feed: Feed) -> Details:
    """Return what a relation remembers of its table."""
    return msgspec.json.decode(feed.details, type=Details)


def table_of(feed: Feed) -> str:
    """Return the reference of the table that a relation of a PostgreSQL source reads."""
    return details_of(feed).table or feed.reference


def left_out_of(spec: SourceSpec | None, feed: Feed) -> tuple[str, ...]:
    """Return the columns of its table that a relation lacks, as something needs its history."""
    if not isinstance(spec, PostgresSource) or not feed.details:
        return ()
    return details_of(feed).left_out
