"""The tool that says how what is maintained does: `show_states`, for developers."""

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from foreshore.server.http.mcp.work import Work

_NAMES = "JOIN mz_internal.mz_object_fully_qualified_names n ON n.id = {id}"
_MINE = "n.database_name = current_database()"

_MAINTAINED = f"""
SELECT n.schema_name AS schema, n.name, n.object_type AS kind, k.name AS cluster,
       (extract(epoch FROM l.lag) * 1000)::float8 AS lag_ms
  FROM mz_internal.mz_wallclock_global_lag l {_NAMES.format(id="l.object_id")}
  LEFT JOIN mz_catalog.mz_clusters k ON k.id = n.cluster_id
 WHERE {_MINE} ORDER BY l.lag DESC NULLS FIRST, n.name"""
_DATAFLOWS = f"""
SELECT n.schema_name AS schema, n.name, r.name AS replica, d.state, d.hydration_ms,
       d.arranged_rows, d.arranged_bytes, d.failure
  FROM mz_internal.mz_dataflow_statuses d {_NAMES.format(id="d.object_id")}
  LEFT JOIN mz_catalog.mz_cluster_replicas r ON r.id = d.replica_id
 WHERE {_MINE} ORDER BY n.schema_name, n.name, r.name"""
_OUTSIDE = f"""
SELECT n.schema_name AS schema, n.name, '{{kind}}' AS kind, s.status, s.error,
       s.last_status_change_at AS since
  FROM mz_internal.mz_{{kind}}_statuses s {_NAMES.format(id="s.id")}
 WHERE {_MINE} ORDER BY 1, 2"""
_REPLICAS = """
SELECT c.name AS cluster, r.name AS replica, s.status, s.reason
  FROM mz_catalog.mz_cluster_replicas r JOIN mz_catalog.mz_clusters c ON c.id = r.cluster_id
  LEFT JOIN mz_internal.mz_cluster_replica_statuses s ON s.replica_id = r.id ORDER BY 1, 2"""
_FAILED = """
SELECT finished_at, sqlstate, error_message, sql FROM mz_internal.mz_recent_activity_log
 WHERE sqlstate IS NOT NULL AND database_name = current_database()
 ORDER BY finished_at DESC LIMIT $1::text::int"""


class ShowStates(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `show_states`."""

    failed_statements: Annotated[
        int, Meta(ge=0, le=100, description="how many failed statements to return, the last first")
    ] = 10


async def show_states(work: Work, args: ShowStates) -> Mapping[str, Any]:
    """Return lags, dataflows, sources, sinks, replicas, and what has failed."""
    return {
        "lags": await work.dicts(_MAINTAINED),
        "dataflows": await work.dicts(_DATAFLOWS),
        "sources": await work.dicts(_OUTSIDE.format(kind="source")),
        "sinks": await work.dicts(_OUTSIDE.format(kind="sink")),
        "replicas": await work.dicts(_REPLICAS),
        "failed_statements": await work.dicts(_FAILED, str(args.failed_statements)),
    }
