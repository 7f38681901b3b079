"""Foreshore's own catalog relations, which SHOW queries, and the state of the system."""

from collections.abc import Callable, Iterable, Iterator

from foreshore.catalog.builtin.granted import (
    default_privileges,
    role_members,
    role_parameters,
    shown_privileges,
    system_privileges,
)
from foreshore.catalog.builtin.mz_rows import (
    cluster_option_rows,
    cluster_rows,
    column_rows,
    comment_rows,
    connection_rows,
    database_rows,
    definition_rows,
    dependency_rows,
    frontier_rows,
    index_column_rows,
    index_rows,
    materialization_lag_rows,
    materialized_view_rows,
    metric_rows,
    object_rows,
    refresh_strategy_rows,
    relation_rows,
    replica_rows,
    role_rows,
    schema_rows,
    secret_rows,
    session_rows,
    sink_rows,
    source_rows,
    storage_size_rows,
    subscription_rows,
    table_rows,
    view_rows,
    visibility_rows,
    wallclock_lag_rows,
)
from foreshore.catalog.builtin.network_policies import policy_rows, rule_rows
from foreshore.catalog.builtin.relation import Declaration, IntrospectionSnapshot, Row, live
from foreshore.catalog.builtin.rights import object_rights, role_rights
from foreshore.catalog.builtin.settings import shown_settings

FIRST_OID = 13_100


