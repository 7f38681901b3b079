"""The built-in extension to which the relations of the schemas `mz_...` belong.

So do relations that are made with another one: of the marks of a watermark, and of the violations
of expectations. pg_dump leaves out the members of an extension, and an
extension with an oid of the system.
"""

from collections.abc import Iterator

from foreshore.catalog.builtin.relation import IntrospectionSnapshot, Row
from foreshore.catalog.state import is_system

EXTENSION_OID, EXTENSION_CLASS_OID = 13_100, 3079
_CLASS_OID, _NAMESPACE_OID = 1259, 2615


def extensions(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of pg_extension."""
    schemas = {schema.name: schema for schema in snapshot.schemas.values()}
    yield {
        "oid": EXTENSION_OID,
        "extname": "foreshore",
        "extowner": 10,
        "extnamespace": schemas["mz_catalog"].oid,
        "extversion": "0.1.0",
    }


def members(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of pg_depend about members of the extension."""
    of_extension = {
        "refclassid": EXTENSION_CLASS_OID,
        "refobjid": EXTENSION_OID,
        "deptype": "e",
    }
    for schema in snapshot.schemas.values() if snapshot.is_rest else ():
        if schema.name.startswith("mz_"):
            yield {"classid": _NAMESPACE_OID, "objid": schema.oid, **of_extension}
    for relation in snapshot.builtins:
        if relation.schema.startswith("mz_"):
            yield {"classid": _CLASS_OID, "objid": relation.oid, **of_extension}
    for item in snapshot.items:
        if is_system(item.id) or (item.part_of and not item.feed):
            yield {"classid": _CLASS_OID, "objid": item.oid, **of_extension}
