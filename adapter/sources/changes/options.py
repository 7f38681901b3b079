"""ALTER SOURCE ... SET and RESET: options that a running source may get anew."""

import msgspec

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.objects import find_if_exists
from foreshore.adapter.ddl.options import with_options
from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.item import Item
from foreshore.errors import WrongObjectType
from foreshore.sources.spec import kind_of
from foreshore.sql.plan import AlterSource


def alter_source(context: StatementContext, plan: AlterSource) -> Completed:
    """Run ALTER SOURCE ... SET and RESET; the source is run anew when it has committed."""
    found = find_if_exists(
        context.planner, context.notice, "source", plan.name, if_exists=plan.if_exists, altered=True
    )
    if found is not None:
        assert isinstance(found, Item), found
        feed = found.feed
        if not feed or feed.spec is None:
            raise WrongObjectType(
                f'"{found.name}" is a relation of a source', hint="Alter the source."
            )
        spec = with_options(feed.spec, plan.changes, f"sources of {kind_of(feed.spec).upper()}")
        changed = msgspec.structs.replace(feed, spec=spec)
        context.catalog_change().put(msgspec.structs.replace(found, feed=changed))
    return Completed("ALTER SOURCE")
