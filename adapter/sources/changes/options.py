"""ALTER SOURCE ... SET and RESET: options that a running source may get anew."""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.objects import find_if_exists
from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.item import Item
from foreshore.errors import InvalidParameterValue, WrongObjectType
from foreshore.sources.spec import kind_of
from foreshore.sql.plan import AlterSource

_OPTIONS = {
    "batch_ms": "timestamp interval",
    "poll_ms": "poll interval",
    "timeout_ms": "timeout",
}
_Spec = TypeVar("_Spec", bound=msgspec.Struct)


def alter_source(context: StatementContext, plan: AlterSource) -> Completed:
    """Run ALTER SOURCE ... SET and RESET; the source is run anew when it has committed."""
    found = find_if_exists(context, "source", plan.name, if_exists=plan.if_exists, altered=True)
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


def with_options(spec: _Spec, changes: Mapping[str, Any], what: str) -> _Spec:
    """Return `spec` with other values of fields, None for the default.

    Raises InvalidParameterValue if it lacks one; `what` has such options.
    """
    fields = {each.name: each.default for each in msgspec.structs.fields(spec)}
    for name in changes:
        if name not in fields:
            raise InvalidParameterValue(f'{what} have no option "{_OPTIONS[name]}"')
    values = {name: fields[name] if value is None else value for name, value in changes.items()}
    return msgspec.structs.replace(spec, **values)
