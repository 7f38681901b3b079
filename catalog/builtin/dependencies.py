"""Rows of pg_depend, and of pg_attrdef, whose objects only pg_depend refers to.

pg_dump orders a dump by these: a view after what it reads, a default after its sequence.
"""

from collections.abc import Iterator

from foreshore.catalog.builtin.extension import members
from foreshore.catalog.builtin.foreign_keys import depend_rows
from foreshore.catalog.builtin.relation import IntrospectionSnapshot, Row
from foreshore.catalog.item import Item

_CLASS_OID, _ATTRDEF_OID = 1259, 2604
_VIEWS = ("view", "materialized view")


def attrdef(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the defaults of columns, and the values of generated ones."""
    for item in snapshot.items:
        if item.type == "table":
            for i in range(len(snapshot.desc_of(item.id).names)):
                text = snapshot.default_of(item.id, i)
                if text is not None:
                    yield {
                        "oid": _default_oid(item, i),
                        "adrelid": item.oid,
                        "adnum": i + 1,
                        "adbin": text,
                    }


def _default_oid(table: Item, position: int) -> int:
    """Return the oid of a column's default, which is used for nothing else, as in PostgreSQL."""
    return 1_000_000_000 + table.oid * 2_000 + position


def depend(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the members of the built-in extension, and what sequences, views and defaults use."""
    yield from members(snapshot)
    yield from depend_rows(snapshot)
    for item in snapshot.items:
        if item.owned_by:
            owner = item.owned_by
            yield {
                "classid": _CLASS_OID,
                "objid": item.oid,
                "refclassid": _CLASS_OID,
                "refobjid": snapshot.oid(owner.table),
                "refobjsubid": snapshot.desc_of(owner.table).names.index(owner.column) + 1,
                "deptype": "i" if owner.identity else "a",
            }
        for need in item.depends_on:
            used = snapshot.state.get(need)
            if not isinstance(used, Item):
                continue
            if item.type in _VIEWS and not (used.is_type or used.is_function):
                yield _uses(_CLASS_OID, item.oid, used)
            elif item.type == "table" and used.type == "sequence":
                for place in _defaults_with(snapshot, item, used):
                    yield _uses(_ATTRDEF_OID, _default_oid(item, place), used)


def _uses(classid: int, oid: int, used: Item) -> Row:
    return {
        "classid": classid,
        "objid": oid,
        "refclassid": _CLASS_OID,
        "refobjid": used.oid,
        "deptype": "n",
    }


def _defaults_with(snapshot: IntrospectionSnapshot, table: Item, sequence: Item) -> Iterator[int]:
    """Yield the positions of a table's columns whose defaults mention a sequence."""
    for place in range(len(snapshot.desc_of(table.id).names)):
        if sequence.name in (snapshot.default_of(table.id, place) or ""):
            yield place
