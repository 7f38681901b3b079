"""Relations of the catalog: which of them change with it, and with nothing else."""

from foreshore.catalog.builtin.relation import Builtin
from foreshore.compute.controller.dataflow_rows import DATAFLOWS

# Relations with many rows, each of which takes long or needs a file: they are made on a thread.
LONG = frozenset(
    "pg_timezone_names mz_timezone_names mz_recent_activity_log"
    " mz_cluster_replica_metrics_history mz_source_statistics_history"
    " mz_sink_statistics_history".split()
)
# Relations that depend on more than the catalog.
MOVING = (
    DATAFLOWS.keys()
    | LONG
    | frozenset(
        (
            "mz_assertions mz_burst_cluster_replicas mz_cluster_replica_metrics"
            " mz_cluster_replica_status_history mz_cluster_replica_statuses"
            " mz_cluster_replica_utilization mz_dead_letters mz_expectations mz_frontiers"
            " mz_leftovers mz_materialization_lag mz_materialized_view_refreshes"
            " mz_message_loop_latency mz_metric_statuses mz_plan_lookups"
            " mz_pending_cluster_replicas mz_postgres_sources mz_read_holds"
            " mz_recent_storage_usage mz_sessions mz_sink_statistics mz_sink_status_history"
            " mz_sink_statuses mz_source_statistics mz_source_status_history mz_source_statuses"
            " mz_storage_sizes mz_subscriptions mz_tokens mz_view_audits mz_view_errors"
            " mz_wallclock_global_lag mz_watermarks mz_write_capabilities pg_cursors"
            " pg_hba_file_rules pg_locks pg_prepared_statements pg_sequences pg_settings"
            " pg_shown_settings pg_stat_activity pg_stat_all_tables pg_stat_database"
            " pg_stat_progress_copy pg_stat_ssl pg_stat_user_tables table_activity"
            " transaction_activity"
        ).split()
    )
)


# Relations of these each row has a name, and is made when it is looked up by that.
NAMED = {"pg_settings": "name"}


def depends_on_catalog_alone(builtin: Builtin) -> bool:
    """Whether a relation's rows change with the catalog, and with nothing else."""
    return builtin.name not in MOVING
