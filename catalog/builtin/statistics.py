"""PostgreSQL's cumulative statistics: rows that tables have and got, transactions of databases.

The counts begin with the server. A materialized view counts no changes, and what PostgreSQL counts
of its pages is 0 here.
"""

from collections.abc import Callable, Iterator

from foreshore.catalog.builtin.relation import IntrospectionSnapshot, Row
from foreshore.catalog.item import Database, Item, Schema
from foreshore.catalog.state import is_system

_OF_TABLES = (
    *("seq_scan", "seq_tup_read", "idx_scan", "idx_tup_fetch", "n_tup_ins", "n_tup_upd"),
    *("n_tup_del", "n_tup_hot_upd", "n_live_tup", "n_dead_tup", "n_mod_since_analyze"),
    *("n_ins_since_vacuum", "vacuum_count", "autovacuum_count", "analyze_count"),
    "autoanalyze_count",
)
_OF_DATABASES = (
    *("xact_commit", "xact_rollback", "blks_read", "blks_hit", "tup_returned", "tup_fetched"),
    *("tup_inserted", "tup_updated", "tup_deleted", "conflicts", "temp_files", "temp_bytes"),
    *("deadlocks", "sessions", "sessions_abandoned", "sessions_fatal", "sessions_killed"),
)


def tables(*, system: bool) -> Callable[[IntrospectionSnapshot], Iterator[Row]]:
    """Return the rows of pg_stat_all_tables, without `system` of pg_stat_user_tables."""

    def rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
        counted = {row["id"]: row for row in snapshot.live("table_activity")}
        for item in snapshot.items:
            if item.type in ("table", "materialized view") and (system or not is_system(item.id)):
                own = counted.get(item.id, {})
                yield {
                    "relid": item.oid,
                    "schemaname": snapshot.name(item.schema),
                    "relname": item.name,
                    **{name: own.get(name, 0) for name in _OF_TABLES},
                }

    return rows


def databases(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of pg_stat_database; transactions count in the database of the session."""
    state = snapshot.state
    changed: dict[str | None, list[int]] = {}
    for row in snapshot.live("table_activity"):
        item = state.get(row["id"])
        schema = state.get(item.schema) if isinstance(item, Item) else None
        if isinstance(schema, Schema):
            sums = changed.setdefault(schema.database, [0, 0, 0])
            for i, name in enumerate(("n_tup_ins", "n_tup_upd", "n_tup_del")):
                sums[i] += row[name]
    connected = [row["datname"] for row in snapshot.live("pg_stat_activity")]
    transactions = {row["datname"]: row for row in snapshot.live("transaction_activity")}
    for database in state.all(Database):
        inserted, updated, deleted = changed.get(database.id, (0, 0, 0))
        yield {
            **dict.fromkeys(_OF_DATABASES, 0),
            "datid": database.oid,
            "datname": database.name,
            "numbackends": connected.count(database.name),
            **transactions.get(database.name, {}),
            "tup_inserted": inserted,
            "tup_updated": updated,
            "tup_deleted": deleted,
        }
