"""Functions that tools ask about features of PostgreSQL's server, as SQL over the catalog.

Where Foreshore lacks the feature, they return what PostgreSQL returns for an object without it.
"""

from collections.abc import Iterator

from foreshore.types import (
    BOOL,
    INET,
    INT4,
    INT8,
    INTERVAL,
    NAME,
    NUMERIC,
    OID,
    TEXT,
    TIMESTAMPTZ,
    SqlType,
    array_of,
    format_type,
)

Definition = tuple[str, str, SqlType, str]  # names, types of the parameters, result, body

_NOTHING: tuple[tuple[str, str, SqlType], ...] = (
    ("pg_get_function_identity_arguments pg_get_statisticsobjdef", "oid", TEXT),
    ("pg_get_function_arg_default", "oid int4", TEXT),
    ("pg_get_partition_constraintdef", "oid", TEXT),
    ("pg_partition_root", "regclass", OID),
    ("pg_relation_filepath", "regclass", TEXT),
    ("pg_current_logfile", "", TEXT),
    ("pg_last_wal_receive_lsn pg_last_wal_replay_lsn", "", TEXT),
    ("pg_last_xact_replay_timestamp", "", TIMESTAMPTZ),
    ("txid_current_if_assigned", "", INT8),
)
_COUNTERS = (
    "numscans", "tuples_returned", "tuples_fetched", "tuples_inserted", "tuples_updated",
    "tuples_deleted", "tuples_hot_updated", "live_tuples", "dead_tuples", "mod_since_analyze",
    "ins_since_vacuum", "blocks_fetched", "blocks_hit", "vacuum_count", "autovacuum_count",
    "analyze_count", "autoanalyze_count",
)  # fmt: skip
_COUNTED = {
    "tuples_inserted": "n_tup_ins", "tuples_updated": "n_tup_upd", "tuples_deleted": "n_tup_del",
    "live_tuples": "n_live_tup",
}  # fmt: skip
_MOMENTS = (
    "last_vacuum_time", "last_autovacuum_time", "last_analyze_time", "last_autoanalyze_time",
)  # fmt: skip
# Properties of a B-tree whose keys are ascending with NULL last, as those of Foreshore are shown.
_OF_COLUMN = {
    "asc": True, "desc": False, "nulls_first": False, "nulls_last": True, "orderable": True,
    "distance_orderable": False, "returnable": True, "search_array": True, "search_nulls": True,
}  # fmt: skip
_OF_INDEX = ("clusterable", "index_scan", "bitmap_scan", "backward_scan")
_OF_METHOD = ("can_order", "can_unique", "can_multi_col", "can_exclude", "can_include")


def server_functions() -> Iterator[Definition]:
    """Yield the definitions, in the order in which they use each other."""
    for names, parameters, result in _NOTHING:
        yield names, parameters, result, f"NULL::{format_type(result)}"
    body = "(SELECT p.prosqlbody FROM pg_catalog.pg_proc p WHERE p.oid = $1)"
    yield "pg_get_function_sqlbody", "oid", TEXT, body
    for name in _COUNTERS:
        zero = _for_relation("$1", "0::int8")
        if (column := _COUNTED.get(name)) is not None:
            found = f"SELECT s.{column} FROM pg_catalog.pg_stat_all_tables s WHERE s.relid = $1"
            zero = f"coalesce(({found}), {zero})"
        yield f"pg_stat_get_{name}", "oid", INT8, zero
    for name in _MOMENTS:
        yield f"pg_stat_get_{name}", "oid", TIMESTAMPTZ, "NULL::timestamptz"
    yield "pg_jit_available", "", BOOL, "false"
    yield "pg_trigger_depth", "", INT4, "0"
    yield "getpgusername", "", NAME, "current_user"
    yield "getdatabaseencoding", "", NAME, "'UTF8'::name"
    yield "inet_server_addr inet_client_addr", "", INET, "NULL::inet"
    yield "inet_server_port inet_client_port", "", INT4, "NULL::int4"
    yield "mz_uptime", "", INTERVAL, "clock_timestamp() - pg_postmaster_start_time()"
    yield (
        "timeofday",
        "",
        TEXT,
        "to_char(clock_timestamp(), 'Dy Mon DD HH24:MI:SS.US YYYY TZ')",
    )
    yield (
        "to_regrole",
        "text",
        OID,
        "(SELECT r.oid FROM pg_catalog.pg_roles r WHERE quote_ident(r.rolname) = $1)",
    )
    yield "pg_encoding_max_length", "int4", INT4, "CASE $1 WHEN 6 THEN 4 WHEN 0 THEN 1 END"
    yield from _log_positions()
    yield (
        "pg_blocking_pids",
        "int4",
        array_of(INT4),
        """ARRAY(SELECT DISTINCT h.pid FROM pg_catalog.pg_locks w JOIN pg_catalog.pg_locks h
            ON (h.database, h.classid, h.objid, h.objsubid)
             = (w.database, w.classid, w.objid, w.objsubid)
            WHERE w.pid = $1 AND NOT w.granted AND h.granted AND h.pid <> w.pid
              AND 'ExclusiveLock' IN (w.mode, h.mode))""",
    )
    yield from _relations()
    yield from _properties()
    yield (
        "pg_tablespace_size",
        "oid",
        INT8,
        """CASE $1 WHEN 1663 THEN coalesce(
                (SELECT sum(s.size_bytes)::int8 FROM mz_internal.mz_storage_sizes s), 0)
            WHEN 1664 THEN 0 END""",
    )
    yield (
        "pg_tablespace_size",
        "name",
        INT8,
        """(SELECT pg_tablespace_size(t.oid) FROM pg_catalog.pg_tablespace t
            WHERE t.spcname = $1)""",
    )


