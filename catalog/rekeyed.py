"""Items whose ids, or those that they refer to, are replaced by others."""

from collections.abc import Mapping

from msgspec.structs import replace

from foreshore.catalog.item import Item
from foreshore.ids import GlobalId


def rekeyed(item: Item, ids: Mapping[GlobalId, GlobalId]) -> Item:
    """Return an item with new ids in place of old ones, its own and all that it has."""

    def now(id: GlobalId) -> GlobalId:
        return ids.get(id, id)

    owner, known, keys = item.owned_by, item.known, item.known_keys
    return replace(
        item,
        id=now(item.id),
        depends_on=tuple(sorted(map(now, item.depends_on))),
        bound=tuple((name, now(id)) for name, id in item.bound),
        on=item.on and now(item.on),
        policy=item.policy and item.policy.on(now(item.policy.table)),
        owned_by=owner and replace(owner, table=now(owner.table)),
        part_of=item.part_of and now(item.part_of),
        feed=item.feed and replace(item.feed, source=now(GlobalId(item.feed.source))),
        known=known and {now(id): columns for id, columns in known.items()},
        known_keys=keys and {now(id): each for id, each in keys.items()},
        foreign_keys=item.foreign_keys
        and tuple(replace(key, references=now(key.references)) for key in item.foreign_keys),
    )
