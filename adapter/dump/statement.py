"""A statement of a dump, and how its statements name functions."""

from typing import Literal as OneOf
from typing import NamedTuple

from foreshore.adapter.definitions.catalog_reader import SessionCatalog
from foreshore.catalog.item import Item
from foreshore.sql.rewrite.full_names import dotted
from foreshore.types import SqlType

Part = OneOf["definition", "owner", "privilege"]


class Dumped(NamedTuple):
    """A statement of a dump, with the kind and name of the object that it is about."""

    type: str
    name: str
    create_sql: str
    part: Part = "definition"


def signature(reader: SessionCatalog, item: Item) -> str:
    """Return the name of a function with the types of its parameters, without the database's."""
    function = reader.planned[item.id].function
    assert function is not None, item
    types = ", ".join(map(_type_name, function.types))
    return f"{dotted(reader.state.full_name(item)[1:])}({types})"


def _type_name(type: SqlType) -> str:
    if type.element is not None:
        return f"{_type_name(type.element)}[]"
    return str(type) if type.defined is None else dotted(type.defined.parts[-2:])
