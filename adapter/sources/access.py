"""Connections with the values of their secrets, for who reaches external systems."""

from collections.abc import Iterable

from foreshore.catalog.item import Connection
from foreshore.catalog.secret_values import Secrets
from foreshore.catalog.state import State
from foreshore.connection_spec import ConnectionSpec
from foreshore.errors import InvalidParameterValue
from foreshore.storage.external.access import Access, Accesses


def accesses(state: State, secrets: Secrets, connections: Iterable[str]) -> Accesses:
    """Return these connections by their ids; raises DatabaseError if a secret cannot be read."""
    return {id: access(state, secrets, id) for id in connections}


def access(state: State, secrets: Secrets, id: str) -> Access:
    """Return a connection with the values of its secrets; raises as `accesses` does."""
    connection = state.objects[id]
    assert isinstance(connection, Connection), connection
    return access_by(secrets, connection.name, connection.spec)


def access_by(secrets: Secrets, name: str, spec: ConnectionSpec) -> Access:
    """Return a connection of this name with the values of its secrets."""
    options = {}
    for option, value in spec.options.items():
        if isinstance(value, str):
            options[option] = value
            continue
        try:
            options[option] = secrets.read(value.secret).decode()
        except UnicodeDecodeError:
            raise InvalidParameterValue(
                f'the secret for option "{option}" of connection "{name}" is no text'
            ) from None
    return Access(spec.kind, options)
