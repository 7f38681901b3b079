"""The session variables, with PostgreSQL's names, values and errors.

Each has a kind (`setting_kinds.py`), which checks a value and returns it as SHOW writes it.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from foreshore.errors import FeatureNotSupported
from foreshore.postgres_settings import PostgresSetting, postgres_settings
from foreshore.setting_kinds import (
    MESSAGES,
    SEVERITIES,
    Kind,
    ascii_name,
    boolean,
    byte_size,
    choice,
    datestyle,
    duration,
    encoding,
    fraction,
    integer,
    isolation,
    least_duration,
    least_kilobytes,
    object_name,
    retention,
    seconds,
    text,
    timezone,
)

SERVER_VERSION = "15.0"
SERVER_VERSION_NUM = "150000"
MZ_VERSION = "v0.130.0 (foreshore)"
VERSION = f"PostgreSQL {SERVER_VERSION} (Foreshore 0.1.0), 64-bit"


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable: its name in SHOW ALL, its kind and its default."""

    name: str
    kind: Kind
    default: str
    description: str
    report: bool = False  # to the client, as ParameterStatus
    fixed: bool = False
    superuser: bool = False  # only superusers may set it
    hidden: bool = False  # only superusers may see it
    server: bool = False  # the server's own, set by ALTER SYSTEM alone
    is_own: bool = True  # has an effect; each session has its value


