"""Statistics views of `pg_catalog`, and further views of the information schema.

Counters that Foreshore does not keep are 0, as in a PostgreSQL that was just started.
"""

from collections.abc import Callable, Iterable, Iterator

from foreshore.catalog.builtin import information_schema, statistics
from foreshore.catalog.builtin.conformance import CONFORMANCE, build_settings
from foreshore.catalog.builtin.further_columns import STANDARD_VIEWS, SYSTEM_VIEWS
from foreshore.catalog.builtin.policies import policy_view_rows
from foreshore.catalog.builtin.relation import (
    Declaration,
    IntrospectionSnapshot,
    Row,
    nothing,
)
from foreshore.catalog.builtin.usage import described_types
from foreshore.constraint import Unique

Rows = Callable[[IntrospectionSnapshot], Iterable[Row]]


def system_relations() -> Iterator[Declaration]:
    """Yield the relations of `pg_catalog`."""
    rows: dict[str, Rows] = {
        "pg_stat_all_tables": statistics.tables(system=True),
        "pg_stat_xact_all_tables": _tables_with(),
        "pg_stat_xact_user_tables": _tables_with(),
        "pg_statio_all_tables": _tables_with("heap_blks_read", "heap_blks_hit"),
        "pg_stat_all_indexes": _indexes_with("idx_scan", "idx_tup_read", "idx_tup_fetch"),
        "pg_stat_user_indexes": _indexes_with("idx_scan", "idx_tup_read", "idx_tup_fetch"),
        "pg_statio_all_indexes": _indexes_with("idx_blks_read", "idx_blks_hit"),
        "pg_statio_user_indexes": _indexes_with("idx_blks_read", "idx_blks_hit"),
        "pg_statio_all_sequences": _sequences,
        "pg_statio_user_sequences": _sequences,
        "pg_stat_ssl": _live("pg_stat_ssl"),
        "pg_stat_progress_copy": _live("pg_stat_progress_copy"),
        "pg_policies": policy_view_rows,
        "pg_config": build_settings,
    }
    for name, (oid, columns) in SYSTEM_VIEWS.items():
        yield Declaration(oid, "pg_catalog", name, columns, rows.get(name, nothing))


def standard_relations() -> Iterator[Declaration]:
    """Yield the relations of the information schema; any of their columns may be NULL."""
    rows: dict[str, Rows] = {
        "constraint_table_usage": _constraint_table_usage,
        "data_type_privileges": described_types(information_schema.ROWS.__getitem__),
        **information_schema.ROWS,
        **CONFORMANCE,
    }
    for name, (oid, columns) in STANDARD_VIEWS.items():
        nullable = columns.replace(" text", " varchar").replace(",", "?,").rstrip() + "?"
        yield Declaration(oid, "information_schema", name, nullable, rows.get(name, nothing))


def _tables_with(*counters: str) -> Rows:
    def rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
        for item in snapshot.items:
            if item.type in ("table", "materialized view"):
                yield {
                    "relid": item.oid,
                    "schemaname": snapshot.name(item.schema),
                    "relname": item.name,
                    **dict.fromkeys(counters, 0),
                }

    return rows


def _indexes_with(*counters: str) -> Rows:
    def rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
        found = [
            (snapshot.state.item(item.on), item.oid, item.name)
            for item in snapshot.items
            if item.type == "index" and item.on is not None and item.on in snapshot.state.objects
        ]
        found += [(item, named.oid, named.name) for item, named, _ in snapshot.keys]
        for on, oid, name in found:
            yield {
                "relid": on.oid,
                "indexrelid": oid,
                "schemaname": snapshot.name(on.schema),
                "relname": on.name,
                "indexrelname": name,
                **dict.fromkeys(counters, 0),
            }

    return rows


def _sequences(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item in snapshot.items:
        if item.type == "sequence":
            yield {
                "relid": item.oid,
                "schemaname": snapshot.name(item.schema),
                "relname": item.name,
                "blks_read": 0,
                "blks_hit": 0,
            }


def _live(name: str) -> Rows:
    """Return the rows that only a running environment knows."""
    return lambda snapshot: snapshot.live(name)


def _constraint_table_usage(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item, named, constraint in snapshot.own_constraints:
        if isinstance(constraint, Unique):
            schema = snapshot.name(item.schema)
            yield {
                "table_catalog": snapshot.database,
                "table_schema": schema,
                "table_name": item.name,
                "constraint_catalog": snapshot.database,
                "constraint_schema": schema,
                "constraint_name": named.name,
            }
