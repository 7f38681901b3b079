"""Bind the connection that a source uses."""

from foreshore.connection_spec import ConnectionKind
from foreshore.errors import WrongObjectType
from foreshore.sql import ast
from foreshore.sql.bind.planning import Planning, located


def bind_connection(planning: Planning, name: ast.TableRef, kind: ConnectionKind) -> str:
    """Return the id of a connection, which must be of this kind."""
    with located(name.at):
        id, found = planning.catalog.connection_named(name.name)
        if found != kind:
            raise WrongObjectType(
                f'connection "{name.name[-1]}" is to {found.upper()}, not to {kind.upper()}'
            )
    return id
