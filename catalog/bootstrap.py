"""The initial catalog of a new data directory."""

from collections.abc import Iterable

import msgspec

from foreshore.catalog.item import PUBLIC_OID, Cluster, Object, Schema
from foreshore.catalog.state import State, empty, with_objects
from foreshore.catalog.transaction import Transaction
from foreshore.privileges import open_to_all

FIRST_ROLE = "foreshore"
FIRST_DATABASE = "foreshore"
TOOLS_DATABASE, TOOLS_DATABASE_OID = "postgres", 5  # as in PostgreSQL
FIRST_CLUSTER = "quickstart"
FIRST_SIZE = "embedded"
FIRST_SCHEMA, FIRST_CLUSTER_ID = "n1", "c1"


def first_state() -> State:
    """Return a state with the first role, its databases with schema `public`, and a cluster.

    Everybody may use the cluster; other clusters have to be granted. Tools that create or list
    databases connect to `postgres`.
    """
    transaction = Transaction(empty())
    role = transaction.create_role(
        FIRST_ROLE,
        superuser=True,
        create_role=True,
        create_db=True,
        create_cluster=True,
        bypass_rls=True,
    )
    transaction.create_database(FIRST_DATABASE, role.id)
    transaction.create_cluster(
        FIRST_CLUSTER, role.id, FIRST_SIZE, {}, [("r1", FIRST_SIZE)], managed=True
    )
    transaction.create_database(TOOLS_DATABASE, role.id, TOOLS_DATABASE_OID)
    opened = {
        id: opened_to_all(transaction.state.objects[id]) for id in (FIRST_SCHEMA, FIRST_CLUSTER_ID)
    }
    return with_objects(transaction.state, opened)


def public_schemas(objects: Iterable[Object | None]) -> list[Schema]:
    """Return schemas `public` that have an oid of their own, with PostgreSQL's.

    Older versions gave them one as to any other schema.
    """
    schemas = [each for each in objects if isinstance(each, Schema)]
    done = {each.database for each in schemas if each.oid == PUBLIC_OID}
    return [
        msgspec.structs.replace(each, oid=PUBLIC_OID)
        for each in schemas
        if each.name == "public" and each.database not in done
    ]


def opened_to_all(each: Object) -> Object:
    """Return an object as it is read, the schemas `public` and first cluster open to PUBLIC.

    They have no rights of their own in directories of versions without roles; since then each
    schema `public` has.
    """
    match each:
        case Schema(name="public", database=str()) | Schema(id="n1") | Cluster(id="c1"):
            pass
        case _:
            return each
    if each.grants is not msgspec.UNSET:
        return each
    grants = open_to_all(each.kind, each.owner, "U")
    return msgspec.structs.replace(each, grants=grants)
