"""Bind ALTER SOURCE and ALTER SINK ... SET and RESET."""

from collections.abc import Mapping
from typing import Any

from foreshore.sql import ast
from foreshore.sql.bind.definitions.objects import name_of
from foreshore.sql.bind.definitions.sinks.create import COMMIT_INTERVAL, TIMEOUT
from foreshore.sql.bind.definitions.sources.kafka import batch_interval
from foreshore.sql.bind.definitions.sources.options import Parse, milliseconds, parsed_options
from foreshore.sql.bind.planning import Planning
from foreshore.sql.plan import AlterSink, AlterSource

_OF_SOURCES: Mapping[str, tuple[str, Parse]] = {
    "timestamp interval": ("batch_ms", batch_interval),
    "poll interval": ("poll_ms", milliseconds),
}
_OF_SINKS: Mapping[str, tuple[str, Parse]] = {**COMMIT_INTERVAL, **TIMEOUT}


def bind_alter_options(
    planning: Planning, statement: ast.AlterOptionsStatement
) -> AlterSource | AlterSink:
    """Return the plan of ALTER SOURCE or ALTER SINK ... SET or RESET, or of RESUME of a sink."""
    known = _OF_SOURCES if statement.kind == "source" else _OF_SINKS
    if statement.resets:
        known = {option: (field, _default) for option, (field, _) in known.items()}
    what = f"ALTER {statement.kind.upper()}"
    changes = parsed_options(what, statement.options, known)
    name = name_of(planning, statement.kind, statement.name)
    if statement.kind == "source":
        return AlterSource(name, changes, statement.if_exists)
    return AlterSink(name, changes, statement.if_exists, statement.resumes)


def _default(_: str, __: Any) -> None:
    """Return the mark of the default."""
