"""Rows of pg_policy and pg_policies."""

from collections.abc import Iterator

from foreshore.catalog.builtin.relation import IntrospectionSnapshot, Row
from foreshore.catalog.item import Item

POLICY_OID = 3256  # of pg_policy
_CLASS_OID, _PROC_OID = 1259, 1255
_LETTERS = {"all": "*", "select": "r", "insert": "a", "update": "w", "delete": "d"}


def policies(snapshot: IntrospectionSnapshot) -> Iterator[Item]:
    """Return the policies of the session's database."""
    return (item for item in snapshot.database_items if item.policy)


def policy_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of pg_policy."""
    for item in policies(snapshot):
        assert item.policy, item
        using, check = snapshot.policy_texts_of(item.id)
        yield {
            "oid": item.oid,
            "polname": item.name,
            "polrelid": snapshot.oid(item.policy.table),
            "polcmd": _LETTERS[item.policy.command],
            "polpermissive": item.policy.permissive,
            "polroles": [snapshot.oid(role) for role in item.policy.roles] or [0],
            "polqual": using,
            "polwithcheck": check,
        }


def policy_view_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of pg_policies."""
    for item in policies(snapshot):
        assert item.policy, item
        using, check = snapshot.policy_texts_of(item.id)
        yield {
            "schemaname": snapshot.name(item.schema),
            "tablename": snapshot.name(item.policy.table),
            "policyname": item.name,
            "permissive": "PERMISSIVE" if item.policy.permissive else "RESTRICTIVE",
            "roles": sorted(snapshot.name(role) for role in item.policy.roles) or ["public"],
            "cmd": item.policy.command.upper(),
            "qual": using,
            "with_check": check,
        }


def policy_depend_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of pg_depend about policies: each is a part of its table."""
    for item in policies(snapshot):
        assert item.policy, item
        for need in item.depends_on:
            used = snapshot.state.get(need)
            if isinstance(used, Item) and not used.is_type:
                yield {
                    "classid": POLICY_OID,
                    "objid": item.oid,
                    "refclassid": _PROC_OID if used.is_function else _CLASS_OID,
                    "refobjid": used.oid,
                    "deptype": "a" if need == item.policy.table else "n",
                }
