"""The table that a statement writes, as it is planned."""

from msgspec import Struct

from foreshore.catalog.item import Item
from foreshore.catalog.planned import Planned
from foreshore.catalog.state import State
from foreshore.ids import GlobalId
from foreshore.types import RelationDesc


class Target(Struct, frozen=True):
    """A table and the definition for which a statement makes its rows.

    The definition is another one after a foreign key of the table, or to it, was added.
    """

    id: GlobalId
    planned: Planned
    desc: RelationDesc  # its columns
    width: int  # how many they are
    has_foreign_keys: bool  # whether it refers to another table, or is referred to


def target_in(state: State, planned: Planned, id: GlobalId) -> Target:
    """Return table `id`, which is `planned`, as a target."""
    width, keys = len(planned.desc.columns), state.has_foreign_keys(id)
    return Target(id, planned, planned.desc, width, keys)


def marked_by(state: State, id: GlobalId) -> GlobalId | None:
    """Return the table of which relation `id` has to what the clock moves its watermark, if any."""
    item = state.get(id)
    return item.part_of or None if isinstance(item, Item) and item.is_marks else None
