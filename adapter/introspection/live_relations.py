"""Rows of the system relations that depend on more than the catalog: sessions, holds, replicas, ...

`LIVE` maps a relation's name to the function that makes its rows for a statement. Rows are dicts
with the columns that have a value; `catalog/builtin/` declares the columns, and adds those that
follow from the catalog or are constant.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict

from foreshore.activity import TableActivity
from foreshore.adapter import leftovers
from foreshore.adapter.introspection.failing_views import failing_of, view_errors
from foreshore.adapter.introspection.sink_rows import (
    sink_statistics,
    sink_status_history,
    sink_statuses,
)
from foreshore.adapter.introspection.source_rows import (
    dead_letters,
    postgres_sources,
    source_statistics,
    source_status_history,
    source_statuses,
)
from foreshore.adapter.introspection.statement_history import recent_statements
from foreshore.adapter.introspection.tokens import token_rows
from foreshore.adapter.introspection.usage_history import (
    replica_metrics,
    replica_metrics_history,
    replica_status_history,
    replica_utilization,
    sink_statistics_history,
    source_statistics_history,
)
from foreshore.adapter.show.metrics import metric_statuses
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.pinned_replica import pinned_replica
from foreshore.adapter.statement.roles import visible_settings
from foreshore.adapter.transaction.advisory_locks import LOCK_TYPES
from foreshore.adapter.transaction.violations import Viewer
from foreshore.catalog.builtin.relation import Frontier, Row
from foreshore.catalog.item import Item, Replica
from foreshore.catalog.rights import may_act_as, owns
from foreshore.compute.controller.dataflow_rows import DATAFLOWS, Reports
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from foreshore.redaction import redacted
from foreshore.refresh import NEVER
from foreshore.sql.rewrite.definition_parts import expectations_of, is_assertion, query_text
from foreshore.storage.controller import ReadCapability
from foreshore.types import oid_of
from foreshore.update import EMPTY, Timestamp
from foreshore.zone_rows import zones_in


def frontiers(context: StatementContext) -> Iterator[Frontier]:
    """Yield the readable interval of each collection, and its inputs."""
    names = context.names
    for item in names.state.all(Item):
        if not item.is_collection:
            continue
        interval = context.times.interval(item.id)
        inputs = bases = frozenset[GlobalId]()
        if item.type != "table":
            relation = names.catalog.relation_of(item)
            inputs, bases = sources_of(relation), names.catalog.bases_of(relation)
        yield Frontier(item.id, interval.since, interval.upper, inputs, bases)


def dataflow_reports(context: StatementContext) -> Reports:
    """Return the reports of all replicas, or of the one that `cluster_replica` selects."""

    def name_of(id: GlobalId) -> str:
        found = context.names.state.objects.get(id)
        return found.name if isinstance(found, Item) else id  # a subscription has only its id

    return Reports(
        context.views.compute,
        pinned_replica(context),
        name_of,
        lambda id: failing_of(context, id),
    )


def _of_dataflows(
    rows: Callable[[Reports], Iterable[Row]],
) -> Callable[[StatementContext], Iterable[Row]]:
    return lambda context: rows(dataflow_reports(context))


def _leftovers(context: StatementContext) -> Iterator[Row]:
    yield from leftovers.rows(context.feeds.leftovers.removals())


def live_settings(context: StatementContext, only: str | None = None) -> Iterator[Row]:
    """Yield the variables of the session, or the one with a name."""
    for name, value, description in visible_settings(
        context.planner.state, context.role, context.variables, only
    ):
        reset = context.variables.reset_value(name)
        yield {"name": name, "setting": value, "short_desc": description, "reset_val": reset}


def _connection_rules(context: StatementContext) -> Iterable[Row]:
    """Return the rules of who may connect, for superusers only."""
    configuration = context.process.configuration
    return () if configuration is None or not context.role.superuser else configuration.rules()


def _encryption(context: StatementContext) -> Iterator[Row]:
    for each in context.sessions.values():
        found = each.backend.encryption
        yield {"pid": each.pid, "ssl": found is not None, **(asdict(found) if found else {})}


def _activity(context: StatementContext) -> Iterator[Row]:
    """Yield the sessions; what those of other roles do is shown by pg_read_all_stats."""
    state, role = context.planner.state, context.role
    sees_all = may_act_as(state, role, "pg_read_all_stats")
    for each in context.sessions.values():
        running, user = each.transactions.running, each.roles.session
        shown = {
            "datname": each.database,
            "pid": each.pid,
            "usename": user.name,
            "application_name": each.variables["application_name"],
            "backend_type": each.backend.kind,
        }
        if not (sees_all or owns(state, role, user.id)):
            yield {**shown, "query": "<insufficient privilege>"}
            continue
        yield {
            **shown,
            "client_addr": each.backend.address or None,
            "backend_start": each.activity.connected_at,
            "xact_start": running.started if running is not None else None,
            "query_start": each.activity.query_at,
            "state_change": each.activity.state_at,
            "state": each.activity.state(each.transaction_status),
            "query": redacted(each.activity.query, each.activity.sqlstate),
        }


def _advisory_locks(context: StatementContext) -> Iterator[Row]:
    for (name, classid, objid, objsubid), pid, mode, granted in context.tables.advisory.rows():
        yield {
            "database": name,
            "classid": classid,
            "objid": objid,
            "objsubid": objsubid,
            "pid": pid,
            "mode": LOCK_TYPES[mode],
            "granted": granted,
        }


def _copies(context: StatementContext) -> Iterator[Row]:
    """Yield the COPYs with files that run; those of other roles are shown to superusers only."""
    state, role = context.planner.state, context.role
    for pid, each in context.process.copies.running.items():
        session = context.sessions.get(pid)
        if session is None or not owns(state, role, session.roles.session.id):
            continue
        database = state.database(each.database)
        item = None if each.relation is None else state.get(each.relation)
        yield {
            "pid": pid,
            "datid": database.oid if database is not None else None,
            "datname": each.database,
            "relid": item.oid if item is not None else 0,
            "command": each.command,
            "type": "FILE",
            "bytes_processed": each.bytes,
            "bytes_total": 0,
            "tuples_processed": each.rows,
            "tuples_excluded": 0,
        }


def _audits(context: StatementContext) -> Iterator[Row]:
    for id, each in context.process.audits.items():
        yield {"object_id": id, **asdict(each)}


def _watermarks(context: StatementContext) -> Iterator[Row]:
    """Yield the watermarks of relations as of the last commit; NULL before the first time.

    They are NULL too for who may not read the column. `behind` is how far they are from the clock.
    """
    now = context.times.clock.now() * 1000
    viewer = Viewer(role=context.role)
    for item in context.planner.state.all(Item):
        watermark = context.tables.watermarks.of(item.id) if item.type == "table" else None
        if watermark is not None:
            desc = context.names.catalog.planned[item.id].desc
            shown = viewer.sees(context.planner.state, item, (watermark.column,))
            at = context.tables.watermarks.now(item.id) if shown else None
            yield {
                "object_id": item.id,
                "column_name": desc.names[watermark.column],
                "delay": (0, 0, watermark.delay),
                "watermark": at,
                "idle_timeout": None if watermark.idle is None else (0, 0, watermark.idle),
                "behind": None if at is None else (0, 0, now - at),
            }


def _storage_sizes(context: StatementContext) -> Iterator[Row]:
    for item in context.planner.state.all(Item):
        if item.id in context.tables.capabilities:
            yield {"object_id": item.id, "size_bytes": context.tables.storage.size_bytes(item.id)}


def _expectations(context: StatementContext) -> Iterator[Row]:
    """Yield what is expected of the rows of views, and the views that count violations."""
    state = context.planner.state
    counts = {each.part_of: each.id for each in state.all(Item) if each.part_of}
    for item in state.all(Item):
        if item.type not in ("view", "materialized view"):
            continue
        for name, condition, action in expectations_of(item.create_sql):
            yield {
                "object_id": item.id,
                "name": name,
                "condition": condition,
                "action": action,
                "violations_id": counts.get(item.id),
            }


def _assertions(context: StatementContext) -> Iterator[Row]:
    """Yield the assertions: materialized views of the rows that violate them."""
    for item in context.planner.state.all(Item):
        if item.type == "materialized view" and is_assertion(item.create_sql):
            condition = f"NOT EXISTS ({query_text(item.create_sql)})"
            yield {"object_id": item.id, "name": item.name, "condition": condition}


def _replica_statuses(context: StatementContext) -> Iterator[Row]:
    statuses = {each["replica"]: each for each in context.views.compute.clusters.status()}
    for each in context.names.state.all(Replica):
        status = statuses.get(each.id, {})
        yield {
            "replica_id": each.id,
            "status": "online" if status.get("ready") else "offline",
            "reason": status.get("failure"),
        }


def _refreshes(context: StatementContext) -> Iterator[Row]:
    """Yield the last and the next refresh of materialized views with a schedule."""
    for item in context.names.state.all(Item):
        schedule = context.views.compute.schedule(item.id) if item.refresh else None
        if schedule is not None:
            upper = context.times.upper(item.id)
            last, following = schedule.at_or_before(upper - 1), schedule.at_or_after(upper)
            yield {
                "materialized_view_id": item.id,
                "last_completed_refresh": last if upper and last >= 0 else None,
                "next_refresh": None if following == NEVER else following,
            }


def _pending_replicas(context: StatementContext) -> Iterator[Row]:
    """Yield the replicas that ALTER CLUSTER waits for."""
    for pending in context.views.resizes.pending():
        for name, id in pending.replicas.items():
            yield {"id": id, "name": name, "cluster_id": pending.cluster, "size": pending.size}


def _burst_replicas(context: StatementContext) -> Iterator[Row]:
    """Yield the extra replicas of clusters that hydrate."""
    compute = context.views.compute
    statuses = {each["replica"]: each for each in compute.clusters.status()}
    for extra in compute.bursts:
        status = statuses.get(extra.name, {})
        yield {
            "id": extra.name,
            "cluster_id": extra.cluster,
            "size": extra.burst.size,
            "status": "online" if status.get("ready") else "offline",
            "lingering": extra.ready_at is not None,
        }


def _loop_latencies(context: StatementContext) -> Iterator[Row]:
    for each in context.process.loop_latency.windows:
        yield {
            "window_end": each.end * 1000,
            "window_ms": each.length_ms,
            "probes": each.probes,
            "avg_ms": each.average_ms,
            "max_ms": each.greatest_ms,
        }


def _plan_lookups(context: StatementContext) -> Iterator[Row]:
    """Yield how often plans were found for texts, and why others were planned."""
    for result, counts in context.session.plan_lookups.items():
        for reason, count in counts.items():
            yield {"result": result, "reason": reason, "count": count}


def _read_holds(context: StatementContext) -> Iterator[Row]:
    """Yield the holders of each collection's history."""
    times = context.times
    now = times.oracle.read_ts()
    dataflows: defaultdict[GlobalId, list[tuple[GlobalId, ReadCapability]]] = defaultdict(list)
    for id, hold in context.views.compute.holds():
        dataflows[hold.id].append((id, hold))
    for item in context.names.state.all(Item):
        if item.id not in times.holds.collections:
            continue  # a view, or not registered yet

        def held(kind: str, time: Timestamp, item: Item = item, **holder: object) -> Row:
            of_item = {"object_id": item.id, "object_name": item.name, "kind": kind}
            return {**of_item, "time": time, "age_ms": max(now - time, 0), **holder}

        own = context.tables.capabilities.get(item.id)
        token = own[0].token if own is not None else None
        yield held("retention", times.holds.policy(item.id), token=token)
        for each in times.holds.on(item.id):
            subscription = each.subscription
            yield held(each.kind, each.time, connection_id=each.pid, subscription_id=subscription)
        known = {token}
        for id, hold in dataflows[item.id]:
            known.add(hold.token)
            yield held("dataflow", hold.frontier, dataflow_id=id, token=hold.token)
        for grant in context.tables.storage.grants(item.id) if own is not None else ():
            if grant.mode == "read" and grant.token not in known:
                yield held("capability", grant.frontier, token=grant.token)


