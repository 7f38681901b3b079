"""Leftovers: what a dropped source or sink has left in another system, until it is removed there.

A leftover is a row of the catalog's shard, written in the commit of the DROP and retracted once the
other system has confirmed the removal. So the end of the server between the two loses nothing. It
has all that the removal needs: connections and secrets may be dropped meanwhile. Secrets stay as
sealed as they were.
"""

from collections.abc import Iterable

import msgspec

from foreshore.catalog.item import Connection, Item, Object, Secret
from foreshore.catalog.state import State
from foreshore.ids import GlobalId
from foreshore.sinks.spec import SinkSpec
from foreshore.sources.spec import SourceSpec


class Leftover(msgspec.Struct, frozen=True):
    """The remains of a dropped source or sink in another system.

    Either `source` or `sink` is set.
    """

    id: GlobalId  # of the source or sink
    name: str
    owner: str  # the id of a role
    what: str  # for users, such as `replication slot "x"`
    dropped_at: int  # in milliseconds since 1970
    connections: tuple[Connection, ...]
    secrets: tuple[Secret, ...]
    source: SourceSpec | None = None
    sink: SinkSpec | None = None
    written_as: str = ""  # the name of a sink in its target

    @property
    def connection(self) -> str | None:
        """Return the id of the connection to the other system; None if it is a place of files."""
        return self.connections[0].id if self.connections else None

    def find(self, state: State, id: str) -> Object | None:
        """Return an object as it is in the catalog, or as it was before it was dropped."""
        kept: Iterable[Connection | Secret] = (*self.connections, *self.secrets)
        return state.get(id) or next((each for each in kept if each.id == id), None)

    def needs(self, changed: Object) -> bool:
        """Return whether a change of an object may let the removal succeed."""
        ids = {each.id for each in self.connections} | {each.id for each in self.secrets}
        return changed.id in ids


def leftover(
    state: State,
    item: Item,
    what: str,
    connections: Iterable[str],
    dropped_at: int,
    written_as: str = "",
    source: SourceSpec | None = None,
) -> Leftover:
    """Return what an item of `state` leaves, with all that its removal needs.

    `source` is what the item reads in truth, as in a restored database.
    """
    needed: dict[str, Connection] = {}
    for id in connections:
        while id not in needed:
            connection = state.objects[id]
            assert isinstance(connection, Connection), connection
            needed[id] = connection
            id = connection.spec.tunnel or id
    secrets = sorted({id for each in needed.values() for id in each.spec.secrets})
    kept = [found for id in secrets if isinstance(found := state.get(id), Secret)]
    return Leftover(
        item.id,
        item.name,
        item.owner,
        what,
        dropped_at,
        tuple(needed.values()),
        tuple(kept),
        source,
        item.sink or None if source is None else None,
        written_as,
    )
