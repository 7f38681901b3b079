"""Connections with the values of their secrets, for who reaches external systems."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import TypeAlias

from foreshore.adapter.services.names import Names
from foreshore.catalog.groups import using
from foreshore.catalog.item import Connection, Item, Object, Role, Secret
from foreshore.catalog.references import Reference
from foreshore.catalog.state import State
from foreshore.connection_spec import TUNNEL, ConnectionSpec
from foreshore.errors import InvalidParameterValue
from foreshore.storage.external.access import APPLICATION, Access, Accesses, Tunnel

Find: TypeAlias = Callable[[str], Object | None]  # the objects by their ids

SSH_PORT = "22"


def accesses(names: Names, find: Find, connections: Iterable[str]) -> Accesses:
    """Return these connections by their ids; raises DatabaseError if a secret cannot be read."""
    return {id: access(names, find, _connection(find, id)) for id in connections}


def access(names: Names, find: Find, connection: Connection) -> Access:
    """Return a connection with the values of its secrets; raises as `accesses` does."""
    spec = connection.spec
    if spec.kind == TUNNEL:
        return Access(spec.kind, {}, _tunnel(names, connection))
    return access_by(names, find, connection.name, spec, connection.owner)


def access_by(names: Names, find: Find, name: str, spec: ConnectionSpec, owner: str) -> Access:
    """Return a connection of this name and owner with the values of its secrets.

    A PostgreSQL server knows by the application's name which database's sessions are which: that of
    a restored backup must not end those of the original.
    """
    options = {}
    if spec.kind == "postgres":
        options[APPLICATION] = f"foreshore {names.lineage.database[:12]}"
    for option, value in spec.options.items():
        if isinstance(value, str):
            options[option] = value
            continue
        try:
            options[option] = names.secrets.value(find(value.secret)).decode()
        except UnicodeDecodeError:
            raise InvalidParameterValue(
                f'the secret for option "{option}" of connection "{name}" is no text'
            ) from None
    tunnel = None
    if spec.tunnel is not None:
        tunnel = _tunnel(names, _connection(find, spec.tunnel))
    role = find(owner)  # a directory of an older version may lack it (`role_names.py`)
    by_superuser = isinstance(role, Role) and role.superuser
    return Access(spec.kind, options, tunnel, by_superuser)


def affected_items(state: State, changed: Object) -> Iterator[Item]:
    """Yield the items for which a change of an object may matter: itself, or what reaches by it.

    Whether a role is a superuser decides what its connections need.
    """
    match changed:
        case Item():
            yield changed
        case Connection() | Secret():
            for user in state.grouped(using(changed)):
                yield from affected_items(state, user)
        case Role():
            for owned in state.grouped(Reference("owner", changed.id)):
                if isinstance(owned, Connection):
                    yield from affected_items(state, owned)
        case _:
            return


def _connection(find: Find, id: str) -> Connection:
    found = find(id)
    assert isinstance(found, Connection), found
    return found


def _tunnel(names: Names, connection: Connection) -> Tunnel:
    """Return an SSH server with our private keys, and where its host key is kept."""
    given = {name: str(value) for name, value in connection.spec.options.items()}
    host, port = given["host"], given.get("port", SSH_PORT)
    digest = hashlib.sha256(f"{host}:{port}".encode()).hexdigest()[:16]
    name = f'the key of connection "{connection.name}"'
    opened = names.secrets.opened
    keys = tuple(opened(connection.id, each.sealed, name).decode() for each in connection.keys)
    kept = str(names.host_keys / f"{connection.id}-{digest}")
    return Tunnel(host, int(port), given["user"], given.get("host key"), kept, keys)
