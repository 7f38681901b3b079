"""Relations by their names in FROM, and which one may be meant by a name that none has."""

from foreshore.errors import UndefinedTable
from foreshore.item_view import ItemView
from foreshore.sql.bind.planning import Planning


def relation_called(planning: Planning, name: tuple[str, ...]) -> ItemView:
    """Return the relation of that name; an error for an unknown one says which may be meant."""
    try:
        return planning.catalog.resolve_item(name)
    except UndefinedTable as error:
        meant = planning.catalog.nearest_relation(name)
        if meant is not None:
            error.hint = f'Perhaps you meant to reference the relation "{meant}".'
        raise
