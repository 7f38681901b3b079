"""Rows of pg_type, pg_range and pg_enum."""

from collections.abc import Iterator
from zlib import crc32

from foreshore.catalog.builtin.functions import array_functions, domain_functions, type_functions
from foreshore.catalog.builtin.relation import IntrospectionSnapshot, Row
from foreshore.catalog.builtin.rights import SUPERUSER_OID, shown
from foreshore.catalog.item import Item
from foreshore.domain import Domain
from foreshore.ranges import BOUNDS, MULTIRANGES
from foreshore.types import CONTAINERS, TYPES, SqlType, oid_of, typmod_of

PG_CATALOG_OID = 11
DEFAULT_COLLATION = 100

COLLATED = frozenset(("text", "varchar", "bpchar", "name"))
BY_VALUE = frozenset((1, 2, 4, 8))
ALIGN = {1: "c", 2: "s", 4: "i", 8: "d"}
_TYPTYPE = dict.fromkeys(BOUNDS, "r") | dict.fromkeys(MULTIRANGES, "m")


def storage_of(type: str, length: int) -> str:
    """Return where PostgreSQL stores values of a type: plain, main or extended."""
    if length > 0:
        return "p"
    return "m" if type in ("numeric", "inet", "cidr") else "x"


def type_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the types of the system and of the catalog."""
    yield from _catalog_types(snapshot)
    if snapshot.is_rest:
        yield from _system_types()


def _system_types() -> Iterator[Row]:
    namespace = PG_CATALOG_OID
    for name, info in TYPES.items():
        if name in ("shaped", "number"):
            continue  # other forms of arrays and numerics
        pseudo = name in ("array", "enum", "record", "void", "unknown", *CONTAINERS)
        element = {"int2vector": TYPES["int2"].oid, "oidvector": TYPES["oid"].oid}.get(name, 0)
        common = {"typnamespace": namespace, "typowner": SUPERUSER_OID, "typisdefined": True}
        defaults = {"typdelim": ",", "typtypmod": -1}
        yield {
            **common,
            **defaults,
            **type_functions(f"any{name}" if name in ("array", "enum") else name),
            "oid": info.oid,
            "typname": f"any{name}" if name in ("array", "enum") else name,
            "typlen": info.length,
            "typbyval": info.length in BY_VALUE,
            "typtype": "p" if pseudo else _TYPTYPE.get(name, "b"),
            "typcategory": info.category,
            "typispreferred": info.preferred,
            "typelem": element,
            "typarray": info.array_oid,
            "typalign": ALIGN.get(info.length, "i"),
            "typstorage": storage_of(name, info.length),
            "typcollation": DEFAULT_COLLATION if name in COLLATED else 0,
        }
        if info.array_oid:
            yield {
                **common,
                **defaults,
                **array_functions(name),
                "oid": info.array_oid,
                "typname": f"_{name}",
                "typlen": -1,
                "typtype": "p" if pseudo else "b",
                "typcategory": "A",
                "typelem": info.oid,
                "typalign": "d" if info.length == 8 else "i",
                "typstorage": "x",
                "typcollation": DEFAULT_COLLATION if name in COLLATED else 0,
            }


_WITH_ROW_TYPE = frozenset(("table", "view", "materialized view"))
_OWN_OIDS = frozenset(oid for info in TYPES.values() for oid in (info.oid, info.array_oid))


def row_type_of(item: Item) -> int:
    """Return the oid of the type of a relation's rows, which is the relation's; 0 if it has none.

    The few relations whose oids some builtin types have as well have none.
    """
    return item.oid if item.type in _WITH_ROW_TYPE and item.oid not in _OWN_OIDS else 0


def _own_columns(item: Item, domain: Domain | None, structure: SqlType | None) -> Row:
    """Return the columns of pg_type in which types of the catalog differ."""
    if structure is not None:
        composite = structure.name == "record"
        return {
            **type_functions(structure.name),
            "typlen": -1,
            "typbyval": False,
            "typtype": "c" if composite else "b",
            "typcategory": "C" if composite else TYPES[structure.name].category,
            "typrelid": item.oid if composite else 0,
            "typstorage": "x",
        }
    if domain is None:
        return {
            **type_functions("enum"),
            "typlen": 4,
            "typbyval": True,
            "typtype": "e",
            "typcategory": "E",
            "typstorage": "p",
        }
    info = TYPES[domain.base.name]
    return {
        **domain_functions("array" if domain.base.element else domain.base.name),
        "typlen": -1 if domain.base.element else info.length,
        "typbyval": info.length in BY_VALUE,
        "typtype": "d",
        "typcategory": info.category,
        "typbasetype": oid_of(domain.base),
        "typtypmod": typmod_of(domain.base),
        "typnotnull": domain.not_null,
        "typdefaultbin": domain.default_text,
        "typdefault": domain.default_text,
        "typstorage": "p" if info.length > 0 else "x",
    }


def _catalog_types(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the enums and domains, and the types of their arrays."""
    for item in snapshot.types:
        common = {
            "typnamespace": snapshot.oid(item.schema),
            "typowner": snapshot.oid(item.owner),
            "typisdefined": True,
            "typdelim": ",",
            "typtypmod": -1,
            "typalign": "i",
            "typcollation": 0,
        }
        yield {
            **common,
            **_own_columns(item, snapshot.domain_of(item.id), snapshot.structure_of(item.id)),
            "oid": item.oid,
            "typname": item.name,
            "typarray": item.oid + 1,
            "typacl": shown(snapshot, item),
        }
        yield {
            **common,
            **type_functions("array"),
            "oid": item.oid + 1,
            "typname": f"_{item.name}",
            "typlen": -1,
            "typtype": "b",
            "typcategory": "A",
            "typelem": item.oid,
            "typstorage": "x",
        }


def catalog_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield all types: those of `type_rows`, and those of the rows of relations.

    The latter have their relations' oids, and no arrays.
    """
    yield from type_rows(snapshot)
    for item in snapshot.items:
        if row_type_of(item):
            yield {
                **type_functions("record"),
                "oid": item.oid,
                "typname": item.name,
                "typnamespace": snapshot.oid(item.schema),
                "typowner": snapshot.oid(item.owner),
                "typlen": -1,
                "typbyval": False,
                "typtype": "c",
                "typcategory": "C",
                "typisdefined": True,
                "typdelim": ",",
                "typrelid": item.oid,
                "typtypmod": -1,
                "typalign": "d",
                "typstorage": "x",
                "typcollation": 0,
            }


def range_rows(_: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the types of ranges."""
    for many, one in MULTIRANGES.items():
        yield {
            "rngtypid": TYPES[one].oid,
            "rngsubtype": oid_of(BOUNDS[one]),
            "rngmultitypid": TYPES[many].oid,
        }


def enum_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the labels of enums; their oids are hashes of their stored forms."""
    for item in snapshot.types:
        labels = snapshot.labels_of(item.id)
        for place, (value, label) in enumerate(zip(item.enum_values or (), labels, strict=True)):
            yield {
                "oid": 2**31 + crc32(f"{item.oid} {value}".encode()) // 2,
                "enumtypid": item.oid,
                "enumsortorder": float(place + 1),
                "enumlabel": label,
            }
