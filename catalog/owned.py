"""The objects and rights of a role, which must be removed before the role can be dropped."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import msgspec

from foreshore.catalog import acl
from foreshore.catalog.item import (
    Connection,
    Granted,
    Item,
    Object,
    Replica,
    Role,
    Schema,
    Secret,
)
from foreshore.catalog.state import State, is_system
from foreshore.catalog.transaction import Transaction
from foreshore.privileges import Grant

_MOST = 100  # lines of a DETAIL


def describe_uses(
    state: State,
    role: Role,
    database: str,
    describe: Callable[[Object], str],
    column: Callable[[Item, int], str],
) -> list[str]:
    """Return what depends on a role, as PostgreSQL's DETAIL says it.

    Objects of other databases than the one called `database` are only counted. `column` returns the
    name of a column by its position.
    """
    here = list(_default_uses(state, role))
    elsewhere = Counter[str]()
    for each, sub, owns in _uses(state, role):
        place = database_of(state, each)
        if place is not None and place != database:
            elsewhere[place] += 1
        elif owns:
            here.append((each.oid, 0, f"owner of {describe(each)}"))
        elif sub < 0:
            here.append((each.oid, 0, f"target of {describe(each)}"))
        elif sub:
            assert isinstance(each, Item), each
            said = f"privileges for column {column(each, sub)} of {describe(each)}"
            here.append((each.oid, sub, said))
        else:
            here.append((each.oid, 0, f"privileges for {describe(each)}"))
    counted = [
        f"{count} object{'' if count == 1 else 's'} in database {name}"
        for name, count in elsewhere.items()
    ]
    return [said for _, _, said in sorted(here)][:_MOST] + counted


def _uses(state: State, role: Role) -> Iterator[tuple[Object, int, bool]]:
    """Yield the objects that a role owns (True) or has rights on, a column by its position."""
    for each in state.objects.values():
        if isinstance(each, Role):
            continue
        if each.owner == role.id:
            if not is_part(state, each):
                yield each, 0, True
        elif isinstance(each, Granted) and mentions(each.grants or (), role.id):
            yield each, 0, False
        if isinstance(each, Item) and each.policy and role.id in each.policy.roles:
            yield each, -1, False
        if isinstance(each, Item) and each.column_grants and each.owner != role.id:
            for position, grants in each.column_grants.items():
                if mentions(grants, role.id):
                    yield each, position, False


_CALLED = {
    "table": "relations",
    "sequence": "sequences",
    "function": "functions",
    "type": "types",
    "schema": "schemas",
}


def _default_uses(state: State, role: Role) -> Iterator[tuple[int, int, str]]:
    """Yield the uses of a role in default rights, with their oids."""
    for each in state.all(Role):
        for defaults in each.default_grants:
            if defaults.schema is not None and defaults.schema not in state.objects:
                continue  # it was dropped
            what = f"default privileges on new {_CALLED[defaults.kind]} belonging to role"
            where = ""
            if defaults.schema is not None:
                where = f" in schema {state.objects[defaults.schema].name}"
            if each.id == role.id:
                yield defaults.oid, 0, f"owner of {what} {each.name}{where}"
            elif mentions(defaults.grants, role.id):
                yield defaults.oid, 0, f"privileges for {what} {each.name}{where}"


def without_rights_of(change: Transaction, role: Role, database: str) -> None:
    """Take away all rights that a role has or has given, but for those in other databases."""
    for each in list(change.state.objects.values()):
        if isinstance(each, Role):
            if not is_system(each.id):
                change.put(_without_defaults(each, role.id))
            continue
        if not isinstance(each, Granted) or database_of(change.state, each) not in (None, database):
            continue
        if each.grants and each.owner != role.id and mentions(each.grants, role.id):
            each = change.put(
                msgspec.structs.replace(each, grants=acl.without_role(each.grants, role.id))
            )
        if isinstance(each, Item) and each.column_grants:
            left = {
                at: acl.without_role(grants, role.id) for at, grants in each.column_grants.items()
            }
            kept = {at: grants for at, grants in left.items() if grants}
            change.put(msgspec.structs.replace(each, column_grants=kept or msgspec.UNSET))


def _without_defaults(each: Role, role: str) -> Role:
    if each.id == role:
        return msgspec.structs.replace(each, default_grants=())
    left = (
        msgspec.structs.replace(one, grants=acl.without_role(one.grants, role))
        for one in each.default_grants
    )
    return msgspec.structs.replace(each, default_grants=tuple(one for one in left if one.grants))


def is_part(state: State, each: Object) -> bool:
    """Return whether an object has the owner of another one, that it is part of."""
    match each:
        case Item(on=on, policy=policy) if on is not None or policy:
            return True
        case Item(owned_by=owner, part_of=whole) if owner or whole:
            return True
        case Replica():
            return True
        case _:
            return False


def mentions(grants: Iterable[Grant], role: str) -> bool:
    """Return whether a role has, or has given, one of the rights."""
    return any(role in (each.grantee, each.grantor) for each in grants)


def database_of(state: State, each: Object) -> str | None:
    """Return the name of the database in which an object is, None if it is in none."""
    schema = state.objects[each.schema] if isinstance(each, Item | Secret | Connection) else each
    if isinstance(schema, Schema) and schema.database is not None:
        return state.objects[schema.database].name
    return None