def _writers(context: StatementContext) -> Iterator[Row]:
    """Yield the live write capabilities of each collection."""
    tables = context.tables
    dataflows = {write.token: id for id, write in context.views.compute.writes()}
    for item in context.names.state.all(Item):
        own = tables.capabilities.get(item.id)
        for grant in tables.storage.grants(item.id) if own is not None else ():
            if grant.mode != "write" or grant.frontier == EMPTY:
                continue
            kind = "dataflow" if grant.token in dataflows else "capability"
            if own is not None and grant.token == own[1].token:
                kind = "table" if item.id in tables.group else "environment"
            yield {
                "object_id": item.id,
                "object_name": item.name,
                "kind": kind,
                "write_frontier": tables.storage.upper(item.id),
                "token": grant.token,
                "dataflow_id": dataflows.get(grant.token),
            }


def _zones(context: StatementContext) -> Iterator[Row]:
    """Yield the time zones with their offsets at the transaction's time."""
    for each in zones_in(context.transaction.started // 3_600_000_000):
        yield {
            "name": each.name,
            "abbrev": each.abbreviation,
            "utc_offset": (0, 0, each.offset * 1_000_000),
            "is_dst": each.is_summer,
        }


def _cursors(context: StatementContext) -> Iterator[Row]:
    """Yield the cursors of the session, and its named portals."""
    for portal in context.session.portals.values():
        syntax, cursor = portal.statement.syntax, portal.cursor
        if portal.name and (cursor is not None or portal.desc is not None):
            yield {
                "name": portal.name,
                "statement": "" if syntax is None else syntax.text,
                "is_holdable": cursor is not None and cursor.plan.hold,
                "is_binary": cursor is not None and cursor.plan.binary,
                "is_scrollable": cursor is None or cursor.scroll,
                "creation_time": cursor.created if cursor else context.transaction.started,
            }


def _prepared(context: StatementContext) -> Iterator[Row]:
    """Yield the session's own prepared statements that have a name."""
    for name, prepared in context.session.statements.items():
        if prepared.origin is not None:
            yield {
                "name": name,
                "statement": redacted(prepared.origin.text),
                "prepare_time": prepared.origin.at,
                "parameter_types": [oid_of(type) for type in prepared.parameters],
                "from_sql": prepared.origin.from_sql,
                "generic_plans": 0,
                "custom_plans": 0,
            }


def _table_activity(context: StatementContext) -> Iterator[Row]:
    """Yield the counts of tables, by the names of their columns in pg_stat_all_tables."""
    tables = context.tables
    for item in context.planner.state.all(Item):
        if item.id in tables.capabilities:
            found = tables.activity.tables.get(item.id)
            if found is None:
                found = TableActivity(tables.storage.count_updates(item.id))
            yield {
                "id": item.id,
                "n_tup_ins": found.inserted,
                "n_tup_upd": found.updated,
                "n_tup_del": found.deleted,
                "n_live_tup": found.live,
            }


def _transaction_activity(context: StatementContext) -> Iterator[Row]:
    activity = context.tables.activity
    for database in activity.commits.keys() | activity.rollbacks.keys():
        yield {
            "datname": database,
            "xact_commit": activity.commits[database],
            "xact_rollback": activity.rollbacks[database],
        }


LIVE: Mapping[str, Callable[[StatementContext], Iterable[Row]]] = {
    "pg_settings": live_settings,
    "mz_postgres_sources": postgres_sources,
    "mz_source_statuses": source_statuses,
    "mz_source_status_history": source_status_history,
    "mz_source_statistics": source_statistics,
    "mz_dead_letters": dead_letters,
    "mz_leftovers": _leftovers,
    "mz_sink_statuses": sink_statuses,
    "mz_tokens": token_rows,
    "mz_metric_statuses": metric_statuses,
    "mz_sink_status_history": sink_status_history,
    "mz_sink_statistics": sink_statistics,
    "pg_hba_file_rules": _connection_rules,
    "pg_stat_activity": _activity,
    "pg_stat_ssl": _encryption,
    "table_activity": _table_activity,
    "transaction_activity": _transaction_activity,
    "pg_stat_progress_copy": _copies,
    "mz_view_audits": _audits,
    "mz_view_errors": view_errors,
    "mz_watermarks": _watermarks,
    "pg_locks": _advisory_locks,
    "pg_timezone_names": _zones,
    "pg_cursors": _cursors,
    "pg_prepared_statements": _prepared,
    "mz_storage_sizes": _storage_sizes,
    "mz_expectations": _expectations,
    "mz_assertions": _assertions,
    "mz_cluster_replica_statuses": _replica_statuses,
    "mz_cluster_replica_metrics": replica_metrics,
    "mz_cluster_replica_metrics_history": replica_metrics_history,
    "mz_cluster_replica_utilization": replica_utilization,
    "mz_cluster_replica_status_history": replica_status_history,
    "mz_source_statistics_history": source_statistics_history,
    "mz_sink_statistics_history": sink_statistics_history,
    "mz_pending_cluster_replicas": _pending_replicas,
    "mz_burst_cluster_replicas": _burst_replicas,
    "mz_materialized_view_refreshes": _refreshes,
    "mz_message_loop_latency": _loop_latencies,
    "mz_plan_lookups": _plan_lookups,
    "mz_recent_activity_log": recent_statements,
    "mz_read_holds": _read_holds,
    "mz_write_capabilities": _writers,
    **{name: _of_dataflows(rows) for name, rows in DATAFLOWS.items()},
}
