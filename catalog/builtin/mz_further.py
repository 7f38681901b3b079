"""Relations of mz_catalog and mz_internal by which Materialize's tools find their way.

Those about what Foreshore lacks (other kinds of connections, say) have
Materialize's columns and no rows. Values of type uint8 there are int8 here.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping

from foreshore.catalog.builtin import mz_dependencies, mz_external, mz_types
from foreshore.catalog.builtin.relation import (
    Declaration,
    IntrospectionSnapshot,
    Row,
    live,
    nothing,
)
from foreshore.catalog.item import Cluster, Database, Item, Schema
from foreshore.zone_rows import abbreviations

FIRST_OID = 14_000
Rows = Callable[[IntrospectionSnapshot], Iterable[Row]]

_CREATED = "owner_id text, privileges text[], create_sql text?, redacted_create_sql text?"
_OBJECT = "id text, oid oid, schema_id text, name text"
_HISTORY = "occurred_at timestamptz, {}_id text, status text, error text?, details jsonb?"
_STATUS = (
    "id text, name text, type text, last_status_change_at timestamptz?, status text, error text?,"
    "details jsonb?, next_try_at timestamptz?"
)
_METRICS = (
    "replica_id text, process_id int8, cpu_nano_cores int8?, memory_bytes int8?, disk_bytes int8?,"
    "heap_bytes int8?, heap_limit int8?"
)
_FLOW = "occurred_at timestamptz, id text, updates_committed int8, bytes_committed int8"
_LIVE = (
    "mz_source_statuses mz_source_status_history mz_source_statistics mz_source_statistics_history"
    " mz_sink_statuses mz_sink_status_history mz_sink_statistics mz_sink_statistics_history"
    " mz_cluster_replica_metrics mz_cluster_replica_metrics_history"
    " mz_cluster_replica_utilization mz_cluster_replica_status_history"
    " mz_dead_letters mz_postgres_sources mz_leftovers"
).split()
_CATALOG = {
    "mz_array_types": "id text, element_id text",
    "mz_aws_privatelink_connections": "id text, principal text",
    "mz_base_types": "id text",
    "mz_cluster_replica_sizes": "size text, processes int8?, workers int8?, cpu_nano_cores int8?,"
    "memory_bytes int8?, disk_bytes int8?, credits_per_hour numeric?",
    "mz_egress_ips": "egress_ip text, prefix_length int4, cidr text",
    "mz_functions": f"{_OBJECT}, argument_type_ids text[], variadic_argument_type_id text?,"
    "return_type_id text?, returns_set bool, owner_id text",
    "mz_iceberg_sinks": "id text, namespace text, table text",
    "mz_kafka_connections": "id text, brokers text[], sink_progress_topic text",
    "mz_kafka_sinks": "id text, topic text",
    "mz_kafka_sources": "id text, group_id_prefix text, topic text",
    "mz_list_types": "id text, element_id text, element_modifiers int8[]?",
    "mz_map_types": "id text, key_id text, value_id text, key_modifiers int8[]?,"
    "value_modifiers int8[]?",
    "mz_operators": "oid oid, name text, argument_type_ids text[], return_type_id text?",
    "mz_pseudo_types": "id text",
    "mz_recent_storage_usage": "object_id text, size_bytes int8?",
    "mz_ssh_tunnel_connections": "id text, public_key_1 text, public_key_2 text",
    "mz_storage_usage": "object_id text, size_bytes int8, collection_timestamp timestamptz",
    "mz_timezone_abbreviations": "abbreviation text, utc_offset interval?, dst bool?,"
    "timezone_name text?",
    "mz_timezone_names": "name text",
    "mz_types": f"{_OBJECT}, category text, {_CREATED}",
}
_INTERNAL = {
    "mz_aggregates": "oid oid, agg_kind text, agg_num_direct_args int2",
    "mz_aws_connections": "id text, endpoint text?, region text?, access_key_id text?,"
    "access_key_id_secret_id text?, secret_access_key_secret_id text?, session_token text?,"
    "session_token_secret_id text?, assume_role_arn text?, assume_role_session_name text?,"
    "principal text?, external_id text?, example_trust_policy jsonb?",
    "mz_cluster_deployment_lineage": "cluster_id text, current_deployment_cluster_id text,"
    "cluster_name text",
    "mz_cluster_replica_metrics": _METRICS,
    "mz_cluster_replica_utilization": "replica_id text, process_id int8, cpu_percent float8?,"
    "memory_percent float8?, disk_percent float8?, heap_percent float8?",
    "mz_cluster_schedules": "cluster_id text, type text, refresh_hydration_time_estimate interval?",
    "mz_cluster_workload_classes": "id text, workload_class text?",
    "mz_compute_dependencies": "object_id text, dependency_id text",
    "mz_index_advice": "object_id text, hint text, details text, referenced_object_ids text[]?",
    "mz_internal_cluster_replicas": "id text",
    "mz_kafka_source_tables": "id text, topic text, envelope_type text?, key_format text?,"
    "value_format text?",
    "mz_materialization_dependencies": "object_id text, dependency_id text",
    "mz_mysql_source_tables": "id text, schema_name text, table_name text",
    "mz_notices": "id text, notice_type text, message text, hint text, action text?,"
    "redacted_message text?, redacted_hint text?, redacted_action text?, action_type text?,"
    "object_id text?, created_at timestamptz",
    "mz_object_fully_qualified_names": "id text, name text, object_type text, schema_id text,"
    "schema_name text, database_id text?, database_name text?, cluster_id text?",
    "mz_object_transitive_dependencies": "object_id text, referenced_object_id text",
    "mz_postgres_source_tables": "id text, schema_name text, table_name text",
    "mz_postgres_sources": "id text, replication_slot text, timeline_id int8?",
    "mz_sink_statistics": "id text, replica_id text?, messages_staged int8,"
    "messages_committed int8, bytes_staged int8, bytes_committed int8,"
    "frontier mz_timestamp?, lag interval?",
    "mz_sink_status_history": _HISTORY.format("sink") + ", replica_id text?",
    "mz_sink_statuses": _STATUS,
    "mz_source_references": "source_id text, namespace text?, name text, updated_at timestamptz,"
    "columns text[]?",
    "mz_source_statistics": "id text, replica_id text?, messages_received int8,"
    "bytes_received int8, updates_staged int8, updates_committed int8, records_indexed int8,"
    "bytes_indexed int8, rehydration_latency interval?, snapshot_records_known int8?,"
    "snapshot_records_staged int8?, snapshot_committed bool, offset_known int8?,"
    "offset_committed int8?, offset_lag int8?",
    "mz_source_status_history": _HISTORY.format("source") + ", replica_id text?",
    "mz_source_statuses": _STATUS,
    "mz_sql_server_source_tables": "id text, schema_name text, table_name text",
    "mz_storage_shards": "object_id text, shard_id text",
    "mz_type_pg_metadata": "id text, typinput oid, typreceive oid",
    "mz_webhook_sources": "id text, name text, url text",
    "mz_cluster_replica_metrics_history": f"{_METRICS}, occurred_at timestamptz",
    "mz_cluster_replica_status_history": "replica_id text, process_id int8, status text,"
    "reason text?, occurred_at timestamptz",
    "mz_source_statistics_history": f"{_FLOW}, messages_received int8, offset_lag int8?",
    "mz_sink_statistics_history": f"{_FLOW}, lag_ms int8?",
    "mz_dead_letters": "source_id text, object_id text, kind text, letters int8",
    "mz_leftovers": "id text, name text, type text, leftover text, connection_id text?,"
    "dropped_at timestamptz, tries int8, error text?, next_try_at timestamptz?",
}


def relations() -> Iterator[Declaration]:
    """Yield the relations, in an order that stays when others are added to the end."""
    rows: Mapping[str, Rows] = {
        **mz_types.ROWS,
        **mz_dependencies.ROWS,
        **mz_external.ROWS,
        **{name: live(name) for name in _LIVE},
        "mz_cluster_replica_sizes": _sizes,
        "mz_cluster_schedules": _schedules,
        "mz_cluster_workload_classes": _workload_classes,
        "mz_object_fully_qualified_names": _full_names,
        "mz_recent_storage_usage": _storage_usage,
        "mz_storage_shards": _shards,
        "mz_timezone_abbreviations": _zone_abbreviations,
        "mz_timezone_names": _zone_names,
    }
    number = FIRST_OID
    for schema, declared in (("mz_catalog", _CATALOG), ("mz_internal", _INTERNAL)):
        for name, columns in declared.items():
            yield Declaration(number, schema, name, columns, rows.get(name, nothing))
            number += 1


def _sizes(_: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the sizes that replicas can have; a process uses what the machine has."""
    for size in ("embedded", "spark"):
        yield {"size": size, "processes": 1, "workers": 1}


