"""The audit of the catalog: what a change did to each object, and for whom.

Each event is one object's: it was created, altered, renamed, dropped, given to another owner, or
somebody was granted or revoked a right on it, or a membership. Values that may be secret or long,
such as passwords and definitions, are not told: only which attributes have changed.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import msgspec
import pyarrow as pa

from foreshore.catalog.item import (
    Cluster,
    Connection,
    Database,
    Grantable,
    Item,
    Object,
    Role,
    Schema,
    Secret,
    SystemSettings,
)
from foreshore.catalog.rights import grants_on, kind_of
from foreshore.catalog.state import State
from foreshore.privileges import PUBLIC, Grant, initial
from foreshore.text import parse_text
from foreshore.types import JSONB
from foreshore.update import DIFF, TIME, Timestamp, update_schema

# Attributes whose changes are events of their own, or follow from those of other objects.
_TOLD = frozenset(("name", "owner", "grants", "column_grants", "member_of"))
_DERIVED = frozenset(("id", "bound", "known", "known_keys", "depends_on", "generation"))
_CALLED = {"verifier": "password", "sealed": "value"}
_PER_MILLISECOND = 1_000_000  # the most events of a change


class Event(NamedTuple):
    """A change of one object, as the audit shows it."""

    kind: str
    object_type: str
    details: Mapping[str, Any]


def events(old: State, new: State) -> Iterator[Event]:
    """Yield what happened between two states, in the order of oids; temporary objects are not told.

    An object that got a new id with its oid was altered.
    """
    for before, after in _changes(old, new):
        if _is_temporary(before) or _is_temporary(after):
            continue
        if isinstance(after, SystemSettings):
            was = before.settings if isinstance(before, SystemSettings) else {}
            both = was.keys() | after.settings.keys()
            changed = sorted(each for each in both if was.get(each) != after.settings.get(each))
            yield Event("alter", "system", {"changed": changed})
        elif before is None:
            assert after is not None
            yield Event("create", _type(after), _named(new, after))
            yield from _granted(new, after, _usual(after), _grants(after))
        elif after is None:
            assert before is not None
            yield Event("drop", _type(before), _named(old, before))
        else:
            yield from _altered(old, new, before, after)


def _changes(old: State, new: State) -> list[tuple[Object | None, Object | None]]:
    """Return the objects that differ, before and after, in the order of oids."""
    changed = new.changed(old)
    was = {_key(each): each for id in changed if (each := old.get(id)) is not None}
    now = {_key(each): each for id in changed if (each := new.get(id)) is not None}
    return [(was.get(key), now.get(key)) for key in sorted(was.keys() | now.keys())]


def _key(each: Object) -> tuple[int, str]:
    return each.oid, "" if isinstance(each, Item) else each.id


def _altered(old: State, new: State, before: Object, after: Object) -> Iterator[Event]:
    named, type = _named(new, after), _type(after)
    if before.name != after.name:
        yield Event("rename", type, {**named, "old_name": before.name})
    if isinstance(before, Role):
        assert isinstance(after, Role), after
        yield from _memberships(new, before, after)
    elif isinstance(after, Role):
        raise AssertionError(f"{before} became {after}")
    elif before.owner != after.owner:  # whom the rights follow
        owners = {"old_owner": _role(old, before.owner), "new_owner": _role(new, after.owner)}
        yield Event("owner", type, {**named, **owners})
    else:
        yield from _granted(new, after, _grants(before), _grants(after))
    changed = sorted(
        _CALLED.get(name, name)
        for name in after.__struct_fields__
        if name not in _TOLD | _DERIVED
        and getattr(before, name, msgspec.UNSET) != getattr(after, name)
    )
    if changed:
        yield Event("alter", type, {**named, "changed": changed})


def _memberships(state: State, before: Role, after: Role) -> Iterator[Event]:
    was = {each.role: each for each in before.member_of}
    now = {each.role: each for each in after.member_of}
    for role in sorted(was.keys() | now.keys()):
        if was.get(role) != now.get(role):
            kind = "grant" if role in now else "revoke"
            option = role in now and now[role].admin
            details = {"role": _role(state, role), "member": after.name, "admin_option": option}
            yield Event(kind, "role", details)


def _grants(each: Object) -> tuple[tuple[int, Grant], ...]:
    """Return the rights on an object, and on its columns, with the columns' positions."""
    if not _has_rights(each):
        return ()
    found = [(0, grant) for grant in grants_on(each)]
    if isinstance(each, Item) and each.column_grants:
        found += [(at, grant) for at, grants in each.column_grants.items() for grant in grants]
    return tuple(found)


def _usual(each: Object) -> tuple[tuple[int, Grant], ...]:
    """Return the rights on a new object, if nobody has set others."""
    if not _has_rights(each):
        return ()
    return tuple((0, grant) for grant in initial(kind_of(each), each.owner))


def _has_rights(each: Object) -> TypeGuard[Grantable]:
    if isinstance(each, Item):
        return each.type not in ("index", "subscription", "policy")
    return isinstance(each, Database | Schema | Secret | Connection | Cluster)


def _granted(
    state: State,
    each: Object,
    before: Sequence[tuple[int, Grant]],
    after: Sequence[tuple[int, Grant]],
) -> Iterator[Event]:
    for kind, ones in (
        ("revoke", [one for one in before if one not in after]),
        ("grant", [one for one in after if one not in before]),
    ):
        for position, grant in ones:
            details = {
                **_named(state, each),
                "grantee": "PUBLIC" if grant.grantee == PUBLIC else _role(state, grant.grantee),
                "grantor": _role(state, grant.grantor),
                "privileges": grant.rights,
                "grant_option": grant.grantable,
            }
            yield Event(kind, _type(each), {**details, "column": position} if position else details)


def _is_temporary(each: Object | None) -> bool:
    return isinstance(each, Schema | Item) and each.temporary


def _type(each: Object) -> str:
    return each.kind.replace(" ", "-")


def _named(state: State, each: Object) -> dict[str, Any]:
    named: dict[str, Any] = {"id": each.id, "name": each.name}
    if isinstance(each, Item) and each.schema in state.objects:
        named["database"], named["schema"], _ = state.full_name(each)
    return named


def _role(state: State, id: str) -> str:
    found = state.get(id)
    return id if found is None else found.name


class AuditRows:
    """The rows of the audit for a change, encoded but for the change's time."""

    def __init__(self, old: State, new: State, user: str, now_us: int, schema: pa.Schema) -> None:
        found = list(events(old, new))
        self._schema = update_schema(schema)
        self._count = len(found)
        self._columns = {
            "event_type": [each.kind for each in found],
            "object_type": [each.object_type for each in found],
            "details": [parse_text(json.dumps(each.details), JSONB) for each in found],
            "user": [user or None] * len(found),
            "occurred_at": [now_us] * len(found),
            DIFF: [1] * len(found),
        }

    def at(self, time: Timestamp) -> pa.Table:
        """Return the updates of the audit table; the ids of events grow with their times."""
        ids = range(time * _PER_MILLISECOND, time * _PER_MILLISECOND + self._count)
        columns = {**self._columns, "id": ids, TIME: [time] * self._count}
        arrays = [pa.array(columns[field.name], field.type) for field in self._schema]
        return pa.Table.from_arrays(arrays, schema=self._schema)