def _log_positions() -> Iterator[Definition]:
    """Yield positions in the log: the present time, whose two halves PostgreSQL's form shows.

    They are texts, because there is no type pg_lsn.
    """
    names = "pg_current_wal_lsn pg_current_wal_insert_lsn pg_current_wal_flush_lsn"
    halves = "to_hex({0} >> 32) || '/' || to_hex({0} & 4294967295)"
    yield names, "", TEXT, f"upper({halves.format('mz_now()::text::int8')})"
    number = "('x' || lpad(split_part({0}, '/', {1}), 16, '0'))::bit(64)::int8::numeric"
    first, second = (
        f"({number.format(lsn, 1)} * 4294967296 + {number.format(lsn, 2)})" for lsn in ("$1", "$2")
    )
    yield "pg_wal_lsn_diff", "text text", NUMERIC, f"{first} - {second}"


def _relations() -> Iterator[Definition]:
    yield (
        "pg_relation_filenode",
        "regclass",
        OID,
        """(SELECT nullif(c.relfilenode, 0) FROM pg_catalog.pg_class c
            WHERE c.oid = $1 AND c.relkind <> 'v')""",
    )
    yield (
        "pg_get_replica_identity_index",
        "regclass",
        OID,
        "(SELECT i.indexrelid FROM pg_catalog.pg_index i WHERE i.indrelid = $1 AND i.indisprimary)",
    )
    yield (
        "pg_relation_is_updatable",
        "regclass bool",
        INT4,
        """(SELECT CASE WHEN c.relkind = 'r' AND n.nspname <> 'pg_catalog' THEN 28 ELSE 0 END
            FROM pg_catalog.pg_class c
            JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1)""",
    )
    yield (
        "pg_column_is_updatable",
        "regclass int2 bool",
        BOOL,
        "$2 > 0 AND pg_relation_is_updatable($1, $3) = 28",
    )
    yield (
        "pg_sequence_last_value",
        "regclass",
        INT8,
        """(SELECT s.last_value FROM pg_catalog.pg_sequences s
            JOIN pg_catalog.pg_namespace n ON n.nspname = s.schemaname
            JOIN pg_catalog.pg_class c ON c.relnamespace = n.oid AND c.relname = s.sequencename
            WHERE c.oid = $1)""",
    )


def _properties() -> Iterator[Definition]:
    yield (
        "pg_index_column_has_property",
        "regclass int4 text",
        BOOL,
        f"""(SELECT CASE WHEN $2 BETWEEN 1 AND i.indnatts THEN {_by_name("$3", _OF_COLUMN)} END
            FROM pg_catalog.pg_index i WHERE i.indexrelid = $1)""",
    )
    yield (
        "pg_index_has_property",
        "regclass text",
        BOOL,
        f"""(SELECT {_by_name("$2", dict.fromkeys(_OF_INDEX, True))}
            FROM pg_catalog.pg_index i WHERE i.indexrelid = $1)""",
    )
    yield (
        "pg_indexam_has_property",
        "oid text",
        BOOL,
        f"CASE WHEN $1 = 403 THEN {_by_name('$2', dict.fromkeys(_OF_METHOD, True))} END",
    )


def _by_name(name: str, properties: dict[str, bool]) -> str:
    cases = " ".join(f"WHEN '{key}' THEN {value}" for key, value in properties.items())
    return f"CASE lower({name}) {cases} END"


def _for_relation(oid: str, value: str) -> str:
    return f"(SELECT {value} FROM pg_catalog.pg_class c WHERE c.oid = {oid})"
