"""The names that the planning of a statement looked up, and whether they mean the same elsewhere.

A query of system relations depends on no object of a user, but on the names in it: `pg_class` could
be a table of a schema that is searched first. So its plan is valid in every state of the catalog
in which these names, few and quickly looked up, mean what they meant.
"""

from dataclasses import dataclass, field

from foreshore.catalog.names import Names
from foreshore.errors import DatabaseError
from foreshore.ids import GlobalId

Parts = tuple[str, ...]


@dataclass(eq=False)
class Lookups:
    """Names with what they meant: system relations, or no relation, type or function at all."""

    path: tuple[str, ...]
    relations: dict[Parts, GlobalId | None] = field(default_factory=dict)
    types: set[Parts] = field(default_factory=set)  # that are none of the catalog's
    functions: set[Parts] = field(default_factory=set)  # likewise
    only_system: bool = True  # whether nothing else of the catalog was asked for

    def hold_in(self, names: Names) -> bool:
        """Whether all names mean the same in another state or for another session."""
        if self.path != names.search_path:
            return False
        try:
            return (
                all(_relation(names, parts) == id for parts, id in self.relations.items())
                and not any(map(names.find_type, self.types))
                and not any(map(names.find_functions, self.functions))
            )
        except DatabaseError:
            return False


def _relation(names: Names, parts: Parts) -> GlobalId | None:
    found = names.find(parts)
    return None if found is None else found.id
