"""The changes of a state's mappings when some of its objects change."""

from collections.abc import Mapping

from foreshore.catalog.groups import NO_IDS, Group, Ids, groups_of
from foreshore.catalog.item import Item, Object
from foreshore.catalog.naming import NameKey, name_key, names_of_keys
from foreshore.errors import InternalError
from foreshore.layered_map import LayeredMap


class StateChanges:
    """The changes of a state's mappings when objects are removed and then others added."""

    def __init__(self, names: Mapping[NameKey, str], groups: LayeredMap[Group, Ids]) -> None:
        self._names_before, self._groups_before = names, groups
        self.names: dict[NameKey, str | None] = {}
        self.oids: dict[int, str | None] = {}
        self.keys: dict[tuple[str, str], str | None] = {}
        self._groups: dict[Group, dict[str, bool | None]] = {}

    def remove(self, old: Object) -> None:
        """Let the mappings forget an object."""
        self.names[name_key(old)] = None
        for group in groups_of(old):
            self._groups.setdefault(group, {})[old.id] = None
        if isinstance(old, Item):
            self.keys.update(dict.fromkeys(names_of_keys(old)))
            self.oids[old.oid] = None

    def add(self, id: str, new: Object) -> None:
        """Let the mappings know an object."""
        key = name_key(new)
        if self.names.get(key, None if key in self.names else self._names_before.get(key)):
            raise InternalError(f"{new.kind} {new.name!r} is in the catalog twice")
        self.names[key] = id
        for group in groups_of(new):
            self._groups.setdefault(group, {})[id] = True
        if isinstance(new, Item):
            self.keys.update(dict.fromkeys(names_of_keys(new), id))
            self.oids[new.oid] = id

    def changed_groups(self) -> LayeredMap[Group, Ids]:
        """Return the groups after the changes."""
        groups = self._groups_before
        changed = {
            group: groups.get(group, NO_IDS).changed(ids) for group, ids in self._groups.items()
        }
        return groups.changed({group: ids if len(ids) else None for group, ids in changed.items()})
