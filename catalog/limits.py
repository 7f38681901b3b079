"""How many objects there may be of a kind, by settings of the server: max_tables and others.

A change of the catalog that makes more is refused; what is there already stays.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from foreshore.catalog.item import Cluster, Database, Item, Object, Role, Schema, Secret
from foreshore.catalog.state import State, is_system
from foreshore.catalog.system_settings import system_settings
from foreshore.errors import Unavailable
from foreshore.settings import LIMITS

_WHOLE = ""  # the place of objects that are counted over the whole catalog
Place = Callable[[Object], str | None]


class ObjectLimitExceeded(Unavailable):
    """There are as many objects of a kind as a setting allows."""

    sqlstate = "53000"


def _items(counts: Callable[[Item], object]) -> Place:
    return lambda each: _WHOLE if isinstance(each, Item) and counts(each) else None


def _all(kind: type) -> Place:
    return lambda each: _WHOLE if isinstance(each, kind) else None


# Where an object counts: for the whole catalog, for a schema or a database, or not at all.
_COUNTED: dict[str, Place] = {
    "max_tables": _items(lambda item: item.type == "table" and not item.feed and not item.part_of),
    "max_sources": _items(lambda item: item.feed and item.feed.spec is not None),
    "max_sinks": _items(lambda item: item.sink),
    "max_materialized_views": _items(lambda item: item.type == "materialized view"),
    "max_clusters": _all(Cluster),
    "max_databases": _all(Database),
    "max_roles": _all(Role),
    "max_secrets": _all(Secret),
    "max_schemas_per_database": lambda each: each.database if isinstance(each, Schema) else None,
    "max_objects_per_schema": lambda each: each.schema if isinstance(each, Item) else None,
}
assert _COUNTED.keys() == LIMITS.keys()


def check_limits(old: State, new: State) -> None:
    """Raise ObjectLimitExceeded if `new` has more objects than settings allow, and than `old`."""
    given = {name: int(value) for name, value in system_settings(new).items() if name in LIMITS}
    limits = {name: most for name, most in given.items() if most}
    if not limits:
        return
    created = [new.objects[id] for id in new.changed(old) if id in new.objects]
    created = [each for each in created if each.id not in old.objects and not is_system(each.id)]
    for name, most in limits.items():
        place = _COUNTED[name]
        concerned = {at for at in map(place, created) if at is not None}
        if not concerned:
            continue
        now, before = (_counts(place, state.objects.values()) for state in (new, old))
        for at in concerned:
            if now[at] > max(most, before[at]):
                kind = LIMITS[name]
                where = f" in {new.objects[at].kind} {new.objects[at].name}" if at else ""
                raise ObjectLimitExceeded(
                    f"too many {kind}{where}",
                    detail=f'There are {before[at]}, and the setting "{name}" allows {most}.',
                    hint=f"Drop {kind} that are not needed, or raise {name} by ALTER SYSTEM.",
                )


def _counts(place: Place, objects: Iterable[Object]) -> Counter[str]:
    own = (each for each in objects if not is_system(each.id))
    return Counter(at for at in map(place, own) if at is not None)
