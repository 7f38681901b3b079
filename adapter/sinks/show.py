"""SHOW CREATE SINK."""

from foreshore.adapter.sources.connections import full_name
from foreshore.catalog.item import Connection, Item
from foreshore.catalog.state import State
from foreshore.sinks.spec import PostgresTarget, SinkSpec, Target
from foreshore.sql.parse.keywords import quote_identifier, quote_string
from foreshore.sql.rewrite.full_names import dotted


def sink_text(state: State, item: Item, spec: SinkSpec) -> str:
    """Return the statement that creates a sink, with the present names of all objects."""
    (relation,) = item.depends_on
    cluster = quote_identifier(state.objects[item.cluster or ""].name)
    key = ""
    if spec.key:
        key = f" KEY ({', '.join(map(quote_identifier, spec.key))}) NOT ENFORCED"
    return (
        f"CREATE SINK {dotted(state.full_name(item))} IN CLUSTER {cluster} "
        f"FROM {dotted(state.full_name(state.item(relation)))} INTO {_written(state, spec.target)}"
        f"{key} ENVELOPE {spec.envelope.upper()} WITH (SNAPSHOT = {str(spec.with_snapshot).lower()}"
        f", COMMIT INTERVAL = '{spec.commit_ms} ms')"
    )


def _written(state: State, target: Target) -> str:
    connection = state.objects[target.connection]
    assert isinstance(connection, Connection), connection
    called = dotted(full_name(state, connection))
    match target:
        case PostgresTarget(table=table):
            return f"POSTGRES CONNECTION {called} (TABLE = {quote_string(table)})"
