"""The list of references: complete over the fields of stored objects, and what a state keeps of it."""

from types import UnionType
from typing import Any, get_args, get_type_hints

import msgspec
import pytest

from foreshore.catalog.bootstrap import first_state
from foreshore.catalog.dangling import check_references, dangling
from foreshore.catalog.item import FIRST_ROLE_ID, OBJECTS, Item, Membership, Role
from foreshore.catalog.references import NAMED, Reference, ReferenceKind, references
from foreshore.catalog.roles import forget_role
from foreshore.catalog.state import with_objects
from foreshore.catalog.transaction import Transaction
from foreshore.errors import Conflict, UndefinedObject
from foreshore.privileges import Grant

# Fields of stored objects, and of what is within them, by whether they name other objects. A new
# field has to be added here, and if it names one to `references`.
NAMING = {
    "Role": {"member_of", "default_grants", "settings", "database_settings"},
    "Database": {"owner", "grants"},
    "Schema": {"owner", "grants", "database"},
    "Secret": {"owner", "grants", "schema"},
    "Connection": {"owner", "grants", "schema", "spec"},
    "Cluster": {"owner", "grants"},
    "Replica": {"owner", "cluster"},
    "SystemSettings": {"owner", "settings"},
    "NetworkPolicy": {"owner"},
    "Item": {
        "owner",
        "grants",
        "schema",
        "depends_on",
        "cluster",
        "on",
        "bound",
        "known",
        "known_keys",
        "part_of",
        "column_grants",
        "foreign_keys",
        "policy",
        "feed",
        "sink",
        "owned_by",
    },
    "Membership": {"role", "grantor"},
    "DefaultGrants": {"schema", "grants"},
    "Grant": {"grantee", "grantor"},
    "PolicyOf": {"table", "roles"},
    "OwnedBy": {"table"},
    "ForeignKey": {"references"},
    "ConnectionSpec": {"options", "tunnel"},
    "SecretRef": {"secret"},
    "Feed": {"source", "spec", "messages"},
    "SinkSpec": {"target"},
}
OTHERS = {
    "Role": "comment id oid name superuser login inherit create_role create_db create_cluster"
    " create_network_policy bypass_rls connection_limit verifier valid_until tokens",
    "Database": "comment id oid name settings",
    "Schema": "comment id oid name",
    "Secret": "comment id oid name sealed",
    "Connection": "comment id oid name keys",
    "Cluster": "comment id oid name size replication_factor managed options burst",
    "Replica": "comment id oid name size options",
    "SystemSettings": "comment id oid name",
    "NetworkPolicy": "comment id oid name rules",
    "Item": "comment id oid type name create_sql stored_names retain_ms memory_limit hydrate"
    " error_policy_changes refresh column_comments constraints constraint_comments since"
    " constrained_since keeps_digits security_invoker row_security force_row_security metric"
    " generation enum_values arguments on_commit handler",
    "Membership": "admin",
    "DefaultGrants": "kind oid",
    "Grant": "rights grantable",
    "PolicyOf": "command permissive version",
    "OwnedBy": "column identity",
    "ForeignKey": "name oid columns referenced match_full on_delete on_update delete_columns"
    " deferrable deferred valid",
    "ConnectionSpec": "kind",
    "SecretRef": "",
    "Feed": "reference details",
    # `previous` is needed for a time only: see adapter/sinks/previous.py.
    "SinkSpec": "envelope key commit_ms with_snapshot key_known resumed_in written_as resumed_from"
    " previous cut",
}


def structs_in(hint: Any) -> set[type[msgspec.Struct]]:
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return {hint}
    found: set[type[msgspec.Struct]] = set()
    for each in get_args(hint) if not isinstance(hint, UnionType) else hint.__args__:
        found |= structs_in(each)
    return found


def test_every_field_of_a_stored_object_names_others_or_does_not() -> None:
    waiting: list[type[msgspec.Struct]] = [*OBJECTS]
    seen: set[str] = set()
    while waiting:
        struct = waiting.pop()
        if struct.__name__ in seen or struct.__name__ not in NAMING:
            continue
        seen.add(struct.__name__)
        hints = get_type_hints(struct)
        naming, others = NAMING[struct.__name__], set(OTHERS[struct.__name__].split())
        assert set(struct.__struct_fields__) == naming | others, struct
        assert not naming & others, struct
        for field in naming:
            waiting += structs_in(hints[field])
    assert seen == NAMING.keys()


def test_every_kind_of_reference_names_one_type_of_object() -> None:
    assert NAMED.keys() == set(get_args(ReferenceKind))
    assert set(NAMED.values()) <= {*OBJECTS}


def test_state_keeps_who_names_what() -> None:
    state = first_state()
    assert dangling(state) == []
    for each in state.objects.values():
        for reference in references(each):
            assert each in state.grouped(reference)


def two_roles() -> tuple[Transaction, Role, Role]:
    transaction = Transaction(first_state())
    return transaction, transaction.create_role("a"), transaction.create_role("b")


def test_dropped_role_that_another_object_names_is_a_conflict() -> None:
    transaction, a, b = two_roles()
    named = transaction.put(msgspec.structs.replace(b, member_of=(Membership(a.id, a.id),)))
    old = transaction.state
    without = with_objects(old, {a.id: None})
    with pytest.raises(Conflict):
        check_references(old, without)
    assert {each.reference.kind for each in dangling(without)} == {
        "role of a membership",
        "grantor of a membership",
    }
    assert all(each.object is named for each in dangling(without))


def test_changed_object_that_names_a_missing_role_is_undefined() -> None:
    transaction, a, _ = two_roles()
    without = with_objects(transaction.state, {a.id: None})
    (database,) = (e for e in without.objects.values() if e.id == "d1")
    named = msgspec.structs.replace(database, grants=(Grant(a.id, FIRST_ROLE_ID, "c"),))
    with pytest.raises(UndefinedObject, match="role 2 was concurrently dropped"):
        check_references(without, with_objects(without, {"d1": named}))


def test_memberships_given_by_a_dropped_role_are_the_first_ones() -> None:
    transaction, a, b = two_roles()
    c = transaction.create_role("c")
    transaction.put(msgspec.structs.replace(b, member_of=(Membership(c.id, a.id),)))
    forget_role(transaction, a)
    assert dangling(transaction.state) == []
    changed = transaction.state.get(b.id)
    assert isinstance(changed, Role)
    assert changed.member_of == (Membership(c.id, FIRST_ROLE_ID),)


def test_references_of_the_system_are_none() -> None:
    item = next(each for each in first_state().all(Item))
    assert Reference("dependency", "s1") not in set(references(item))
