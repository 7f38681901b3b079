"""Bind WAIT FOR SINKS."""

from foreshore.sql import ast
from foreshore.sql.bind.definitions.objects import name_of
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.time import bind_as_of
from foreshore.sql.plan import WaitForSinks


def bind_wait_for_sinks(planning: Planning, statement: ast.WaitForSinksStatement) -> WaitForSinks:
    """Return the plan of WAIT FOR SINKS."""
    sinks = None
    if statement.sinks is not None:
        sinks = tuple(name_of(planning, "sink", each) for each in statement.sinks)
    as_of = None if statement.as_of is None else bind_as_of(planning, statement.as_of)
    return WaitForSinks(sinks, as_of)
