"""The objects that views and columns use, and all descriptors of types, in the information schema.

PostgreSQL shows what is used if the role has the rights of the owner of *that*. The columns that a
view reads are those on which its query needs rights, so they are known with their present names.
"""

from collections.abc import Callable, Iterable, Iterator

from foreshore.catalog.builtin.relation import IntrospectionSnapshot, Row
from foreshore.catalog.builtin.shown import Shown
from foreshore.catalog.builtin.standard_routines import specific_name
from foreshore.catalog.builtin.standard_types import owns_type, type_columns, udt_of
from foreshore.catalog.item import Item
from foreshore.types import ColumnType, element_of

_RELATIONS = ("table", "view")  # PostgreSQL leaves out what reads materialized views


def _used(snapshot: IntrospectionSnapshot) -> Iterator[tuple[Item, Item, set[str]]]:
    """Yield each view, and each relation that its query names, with the columns that it reads."""
    shown = Shown(snapshot)
    for view in snapshot.own_items:
        if view.type != "view":
            continue
        found: dict[str, set[str]] = {}
        for need in snapshot.planned[view.id].needs:
            if need.privilege == "SELECT" and not need.by_caller:
                found.setdefault(need.object, set()).update(need.columns)
        for id, columns in found.items():
            used = snapshot.state.get(id)
            if isinstance(used, Item) and used.type in _RELATIONS and shown.owned(used):
                yield view, used, columns


def _names(snapshot: IntrospectionSnapshot, view: Item, used: Item) -> Row:
    return {
        "view_catalog": snapshot.database,
        "view_schema": snapshot.name(view.schema),
        "view_name": view.name,
        **_table(snapshot, used),
    }


def _table(snapshot: IntrospectionSnapshot, item: Item) -> Row:
    return {
        "table_catalog": snapshot.database,
        "table_schema": snapshot.name(item.schema),
        "table_name": item.name,
    }


def _view_table_usage(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for view, used, _ in _used(snapshot):
        yield _names(snapshot, view, used)


def _view_column_usage(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for view, used, columns in _used(snapshot):
        for column in sorted(columns):
            yield {**_names(snapshot, view, used), "column_name": column}


def _view_routine_usage(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    shown = Shown(snapshot)
    for view in snapshot.own_items:
        if view.type != "view":
            continue
        for id in sorted(view.depends_on):
            used = snapshot.state.item(id)
            if used.is_function and shown.owned(used):
                yield {**_table(snapshot, view), **specific_name(snapshot, used)}


def _column_udt_usage(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    shown = Shown(snapshot)
    for item in snapshot.own_items:
        if item.type not in _RELATIONS:
            continue
        desc = snapshot.desc_of(item.id)
        for name, column in zip(desc.names, desc.columns, strict=True):
            if owns_type(snapshot, shown, column.type):
                udt = udt_of(type_columns(snapshot, column))
                yield {**udt, **_table(snapshot, item), "column_name": name}


def _element_types(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the types of the items of columns that are arrays."""
    shown = Shown(snapshot)
    for item in shown.items():
        if item.type not in _RELATIONS:
            continue
        for position, column in enumerate(snapshot.desc_of(item.id).columns, 1):
            element = element_of(column.type)
            if element is not None and shown.column(item, position):
                row = type_columns(snapshot, ColumnType(element))
                yield {
                    "object_catalog": snapshot.database,
                    "object_schema": snapshot.name(item.schema),
                    "object_name": item.name,
                    "object_type": "TABLE",
                    "collection_type_identifier": str(position),
                    "data_type": row["data_type"],
                    **udt_of(row),
                    "dtd_identifier": f"a{position}",
                }


_DESCRIBED = (
    ("attributes", "USER-DEFINED TYPE", "udt_schema", "udt_name"),
    ("columns", "TABLE", "table_schema", "table_name"),
    ("domains", "DOMAIN", "domain_schema", "domain_name"),
    ("parameters", "ROUTINE", "specific_schema", "specific_name"),
    ("routines", "ROUTINE", "specific_schema", "specific_name"),
)


def described_types(
    rows_of: Callable[[str], Callable[[IntrospectionSnapshot], Iterable[Row]]],
) -> Callable[[IntrospectionSnapshot], Iterator[Row]]:
    """Return the rows of data_type_privileges: what has a type, in other relations' rows."""

    def rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
        for relation, kind, schema, name in _DESCRIBED:
            for row in rows_of(relation)(snapshot):
                yield {
                    "object_catalog": snapshot.database,
                    "object_schema": row[schema],
                    "object_name": row[name],
                    "object_type": kind,
                    "dtd_identifier": row["dtd_identifier"],
                }

    return rows


USAGE: dict[str, Callable[[IntrospectionSnapshot], Iterable[Row]]] = {
    "view_table_usage": _view_table_usage,
    "view_column_usage": _view_column_usage,
    "view_routine_usage": _view_routine_usage,
    "column_udt_usage": _column_udt_usage,
    "element_types": _element_types,
}