def _none(_: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield no rows: there are no such objects."""
    return iter(())


# Schema, name, columns and rows, in the order of the oids.
_RELATIONS: tuple[tuple[str, str, str, Callable[[IntrospectionSnapshot], Iterable[Row]]], ...] = (
    ("mz_catalog", "mz_databases", "id text, oid oid, name text, owner_id text", database_rows),
    (
        "mz_catalog",
        "mz_schemas",
        "id text, oid oid, database_id text?, name text, owner_id text",
        schema_rows,
    ),
    (
        "mz_catalog",
        "mz_roles",
        "id text, oid oid, name text, superuser bool, inherit bool, rolcanlogin bool,rolsuper bool",
        role_rows,
    ),
    (
        "mz_catalog",
        "mz_objects",
        "id text, oid oid, schema_id text, name text, type text, owner_id text,cluster_id text?",
        object_rows,
    ),
    (
        "mz_catalog",
        "mz_relations",
        "id text, oid oid, schema_id text, name text, type text, owner_id text,cluster_id text?",
        relation_rows,
    ),
    (
        "mz_catalog",
        "mz_tables",
        "id text, oid oid, schema_id text, name text, owner_id text, create_sql text?,"
        "redacted_create_sql text?, source_id text?",
        table_rows,
    ),
    (
        "mz_catalog",
        "mz_views",
        "id text, oid oid, schema_id text, name text, definition text, owner_id text,"
        "create_sql text, redacted_create_sql text",
        view_rows,
    ),
    (
        "mz_catalog",
        "mz_materialized_views",
        "id text, oid oid, schema_id text, name text, cluster_id text, definition text,"
        "owner_id text, create_sql text, redacted_create_sql text",
        materialized_view_rows,
    ),
    (
        "mz_catalog",
        "mz_indexes",
        "id text, oid oid, name text, on_id text, cluster_id text, owner_id text,"
        "create_sql text, redacted_create_sql text",
        index_rows,
    ),
    (
        "mz_catalog",
        "mz_index_columns",
        "index_id text, index_position int8, on_position int8?, on_expression text?,nullable bool",
        index_column_rows,
    ),
    (
        "mz_catalog",
        "mz_columns",
        "id text, name text, position int8, nullable bool, type text, default text?,"
        "type_oid oid, type_mod int4",
        column_rows,
    ),
    (
        "mz_catalog",
        "mz_clusters",
        "id text, oid oid, name text, owner_id text, managed bool, size text?,"
        "replication_factor int8?",
        cluster_rows,
    ),
    (
        "mz_catalog",
        "mz_cluster_replicas",
        "id text, name text, cluster_id text, size text, owner_id text, workers int8",
        replica_rows,
    ),
    (
        "mz_internal",
        "mz_cluster_replica_statuses",
        "replica_id text, status text, reason text?",
        live("mz_cluster_replica_statuses"),
    ),
    (
        "mz_internal",
        "mz_cluster_options",
        "cluster_id text, name text, value text",
        cluster_option_rows,
    ),
    (
        "mz_internal",
        "mz_frontiers",
        "object_id text, read_frontier mz_timestamp?, write_frontier mz_timestamp?",
        frontier_rows,
    ),
    (
        "mz_internal",
        "mz_storage_sizes",
        "object_id text, oid oid, database_id text?, size_bytes int8",
        storage_size_rows,
    ),
    (
        "mz_internal",
        "mz_sessions",
        "connection_id int8, role text, database text, application_name text, state text,"
        "query text, connected_at timestamptz, client_address text?",
        session_rows,
    ),
    (
        "mz_internal",
        "mz_object_dependencies",
        "object_id text, referenced_object_id text",
        dependency_rows,
    ),
    (
        "mz_internal",
        "mz_comments",
        "id text, object_type text, object_sub_id int4?, comment text",
        comment_rows,
    ),
    (
        "mz_internal",
        "pg_object_definitions",
        "oid oid, kind text, definition text, create_sql text",
        definition_rows,
    ),
    (
        "mz_internal",
        "mz_read_holds",
        "object_id text, object_name text, kind text, time mz_timestamp, age_ms int8,"
        "connection_id int8?, dataflow_id text?, token text?, subscription_id text?",
        live("mz_read_holds"),
    ),
    (
        "mz_internal",
        "pg_relation_visibility",
        "oid oid, visible bool",
        visibility_rows,
    ),
    (
        "mz_catalog",
        "mz_subscriptions",
        "id text, oid oid, schema_id text, name text, position mz_timestamp?, behind_ms int8?,"
        "definition text, owner_id text, create_sql text, redacted_create_sql text",
        subscription_rows,
    ),
    (
        "mz_catalog",
        "mz_secrets",
        "id text, oid oid, schema_id text, name text, owner_id text",
        secret_rows,
    ),
    (
        "mz_internal",
        "mz_wallclock_global_lag",
        "object_id text, lag interval?",
        wallclock_lag_rows,
    ),
    (
        "mz_internal",
        "mz_materialization_lag",
        "object_id text, local_lag interval?, global_lag interval?,"
        "slowest_local_input_id text, slowest_global_input_id text",
        materialization_lag_rows,
    ),
    (
        "mz_internal",
        "mz_dataflow_statuses",
        "replica_id text, object_id text, state text, write_frontier mz_timestamp?,"
        "hydration_ms int8, steps int8, step_ms float8, busy_ms int8, arranged_rows int8?,"
        "arranged_bytes int8?, failure text?",
        live("mz_dataflow_statuses"),
    ),
    (
        "mz_internal",
        "mz_view_errors",
        "object_id text, cause_id text, sqlstate text, error text?, rows int8?, all_rows int8?,"
        "skipped bool",
        live("mz_view_errors"),
    ),
    (
        "mz_internal",
        "mz_message_loop_latency",
        "window_end timestamptz, window_ms int8, probes int8, avg_ms float8, max_ms float8",
        live("mz_message_loop_latency"),
    ),
    (
        "mz_internal",
        "mz_plan_lookups",
        "result text, reason text, count int8",
        live("mz_plan_lookups"),
    ),
    (
        "mz_internal",
        "mz_view_audits",
        "object_id text, time mz_timestamp, finished_at timestamptz, seconds float8,"
        "differences int8?, error text?",
        live("mz_view_audits"),
    ),
    (
        "mz_internal",
        "mz_write_capabilities",
        "object_id text, object_name text, kind text, write_frontier mz_timestamp, token text,"
        "dataflow_id text?",
        live("mz_write_capabilities"),
    ),
    (
        "mz_introspection",
        "mz_arrangement_sizes",
        "replica_id text?, object_id text?, operator_id int8?, name text, records int8,"
        "batches int8, size int8, merges int8, worker_id int8?",
        live("mz_arrangement_sizes"),
    ),
    (
        "mz_introspection",
        "mz_dataflow_operators",
        "replica_id text, object_id text, operator_id int8, name text, parent_id int8?,"
        "input_ids int8[]",
        live("mz_dataflow_operators"),
    ),
    (
        "mz_introspection",
        "mz_scheduling_elapsed",
        "replica_id text, object_id text, operator_id int8?, elapsed_ns int8, hydration_ns int8,"
        "merge_ns int8, steps int8, rows_in int8?, rows_out int8?",
        live("mz_scheduling_elapsed"),
    ),
    (
        "mz_introspection",
        "mz_records_per_dataflow",
        "replica_id text, object_id text, name text, records int8, batches int8, size int8",
        live("mz_records_per_dataflow"),
    ),
    (
        "mz_introspection",
        "mz_compute_hydration_times",
        "replica_id text, export_id text, time_ns int8?",
        live("mz_compute_hydration_times"),
    ),
    (
        "mz_introspection",
        "mz_compute_frontiers",
        "replica_id text, export_id text, time mz_timestamp",
        live("mz_compute_frontiers"),
    ),
    (
        "mz_internal",
        "mz_hydration_statuses",
        "replica_id text, object_id text, hydrated bool",
        live("mz_hydration_statuses"),
    ),
    (
        "mz_internal",
        "mz_compute_hydration_statuses",
        "replica_id text, object_id text, hydrated bool, hydration_time interval?",
        live("mz_compute_hydration_statuses"),
    ),
    (
        "mz_internal",
        "mz_materialized_view_refresh_strategies",
        "materialized_view_id text, type text, interval interval?, aligned_to timestamptz?,"
        "at timestamptz?",
        refresh_strategy_rows,
    ),
    (
        "mz_internal",
        "mz_materialized_view_refreshes",
        "materialized_view_id text, last_completed_refresh mz_timestamp?,"
        "next_refresh mz_timestamp?",
        live("mz_materialized_view_refreshes"),
    ),
    (
        "mz_internal",
        "mz_expectations",
        "object_id text, name text, condition text, action text, violations_id text?",
        live("mz_expectations"),
    ),
    (
        "mz_internal",
        "mz_assertions",
        "object_id text, name text, condition text",
        live("mz_assertions"),
    ),
    (
        "mz_internal",
        "mz_pending_cluster_replicas",
        "id text, name text, cluster_id text, size text",
        live("mz_pending_cluster_replicas"),
    ),
    (
        "mz_internal",
        "mz_checkpoints",
        "replica_id text, object_id text, write_frontier mz_timestamp, saved_at timestamptz,"
        "size int8",
        live("mz_checkpoints"),
    ),
    (
        "mz_internal",
        "mz_burst_cluster_replicas",
        "id text, cluster_id text, size text, status text, lingering bool",
        live("mz_burst_cluster_replicas"),
    ),
    (
        "mz_internal",
        "mz_object_rights",
        "oid oid, position int4, grantee oid, rights text, grantable text",
        object_rights,
    ),
    ("mz_internal", "mz_role_rights", "role oid, has oid, kind text", role_rights),
    ("mz_catalog", "mz_role_members", "role_id text, member text, grantor text", role_members),
    (
        "mz_catalog",
        "mz_role_parameters",
        "role_id text, parameter_name text, parameter_value text",
        role_parameters,
    ),
    ("mz_catalog", "mz_system_privileges", "privileges text", system_privileges),
    (
        "mz_internal",
        "mz_network_policies",
        "id text, name text, owner_id text, privileges text[]?, oid oid?",
        policy_rows,
    ),
    (
        "mz_internal",
        "mz_network_policy_rules",
        "name text, policy_id text, action text, address text, direction text",
        rule_rows,
    ),
    (
        "mz_catalog",
        "mz_default_privileges",
        "role_id text, database_id text?, schema_id text?, object_type text, grantee text,"
        "privileges text",
        default_privileges,
    ),
    (
        "mz_internal",
        "mz_show_privileges",
        "grantor text, grantee text, database text?, schema text?, name text, object_type text,"
        "privilege_type text",
        shown_privileges,
    ),
    (
        "mz_catalog",
        "mz_connections",
        "id text, oid oid, schema_id text, name text, type text, owner_id text,"
        "create_sql text?, redacted_create_sql text?",
        connection_rows,
    ),
    (
        "mz_catalog",
        "mz_sources",
        "id text, oid oid, schema_id text, name text, type text, connection_id text?, size text?,"
        "envelope_type text?, key_format text?, value_format text?, cluster_id text?,"
        "owner_id text, create_sql text?, redacted_create_sql text?",
        source_rows,
    ),
    (
        "mz_catalog",
        "mz_sinks",
        "id text, oid oid, schema_id text, name text, type text, connection_id text?, size text?,"
        "envelope_type text?, format text?, key_format text?, value_format text?,"
        "cluster_id text, owner_id text, create_sql text?, redacted_create_sql text?",
        sink_rows,
    ),
    (
        "mz_internal",
        "mz_hydrations",
        "replica_id text, object_id text, engine text, statements int8?, updates_read int8?,"
        "bytes_read int8?, rows int8?, time_ms int8, note text?",
        live("mz_hydrations"),
    ),
    (
        "mz_internal",
        "mz_spark_stages",
        "replica_id text, work text, job_id int8, stage_id int8, name text, tasks int8,"
        "active_tasks int8, completed_tasks int8, failed_tasks int8",
        live("mz_spark_stages"),
    ),
    ("mz_internal", "pg_shown_settings", "name text, setting text", shown_settings),
    (
        "mz_internal",
        "mz_last_steps",
        "replica_id text, object_id text, step int8, engine text, updates int8, statements int8,"
        "recomputed int8, jobs int8, files_read int8, files int8, bytes_read int8, rows int8,"
        "time_ms int8, note text?",
        live("mz_last_steps"),
    ),
    (
        "mz_internal",
        "mz_recent_activity_log",
        "execution_id int8, sample_rate float8, application_name text, database_name text,"
        "authenticated_user text, connection_id int8, began_at timestamptz,"
        "finished_at timestamptz, finished_status text, sqlstate text?, error_message text?,"
        "rows_returned int8?, command_tag text?, statement_type text, sql text, redacted_sql text",
        live("mz_recent_activity_log"),
    ),
    (
        "mz_catalog",
        "mz_tokens",
        "role_id text, role text, name text, created_at timestamptz, valid_until timestamptz?",
        live("mz_tokens"),
    ),
    (
        "mz_catalog",
        "mz_metrics",
        "id text, oid oid, schema_id text, name text, type text, help text, relation_id text,"
        "labels text[], max_series int8, owner_id text",
        metric_rows,
    ),
    (
        "mz_internal",
        "mz_metric_statuses",
        "id text, name text, status text, error text?, series int8,"
        "last_status_change_at timestamptz",
        live("mz_metric_statuses"),
    ),
    (
        "mz_internal",
        "mz_watermarks",
        "object_id text, column_name text, delay interval, watermark timestamptz?,"
        "idle_timeout interval?, behind interval?",
        live("mz_watermarks"),
    ),
)


def relations() -> Iterator[Declaration]:
    """Yield the relations of mz_catalog, mz_internal and mz_introspection."""
    for number, (schema, name, columns, rows) in enumerate(_RELATIONS):
        yield Declaration(FIRST_OID + number, schema, name, columns, rows)
