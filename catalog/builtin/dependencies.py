"""Rows of pg_depend, and of pg_attrdef and pg_rewrite, whose objects only pg_depend refers to.

pg_dump orders a dump by these: a view after what it reads, a default after its sequence. dbt
learns from them which views go when it drops a relation with CASCADE. As in PostgreSQL, not the
view but its rule depends on what the view reads; the rule is a part of the view.
"""

from collections.abc import Iterator

from foreshore.catalog.builtin.extension import members
from foreshore.catalog.builtin.foreign_keys import depend_rows
from foreshore.catalog.builtin.policies import policy_depend_rows
from foreshore.catalog.builtin.relation import IntrospectionSnapshot, Row
from foreshore.catalog.item import Item

_CLASS_OID, _ATTRDEF_OID, _REWRITE_OID = 1259, 2604, 2618
_VIEWS = ("view", "materialized view")


def attrdef(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the defaults of columns, and the values of generated ones."""
    for item in snapshot.items:
        if item.type == "table":
            for i in range(len(snapshot.desc_of(item.id).names)):
                text = snapshot.default_of(item.id, i)
                if text is not None:
                    yield {
                        "oid": _part_oid(item, i),
                        "adrelid": item.oid,
                        "adnum": i + 1,
                        "adbin": text,
                    }


def rewrite(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rules of views: each has one, which is its query."""
    for item in snapshot.items:
        if item.type in _VIEWS:
            yield {
                "oid": _part_oid(item, 0),
                "rulename": "_RETURN",
                "ev_class": item.oid,
                "ev_type": "1",
                "ev_enabled": "O",
                "is_instead": True,
            }


def _part_oid(item: Item, position: int) -> int:
    """Return the oid of a column's default or of a view's rule, which nothing else has."""
    return 1_000_000_000 + item.oid * 2_000 + position


def depend(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the members of the built-in extension, and what sequences, views and defaults use."""
    yield from members(snapshot)
    yield from depend_rows(snapshot)
    yield from policy_depend_rows(snapshot)
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
        if item.type in _VIEWS:
            yield {**_uses(_REWRITE_OID, _part_oid(item, 0), item), "deptype": "i"}
        for need in item.depends_on:
            used = snapshot.state.get(need)
            if not isinstance(used, Item):
                continue
            if item.type in _VIEWS and not (used.is_type or used.is_function):
                for column in _columns_read(snapshot, item, used) or (0,):
                    yield {**_uses(_REWRITE_OID, _part_oid(item, 0), used), "refobjsubid": column}
            elif item.type == "table" and used.type == "sequence":
                for place in _defaults_with(snapshot, item, used):
                    yield _uses(_ATTRDEF_OID, _part_oid(item, place), used)


def _columns_read(snapshot: IntrospectionSnapshot, view: Item, used: Item) -> list[int]:
    """Return the numbers of the columns that the query of `view` reads of a relation."""
    names = snapshot.desc_of(used.id).names
    read = {
        names.index(name) + 1
        for need in snapshot.planned[view.id].needs
        if need.object == used.id
        for name in need.columns
        if name in names
    }
    return sorted(read)


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
