"""The relations that the information schema shows to the role of a session, as in PostgreSQL.

It shows the relations and columns on which the role has a right, and definitions only of those
whose owner's rights it has. pg_catalog shows all of them to everybody.
"""

from collections.abc import Iterator

from foreshore.catalog.builtin.relation import IntrospectionSnapshot
from foreshore.catalog.item import Item, Schema
from foreshore.catalog.predefined import EVERYWHERE
from foreshore.catalog.rights import grants_on, roles_with_rights_of
from foreshore.privileges import LETTERS, PUBLIC, Grant, Privilege

_NAMES: dict[str, Privilege] = {letter: name for name, letter in LETTERS.items()}


class Shown:
    """The objects that a snapshot's role may see: all for superusers, and without a role."""

    def __init__(self, snapshot: IntrospectionSnapshot) -> None:
        role = snapshot.role
        self._items = snapshot.own_items
        self.all = role is None or role.superuser
        own = frozenset() if role is None else roles_with_rights_of(snapshot.state, role)
        self._roles, self._grantees = own, own | {PUBLIC}
        given = {letter for letter in "rawd" if own & EVERYWHERE[("table", _NAMES[letter])]}
        self._everywhere = frozenset(given)  # the letters of rights on all relations

    def items(self) -> Iterator[Item]:
        """Yield the items on which the role has a right, or on one of their columns."""
        for item in self._items:
            if self._everywhere:
                yield item
                continue
            columns = (item.column_grants or {}).values()
            if self.owned(item) or any(map(self._has, (grants_on(item), *columns))):
                yield item

    def owned(self, item: Item) -> bool:
        """Return whether the role has the rights of an item's owner."""
        return self.all or item.owner in self._roles

    def granted(self, item: Item) -> bool:
        """Return whether the role has a right on a type or function, or is its owner."""
        return self.owned(item) or self._has(grants_on(item))

    def column(self, item: Item, position: int) -> bool:
        """Return whether the role has a right on the column at a position, from 1."""
        grants = (item.column_grants or {}).get(position, ())
        if self.owned(item) or self._everywhere & set("raw"):
            return True
        return self._has(grants) or self._has(grants_on(item), "rawx")

    def changed(self, item: Item) -> bool:
        """Return whether the role has a right on the relation, or on a column, but to read it."""
        columns = (item.column_grants or {}).values()
        if self.owned(item) or self._everywhere - {"r"} or self._has(grants_on(item), "awdDxt"):
            return True
        return any(self._has(grants, "awx") for grants in columns)

    def schema(self, schema: Schema) -> bool:
        """Return whether the role owns a schema or has a right on it."""
        return (
            self.all
            or schema.owner in self._roles
            or bool(self._everywhere)
            or self._has(grants_on(schema))
        )

    def _has(self, grants: tuple[Grant, ...], letters: str = "") -> bool:
        return any(
            grant.grantee in self._grantees
            and bool(set(letters) & set(grant.rights) if letters else grant.rights)
            for grant in grants
        )