# What one session may keep, by the setting that says how many.
KEPT = {
    "max_listens": ("10000", "channels to listen on"),
    "max_portals": ("1000", "portals and cursors"),
    "max_prepared_statements": ("5000", "prepared statements with a name"),
    "max_savepoints": ("10000", "savepoints"),
    "max_temporary_objects": ("1000", "temporary objects"),
}
# How many objects there may be, by the setting of the server that says so.
LIMITS = {
    "max_clusters": "clusters",
    "max_databases": "databases",
    "max_materialized_views": "materialized views",
    "max_objects_per_schema": "objects",
    "max_roles": "roles",
    "max_schemas_per_database": "schemas",
    "max_secrets": "secrets",
    "max_sinks": "sinks",
    "max_sources": "sources",
    "max_tables": "tables",
}
_PLACES = {
    "max_objects_per_schema": " in a schema",
    "max_schemas_per_database": " in a database",
}
NO_EFFECT = "Has no effect; it tunes PostgreSQL."
_ALL = (
    *(
        Variable(
            name,
            integer(0, 2**31 - 1),
            default,
            f"Sets how many {what} a session may have; 0 is no limit.",
            superuser=True,
        )
        for name, (default, what) in KEPT.items()
    ),
    *(
        Variable(
            name,
            integer(0, 2**31 - 1),
            "0",
            f"Sets how many {what} there may be{_PLACES.get(name, '')}; 0 is no limit.",
            fixed=True,
            server=True,
        )
        for name, what in LIMITS.items()
    ),
    Variable(
        "max_session_size",
        byte_size,
        "64MB",
        "Sets how much a session may keep: prepared texts, arguments, settings; 0 is no limit.",
        superuser=True,
    ),
    Variable(
        "max_transaction_size",
        byte_size,
        "1GB",
        "Sets how much memory the rows that a transaction writes may take; 0 is no limit.",
        superuser=True,
    ),
    Variable(
        "temp_file_limit",
        least_kilobytes,
        "16GB",
        "Sets how much a session may have in temporary files; -1 is no limit.",
        superuser=True,
    ),
    Variable("application_name", ascii_name, "", "Sets the application name.", report=True),
    Variable(
        "audit_retention",
        retention,
        "365d",
        "Sets how long events of the audit are kept; 0 is for ever.",
        fixed=True,
        server=True,
    ),
    Variable(
        "auto_route_catalog_queries",
        boolean,
        "on",
        "Has no effect: queries of catalogs are answered by the server.",
    ),
    Variable(
        "bulk_engine",
        choice("auto", "duckdb", "spark"),
        "auto",
        "Sets which engine of an embedded cluster evaluates queries that no index answers.",
    ),
    Variable(
        "bulk_threshold",
        byte_size,
        "16GB",
        "Sets from how many bytes of files on queries run on Spark, if bulk_engine is auto.",
    ),
    Variable("bytea_output", choice("hex", "escape"), "hex", "Sets the output format for bytea."),
    Variable("client_encoding", encoding, "UTF8", "Sets the client's encoding.", report=True),
    Variable(
        "client_min_messages",
        choice(*MESSAGES),
        "notice",
        "Sets the least severity of messages sent to the client.",
    ),
    Variable(
        "client_connection_check_interval",
        duration,
        "0",
        "Sets after what time the statement of a client that has gone is ended; 0 lets it run.",
    ),
    Variable(
        "cluster",
        object_name,
        "quickstart",
        "Sets the cluster that answers queries.",
        report=True,
    ),
    Variable(
        "cluster_replica",
        object_name,
        "",
        "Sets the one replica of the cluster that answers queries.",
        report=True,
    ),
    Variable(
        "current_object_missing_warnings",
        boolean,
        "on",
        "Has no effect; Materialize's console sets it.",
    ),
    Variable("database", object_name, "foreshore", "Sets the current database.", report=True),
    Variable("DateStyle", datestyle, "ISO, MDY", "Sets the display of dates.", report=True),
    Variable("config_file", text, "", "There is none.", fixed=True, hidden=True),
    Variable("data_directory", text, "", "The directory of the data.", fixed=True, hidden=True),
    Variable(
        "default_transaction_isolation",
        isolation,
        "strict serializable",
        "Sets the isolation of transactions that set none.",
    ),
    Variable(
        "default_transaction_read_only",
        boolean,
        "off",
        "Sets whether transactions that do not say are read-only.",
        report=True,
    ),
    Variable(
        "emit_timestamp_notice", boolean, "off", "Tells of each query at which time it reads."
    ),
    Variable("extra_float_digits", integer(-15, 3), "1", "Sets the digits shown of floats."),
    Variable("hba_file", text, "", "The file of who may connect.", fixed=True, hidden=True),
    Variable("ident_file", text, "", "The file of user names.", fixed=True, hidden=True),
    Variable(
        "idle_in_transaction_session_timeout",
        duration,
        "2min",
        "Ends a session that is idle in a transaction for so long; 0 is never.",
    ),
    Variable(
        "idle_session_timeout",
        duration,
        "0",
        "Ends a session that is idle outside of transactions for so long; 0 is never.",
    ),
    Variable(
        "in_hot_standby",
        boolean,
        "off",
        "Tells whether the server is a standby, which it never is.",
        report=True,
        fixed=True,
    ),
    Variable(
        "integer_datetimes",
        boolean,
        "on",
        "Tells that times are whole microseconds.",
        report=True,
        fixed=True,
    ),
    Variable(
        "IntervalStyle",
        choice("postgres", "postgres_verbose", "sql_standard", "iso_8601"),
        "postgres",
        "Sets the display of intervals.",
        report=True,
    ),
    Variable(
        "is_superuser",
        boolean,
        "on",
        "Tells whether the current role is a superuser.",
        report=True,
        fixed=True,
    ),
    Variable("jit", boolean, "off", "Has no effect; it tunes PostgreSQL."),
    Variable(
        "check_function_bodies",
        boolean,
        "on",
        "Has no effect: bodies of functions are always checked.",
    ),
    Variable(
        "default_table_access_method",
        text,
        "heap",
        "Tells the only access method of tables.",
        fixed=True,
    ),
    Variable("default_tablespace", text, "", "Has no effect: there are no tablespaces."),
    Variable(
        "lc_collate", text, "C", "Tells the order of text, which is that of its bytes.", fixed=True
    ),
    Variable("lc_ctype", text, "C.UTF-8", "Tells the classes of characters.", fixed=True),
    Variable("lc_messages", text, "C", "Has no effect: messages are in English.", superuser=True),
    Variable("log_connections", boolean, "off", "Logs each session that begins.", superuser=True),
    Variable("log_disconnections", boolean, "off", "Logs the end of a session.", superuser=True),
    Variable(
        "log_min_error_statement",
        choice(*SEVERITIES),
        "panic",
        "Logs statements that fail, if it is error or less.",
        superuser=True,
    ),
    Variable(
        "log_statement",
        choice("none", "ddl", "mod", "all"),
        "none",
        "Logs statements of definition, also those that change rows, or all.",
        superuser=True,
    ),
    Variable(
        "log_min_duration_statement",
        least_duration,
        "-1",
        "Logs all statements that take at least this time; -1 turns it off.",
        superuser=True,
    ),
    Variable("lc_monetary", text, "C", "Has no effect: money is written in dollars."),
    Variable("lc_numeric", text, "C", "Has no effect: numbers are written in English."),
    Variable("lc_time", text, "C", "Has no effect: names of days and months are English."),
    Variable(
        "lock_timeout", duration, "0", "Sets how long a statement waits for a lock; 0 is no limit."
    ),
    Variable(
        "max_query_result_size",
        byte_size,
        "0",
        "Sets how large the result of a query may be; 0 is no limit.",
    ),
    Variable(
        "max_query_memory",
        byte_size,
        "0",
        "Sets how much memory a query or the changes of a transaction may take; 0 is no limit.",
        superuser=True,
    ),
    Variable(
        "max_result_rows",
        integer(0, 2**31 - 1),
        "0",
        "Sets how many rows the result of a query may have; 0 is no limit.",
        superuser=True,
    ),
    Variable(
        "max_result_size",
        byte_size,
        "0",
        "Sets how large the result of a query may be, whatever the session sets; 0 is no limit.",
        superuser=True,
    ),
    Variable(
        "max_scan_size",
        byte_size,
        "0",
        "Sets how much of what is stored a query may read; 0 is no limit.",
        superuser=True,
    ),
    Variable(
        "max_statement_time",
        duration,
        "0",
        "Sets how long a statement may take, whatever the session sets; 0 is no limit.",
        superuser=True,
    ),
    Variable(
        "max_transaction_time",
        duration,
        "0",
        "Sets how long a transaction may take, whatever the session sets; 0 is no limit.",
        superuser=True,
    ),
    Variable(
        "max_catalog_lock_time",
        duration,
        "15min",
        "Sets how long a transaction may take if others wait for its lock of the catalog.",
        superuser=True,
    ),
    Variable(
        "max_identifier_length",
        integer(63, 63),
        "63",
        "Tells the most bytes of a name.",
        fixed=True,
    ),
    Variable(
        "max_index_keys", integer(32, 32), "32", "Tells the most columns of an index.", fixed=True
    ),
    Variable(
        "mz_version",
        text,
        MZ_VERSION,
        "Tells the version for clients of Materialize.",
        report=True,
        fixed=True,
    ),
    Variable(
        "real_time_recency",
        boolean,
        "off",
        "Lets queries see all that systems outside held when they came; tables always do.",
    ),
    Variable(
        "real_time_recency_timeout",
        duration,
        "10s",
        "Sets how long a query waits for systems outside.",
    ),
    Variable(
        "wait_for_snapshot",
        boolean,
        "off",
        "Lets queries wait until the sources that they read have their first snapshot.",
    ),
    Variable(
        "network_policy",
        text,
        "default",
        "Sets from where clients may connect.",
        fixed=True,
        superuser=True,
        server=True,
    ),
    Variable(
        "restrict_to_user_objects",
        boolean,
        "off",
        "Refuses to read system relations, but for the information schema.",
        superuser=True,
    ),
    Variable("role", text, "none", "Sets the current role.", fixed=True),
    Variable(
        "row_security",
        boolean,
        "on",
        "Sets whether policies filter rows; off raises an error where they would.",
    ),
    Variable("search_path", text, "public", "Sets the schemas searched for names.", report=True),
    Variable(
        "server_encoding",
        text,
        "UTF8",
        "Tells the encoding of stored text.",
        report=True,
        fixed=True,
    ),
    Variable(
        "server_version",
        text,
        SERVER_VERSION,
        "Tells the version of PostgreSQL that clients see.",
        report=True,
        fixed=True,
    ),
    Variable(
        "server_version_num",
        text,
        SERVER_VERSION_NUM,
        "Tells the same version as a number.",
        fixed=True,
    ),
    Variable(
        "session_authorization",
        text,
        "foreshore",
        "Tells the role that logged in.",
        report=True,
        fixed=True,
    ),
    Variable(
        "sql_dialect",
        choice("postgres", "spark", "snowflake"),
        "postgres",
        "Sets in whose spelling queries are written.",
    ),
    Variable(
        "standard_conforming_strings",
        choice("on"),
        "on",
        "Tells that backslashes in literals are plain.",
        report=True,
    ),
    Variable(
        "statement_logging_sample_rate",
        fraction,
        "1",
        "Sets which part of the statements mz_internal.mz_recent_activity_log keeps.",
        superuser=True,
    ),
    Variable("statement_timeout", duration, "0", "Sets how long a statement may take."),
    Variable("synchronize_seqscans", boolean, "on", "Has no effect; it tunes PostgreSQL."),
    Variable(
        "synchronous_commit",
        choice("on", "off", "local", "remote_write", "remote_apply"),
        "on",
        "Has no effect: a commit is on the disk before it is confirmed.",
    ),
    Variable(
        "tcp_keepalives_count",
        integer(0, 2**31 - 1),
        "0",
        "Has no effect; the system's values are used.",
    ),
    Variable("tcp_keepalives_idle", seconds, "0", "Has no effect; the system's values are used."),
    Variable(
        "tcp_keepalives_interval", seconds, "0", "Has no effect; the system's values are used."
    ),
    Variable("tcp_user_timeout", duration, "0", "Has no effect; the system's values are used."),
    Variable("TimeZone", timezone, "UTC", "Sets the time zone.", report=True),
    Variable(
        "transaction_timeout",
        duration,
        "0",
        "Sets how long a transaction may take.",
    ),
    Variable(
        "transaction_isolation",
        isolation,
        "strict serializable",
        "Sets the isolation of the present transaction.",
    ),
    Variable(
        "transaction_read_only",
        boolean,
        "off",
        "Sets whether the present transaction is read-only.",
    ),
    Variable(
        "transaction_deferrable",
        boolean,
        "off",
        "Has no effect: a read-only transaction never waits for others.",
    ),
    Variable("welcome_message", boolean, "on", "Has no effect; clients of Materialize set it."),
    Variable(
        "xmloption",
        choice("content", "document"),
        "content",
        "Has no effect: there is no type xml.",
    ),
)
_PLAIN = re.compile(r"[a-z_][a-z0-9_$]*")
_OWN = {each.name.lower(): each for each in _ALL}


