"""Dangling references: to objects that a state of the catalog does not have."""

from typing import NamedTuple

from foreshore.catalog.item import Object, Role
from foreshore.catalog.references import NAMED, Reference, references, references_to
from foreshore.catalog.state import State
from foreshore.errors import Conflict, UndefinedObject


class Dangling(NamedTuple):
    """A reference of an object to nothing."""

    object: Object
    reference: Reference


def exists(state: State, reference: Reference) -> bool:
    """Return whether a state has what is named."""
    if reference.kind == "network policy":
        return state.network_policy(reference.id) is not None
    return reference.id in state.objects


def dangling(state: State) -> list[Dangling]:
    """Return the references to nothing of all objects, each once."""
    found: dict[tuple[str, Reference], Dangling] = {}
    for each in state.objects.values():
        for reference in references(each):
            if not exists(state, reference):
                found[each.id, reference] = Dangling(each, reference)
    return list(found.values())


def check_references(old: State, new: State) -> None:
    """Raise if a reference to nothing would be in `new`, which has been made of `old`.

    UndefinedObject if a new or changed object names a role or a network policy that was dropped
    meanwhile, Conflict in all other cases. It takes a time in proportion to the changed objects.
    """
    for id in new.changed(old):
        each = new.get(id)
        if each is None:
            dropped = old.get(id)
            assert dropped is not None, id
            for reference in references_to(dropped):
                if reference in new.groups and not exists(new, reference):
                    raise _conflict()
        else:
            for reference in references(each):
                if not exists(new, reference):
                    raise _missing(each, reference)


def _missing(each: Object, reference: Reference) -> Conflict | UndefinedObject:
    """Return the error for a changed object that names what was dropped meanwhile."""
    detail = f"{each.kind} {each.name} would be the role's or depend on it."
    if NAMED[reference.kind] is Role:
        return UndefinedObject(
            f"role {reference.id[1:]} was concurrently dropped",
            detail=detail,
        )
    if reference.kind == "network policy":
        return UndefinedObject(f'network policy "{reference.id}" does not exist')
    return _conflict()


def _conflict() -> Conflict:
    return Conflict("could not serialize access due to a concurrent change of the catalog")


def describe(found: Dangling) -> str:
    """Return a line such as `table ut (u7): grantee o12 does not exist`."""
    each, (kind, id) = found
    return f"{each.kind} {each.name} ({each.id}): {kind} {id} does not exist"
