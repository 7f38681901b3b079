"""SHOW CREATE CONNECTION: the text of a connection."""

from foreshore.catalog.item import Connection, Schema, Secret
from foreshore.catalog.state import State
from foreshore.connection_spec import (
    SecretRef,
)
from foreshore.sql.parse.keywords import quote_string
from foreshore.sql.rewrite.full_names import dotted


def connection_text(state: State, connection: Connection) -> str:
    """Return the statement that creates a connection, with the present names of its secrets."""
    options = [
        f"{name.upper()} = {_shown(state, value)}"
        for name, value in connection.spec.options.items()
    ]
    kind = connection.spec.kind.upper()
    if connection.spec.tunnel is not None:
        through = state.objects[connection.spec.tunnel]
        assert isinstance(through, Connection), through
        options.append(f"SSH TUNNEL = {dotted(full_name(state, through))}")
    name = dotted(full_name(state, connection))
    return f"CREATE CONNECTION {name} TO {kind} ({', '.join(options)})"


def _shown(state: State, value: str | SecretRef) -> str:
    if isinstance(value, str):
        return quote_string(value)
    secret = state.objects[value.secret]
    assert isinstance(secret, Secret), secret
    return f"SECRET {dotted(full_name(state, secret))}"


def full_name(state: State, each: Connection | Secret) -> tuple[str, ...]:
    """Return the names of database, schema and object."""
    schema = state.objects[each.schema]
    assert isinstance(schema, Schema), schema
    return (state.objects[schema.database or ""].name, schema.name, each.name)
