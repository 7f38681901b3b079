"""The keys of a relation that are known to be unique, by which a sink tells its rows apart."""

from foreshore.errors import FeatureNotSupported
from foreshore.item_view import ItemView
from foreshore.sql.bind.item_relations import renumbered
from foreshore.sql.bind.planning import Planning
from foreshore.sql.bind.result import lower_and_optimize_block
from foreshore.sql.optimize.properties import unique_keys

Names = tuple[str, ...]


def known_keys(planning: Planning, item: ItemView) -> list[Names]:
    """Return the columns of each key, first those without NULLs, then those with few columns.

    A table has those of its constraints, a materialized view those that follow from its query.
    """
    desc = item.desc
    keys = [tuple(key) for key in desc.keys]
    if item.kind == "materialized view":
        keys += _derived(planning, item)
    keys.sort(key=lambda key: (any(desc.columns[i].nullable for i in key), len(key)))
    return [tuple(desc.names[place] for place in key) for key in keys]


def _derived(planning: Planning, item: ItemView) -> list[tuple[int, ...]]:
    try:
        definition = planning.catalog.definition_of(item.id)
    except FeatureNotSupported:  # its rows are those of a refresh
        return []
    block = lower_and_optimize_block(renumbered(planning, definition))
    if block.recursions:
        return []
    # a relation of at most one row has the empty key, and so any column is one
    return [tuple(sorted(key)) or (0,) for key in unique_keys(block.relation)]
