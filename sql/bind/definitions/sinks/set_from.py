"""Bind ALTER SINK ... SET FROM."""

from foreshore.sql import ast
from foreshore.sql.bind.definitions.objects import name_of
from foreshore.sql.bind.definitions.sinks.create import written_relation
from foreshore.sql.bind.definitions.sinks.keys import known_keys
from foreshore.sql.bind.definitions.subscribe import bind_create_subscription
from foreshore.sql.bind.planning import Planning
from foreshore.sql.plan import SetSinkFrom


def bind_set_sink_from(planning: Planning, statement: ast.SetSinkFromStatement) -> SetSinkFrom:
    """Return the plan of ALTER SINK ... SET FROM."""
    relation = statement.relation
    item = written_relation(planning, relation)
    keys = tuple(known_keys(planning, item))
    subscription = bind_create_subscription(
        planning,
        ast.CreateSubscriptionStatement(statement.name, relation, False, relation.at, relation.end),
    )
    name = name_of(planning, "sink", statement.name)
    return SetSinkFrom(name, subscription, keys, statement.if_exists)