def _only_default(setting: PostgresSetting, kind: Kind) -> Kind:
    """Return a kind that takes no other value than the setting's default."""

    def parse(name: str, value: str) -> str:
        if kind(name, value) != setting.default:
            raise FeatureNotSupported(f'parameter "{name}" cannot be set to "{value}"')
        return setting.default

    return parse


def _of_postgresql(setting: PostgresSetting) -> Variable:
    """Return the variable of a setting of PostgreSQL that has no effect here."""
    kinds: dict[str, Kind] = {"bool": boolean, "enum": choice(*setting.words), "string": text}
    kind = kinds.get(setting.type) or (lambda _, value: setting.checked(value))
    if setting.is_kept:
        kind = _only_default(setting, kind)
    return Variable(
        setting.name,
        kind,
        setting.default,
        NO_EFFECT,
        fixed=bool(setting.refusal),
        superuser=setting.context == "superuser",
        is_own=False,
    )


VARIABLES: Mapping[str, Variable] = _OWN | {
    name: _of_postgresql(setting)
    for name, setting in postgres_settings().items()
    if name not in _OWN
}


def split_names(text: str, separator: str = ",") -> tuple[str, ...]:
    """Return the names in a list, such as `search_path`; in lower case unless quoted."""
    return tuple(
        match[2].lower() if match[1] is None else match[1].replace('""', '"')
        for match in re.finditer(rf'"((?:[^"]|"")*)"|([^\s"{separator}]+)', text)
    )


def join_names(names: Iterable[str]) -> str:
    """Return a list of names, each quoted unless it is a plain one."""
    return ", ".join(
        name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"' for name in names
    )