def _schedules(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for cluster in snapshot.state.all(Cluster):
        yield {"cluster_id": cluster.id, "type": "manual"}


def _workload_classes(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for cluster in snapshot.state.all(Cluster):
        yield {"id": cluster.id, "workload_class": cluster.options.get("workload_class")}


def _full_names(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    state = snapshot.state
    for item in state.all(Item):
        schema = state.objects[item.schema]
        assert isinstance(schema, Schema), item
        database = None if schema.database is None else state.objects[schema.database]
        assert database is None or isinstance(database, Database), schema
        yield {
            "id": item.id,
            "name": item.name,
            "object_type": item.kind.replace(" ", "-"),
            "schema_id": schema.id,
            "schema_name": schema.name,
            "database_id": schema.database,
            "database_name": None if database is None else database.name,
            "cluster_id": item.cluster,
        }


def _storage_usage(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for row in live("mz_storage_sizes")(snapshot):
        yield {"object_id": row["object_id"], "size_bytes": row["size_bytes"]}


def _shards(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the shard of each collection; it has the collection's id."""
    for item in snapshot.state.all(Item):
        if item.type in ("table", "materialized view"):
            yield {"object_id": item.id, "shard_id": item.id}


def _zone_names(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for row in live("pg_timezone_names")(snapshot):
        yield {"name": row["name"]}


def _zone_abbreviations(_: IntrospectionSnapshot) -> Iterator[Row]:
    for row in abbreviations():
        offset = (0, 0, row.offset * 1_000_000)
        yield {"abbreviation": row.abbreviation, "utc_offset": offset, "dst": row.is_summer}
