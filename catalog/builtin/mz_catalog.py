"""Foreshore's own catalog relations, which SHOW queries, and the state of the system."""

from collections.abc import Callable, Iterable, Iterator

from foreshore.catalog.builtin.definitions import (
    constraint_definition,
    index_definition,
    key_definition,
)
from foreshore.catalog.builtin.relation import (
    Declaration,
    IntrospectionSnapshot,
    Row,
    live,
)
from foreshore.catalog.item import Cluster, Database, Item, Object, Replica, Role, Schema
from foreshore.types import format_type, oid_of

FIRST_OID = 13_100


def _items(snapshot: IntrospectionSnapshot, kind: str) -> Iterator[Item]:
    return (item for item in snapshot.state.all(Item) if item.type == kind)


def _common(each: Object) -> Row:
    return {"id": each.id, "oid": each.oid, "name": each.name}


def _databases(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for database in snapshot.state.all(Database):
        yield {**_common(database), "owner_id": database.owner}


def _schemas(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for schema in snapshot.state.all(Schema):
        yield {**_common(schema), "database_id": schema.database, "owner_id": schema.owner}


def _roles(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for role in snapshot.state.all(Role):
        yield {**_common(role), "superuser": role.superuser}


def _builtin_tables(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    schemas = {s.name: s.id for s in snapshot.state.all(Schema) if s.database is None}
    for builtin in snapshot.builtins:
        yield {
            "id": builtin.id,
            "oid": builtin.oid,
            "schema_id": schemas[builtin.schema],
            "name": builtin.name,
            "owner_id": "s1",
        }


def _objects(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item in snapshot.state.all(Item):
        yield {
            **_common(item),
            "schema_id": item.schema,
            "type": item.type.replace(" ", "-"),
            "owner_id": item.owner,
            "cluster_id": item.cluster,
        }
    for row in _builtin_tables(snapshot):
        yield {**row, "type": "table"}


def _relations(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for row in _objects(snapshot):
        if row["type"] not in ("index", "subscription", "type", "domain"):
            yield row


def _tables(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item in _items(snapshot, "table"):
        yield {
            **_common(item),
            "schema_id": item.schema,
            "owner_id": item.owner,
            "create_sql": item.create_sql,
        }
    yield from _builtin_tables(snapshot)


def _view_row(snapshot: IntrospectionSnapshot, item: Item) -> Row:
    return {
        **_common(item),
        "schema_id": item.schema,
        "definition": snapshot.definition_of(item.id),
        "owner_id": item.owner,
        "create_sql": item.create_sql,
    }


def _views(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item in _items(snapshot, "view"):
        yield _view_row(snapshot, item)


def _materialized_views(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item in _items(snapshot, "materialized view"):
        yield {**_view_row(snapshot, item), "cluster_id": item.cluster}


def _refresh_strategies(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield one row for each view that follows every change, and for each part of a schedule."""
    for item in _items(snapshot, "materialized view"):
        id = {"materialized_view_id": item.id}
        if not item.refresh:
            yield {**id, "type": "on-commit"}
            continue
        refresh = item.refresh
        yield {**id, "type": "at-creation"}
        for at in refresh.at:
            yield {**id, "type": "at", "at": at * 1000}
        if refresh.every_ms is not None:
            yield {
                **id,
                "type": "target-lag" if refresh.is_lag else "every",
                "interval": _span(refresh.every_ms),
                "aligned_to": refresh.aligned_to * 1000,
            }


def _subscriptions(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item in _items(snapshot, "subscription"):
        position, behind_ms = snapshot.subscription_state_of(item.id) or (None, None)
        yield {**_view_row(snapshot, item), "position": position, "behind_ms": behind_ms}


def _indexes(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item in _items(snapshot, "index"):
        yield {
            **_common(item),
            "on_id": item.on,
            "cluster_id": item.cluster,
            "owner_id": item.owner,
            "create_sql": item.create_sql,
        }


def _index_columns(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item in _items(snapshot, "index"):
        if item.on is None or item.on not in snapshot.state.objects:
            continue
        columns = snapshot.desc_of(item.on).columns
        for number, (position, text) in enumerate(snapshot.index_key_of(item.id), 1):
            yield {
                "index_id": item.id,
                "index_position": number,
                "on_position": position or None,
                "on_expression": None if position else text,
                "nullable": columns[position - 1].nullable if position else True,
            }


def _columns(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    described = [
        (item.id, snapshot.desc_of(item.id), item.type == "table")
        for item in snapshot.state.all(Item)
        if item.type not in ("index", "subscription", "type", "domain")
    ]
    for id, desc, is_table in (*described, *((b.id, b.desc, False) for b in snapshot.builtins)):
        for i, (name, column) in enumerate(zip(desc.names, desc.columns, strict=True)):
            yield {
                "id": id,
                "name": name,
                "position": i + 1,
                "nullable": column.nullable,
                "type": format_type(column.type),
                "default": snapshot.default_of(id, i) if is_table else None,
                "type_oid": oid_of(column.type),
                "type_mod": -1,
            }


def _clusters(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for cluster in snapshot.state.all(Cluster):
        yield {
            **_common(cluster),
            "owner_id": cluster.owner,
            "managed": cluster.managed,
            "size": cluster.size,
            "replication_factor": cluster.replication_factor,
        }


def _replicas(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for replica in snapshot.state.all(Replica):
        yield {
            "id": replica.id,
            "name": replica.name,
            "cluster_id": replica.cluster,
            "size": replica.size,
            "owner_id": replica.owner,
        }


def _frontiers(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for frontier in snapshot.frontiers():
        yield {
            "object_id": frontier.id,
            "read_frontier": frontier.since,
            "write_frontier": frontier.upper,
        }


def _lag(upper: int | None, than: int) -> dict[str, int] | None:
    """Return how far `upper` is behind `than`, as an interval; None if it is not known."""
    return _span(max(than - upper, 0)) if upper else None


def _span(milliseconds: int) -> dict[str, int]:
    """Return an interval."""
    return {"months": 0, "days": 0, "micros": milliseconds * 1000}


def _wallclock_lags(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield how far each collection is behind the current time."""
    for each in snapshot.frontiers():
        yield {"object_id": each.id, "lag": _lag(each.upper, snapshot.now)}


def _materialization_lags(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield how far maintained collections are behind their inputs and base tables.

    The lag is relative to the most advanced input. The slowest input delays the collection, if the
    collection does not delay itself.
    """
    frontiers = tuple(snapshot.frontiers())
    uppers = {each.id: each.upper or 0 for each in frontiers}
    for each in frontiers:
        inputs, bases = sorted(each.inputs & uppers.keys()), sorted(each.bases & uppers.keys())
        if inputs and bases:
            yield {
                "object_id": each.id,
                "local_lag": _lag(each.upper, max(map(uppers.__getitem__, inputs))),
                "global_lag": _lag(each.upper, max(map(uppers.__getitem__, bases))),
                "slowest_local_input_id": min(inputs, key=uppers.__getitem__),
                "slowest_global_input_id": min(bases, key=uppers.__getitem__),
            }


def _dependencies(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item in snapshot.state.all(Item):
        for need in item.depends_on:
            yield {"object_id": item.id, "referenced_object_id": need}


def _comments(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield all comments; those on columns with the column's position."""
    for each in snapshot.state.objects.values():
        of_object = {"id": each.id, "object_type": each.kind.replace(" ", "-")}
        if each.comment:
            yield {**of_object, "comment": each.comment}
        if isinstance(each, Item):
            for position, text in (each.column_comments or {}).items():
                yield {**of_object, "object_sub_id": position, "comment": text}


def _visibility(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield for each relation whether its unqualified name finds it on the search path.

    Relations of mz_catalog are reported as not visible, although their names are found. Otherwise
    psql, which lists everything visible outside pg_catalog, would list them among the user's.
    """
    places = {name: place for place, name in enumerate(snapshot.search_path)}
    named: dict[str, list[tuple[int, int]]] = {}  # position in the path, and oid
    last = len(places)

    def add(name: str, schema: str, oid: int) -> None:
        named.setdefault(name, []).append((places.get(schema, last), oid))

    for item in (*snapshot.items, *snapshot.types):
        add(item.name, snapshot.name(item.schema), item.oid)
    for item, constraint, _ in snapshot.keys:
        add(constraint.name, snapshot.name(item.schema), constraint.oid)
    for builtin in snapshot.builtins:
        add(builtin.name, builtin.schema, builtin.oid)
    unlisted = {builtin.oid for builtin in snapshot.builtins if builtin.schema == "mz_catalog"}
    for found in named.values():
        first = min(found)
        for place, oid in found:
            visible = place < last and (place, oid) == first and oid not in unlisted
            yield {"oid": oid, "visible": visible}


def _definitions(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the results of pg_get_viewdef, pg_get_indexdef and pg_get_constraintdef."""
    for item, named, constraint in snapshot.constraints:
        texts = {
            "constraint": constraint_definition(snapshot, item, constraint),
            "pretty constraint": constraint_definition(snapshot, item, constraint, pretty=True),
        }
        for kind, text in texts.items():
            yield {"oid": named.oid, "kind": kind, "definition": text, "create_sql": text}
    for item, named, key in snapshot.keys:
        text = key_definition(snapshot, item, key)
        yield {"oid": named.oid, "kind": "index", "definition": text, "create_sql": text}
    for item in snapshot.items:
        if item.type == "index":
            if item.on not in snapshot.state.objects:
                continue
            definition = index_definition(snapshot, item)
        elif item.type == "table":
            definition = item.create_sql
        else:
            definition = f" {snapshot.definition_of(item.id)};"
        yield {
            "oid": item.oid,
            "kind": item.type,
            "definition": definition,
            "create_sql": item.create_sql,
        }


def _sessions(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for each in snapshot.live("pg_stat_activity"):
        yield {
            "connection_id": each["pid"],
            "role": each["usename"],
            "database": each["datname"],
            "application_name": each["application_name"],
            "state": each["state"],
            "query": each["query"],
            "connected_at": each["backend_start"],
            "client_address": each["client_addr"],
        }


def _storage_sizes(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    state = snapshot.state
    for each in snapshot.live("mz_storage_sizes"):
        item = state.item(each["object_id"])
        schema = state.objects[item.schema]
        assert isinstance(schema, Schema), schema
        yield {**each, "oid": item.oid, "database_id": schema.database}


# Schema, name, columns and rows, in the order of the oids.
_RELATIONS: tuple[tuple[str, str, str, Callable[[IntrospectionSnapshot], Iterable[Row]]], ...] = (
    ("mz_catalog", "mz_databases", "id text, oid oid, name text, owner_id text", _databases),
    (
        "mz_catalog",
        "mz_schemas",
        "id text, oid oid, database_id text?, name text, owner_id text",
        _schemas,
    ),
    ("mz_catalog", "mz_roles", "id text, oid oid, name text, superuser bool", _roles),
    (
        "mz_catalog",
        "mz_objects",
        "id text, oid oid, schema_id text, name text, type text, owner_id text,cluster_id text?",
        _objects,
    ),
    (
        "mz_catalog",
        "mz_relations",
        "id text, oid oid, schema_id text, name text, type text, owner_id text,cluster_id text?",
        _relations,
    ),
    (
        "mz_catalog",
        "mz_tables",
        "id text, oid oid, schema_id text, name text, owner_id text, create_sql text?",
        _tables,
    ),
    (
        "mz_catalog",
        "mz_views",
        "id text, oid oid, schema_id text, name text, definition text, owner_id text,"
        "create_sql text",
        _views,
    ),
    (
        "mz_catalog",
        "mz_materialized_views",
        "id text, oid oid, schema_id text, name text, cluster_id text, definition text,"
        "owner_id text, create_sql text",
        _materialized_views,
    ),
    (
        "mz_catalog",
        "mz_indexes",
        "id text, oid oid, name text, on_id text, cluster_id text, owner_id text,create_sql text",
        _indexes,
    ),
    (
        "mz_catalog",
        "mz_index_columns",
        "index_id text, index_position int8, on_position int8?, on_expression text?,nullable bool",
        _index_columns,
    ),
    (
        "mz_catalog",
        "mz_columns",
        "id text, name text, position int8, nullable bool, type text, default text?,"
        "type_oid oid, type_mod int4",
        _columns,
    ),
    (
        "mz_catalog",
        "mz_clusters",
        "id text, oid oid, name text, owner_id text, managed bool, size text?,"
        "replication_factor int8?",
        _clusters,
    ),
    (
        "mz_catalog",
        "mz_cluster_replicas",
        "id text, name text, cluster_id text, size text, owner_id text",
        _replicas,
    ),
    (
        "mz_internal",
        "mz_cluster_replica_statuses",
        "replica_id text, status text, reason text?",
        live("mz_cluster_replica_statuses"),
    ),
    (
        "mz_internal",
        "mz_frontiers",
        "object_id text, read_frontier mz_timestamp?, write_frontier mz_timestamp?",
        _frontiers,
    ),
    (
        "mz_internal",
        "mz_storage_sizes",
        "object_id text, oid oid, database_id text?, size_bytes int8",
        _storage_sizes,
    ),
    (
        "mz_internal",
        "mz_sessions",
        "connection_id int8, role text, database text, application_name text, state text,"
        "query text, connected_at timestamptz, client_address text?",
        _sessions,
    ),
    (
        "mz_internal",
        "mz_object_dependencies",
        "object_id text, referenced_object_id text",
        _dependencies,
    ),
    (
        "mz_internal",
        "mz_comments",
        "id text, object_type text, object_sub_id int4?, comment text",
        _comments,
    ),
    (
        "mz_internal",
        "pg_object_definitions",
        "oid oid, kind text, definition text, create_sql text",
        _definitions,
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
        _visibility,
    ),
    (
        "mz_catalog",
        "mz_subscriptions",
        "id text, oid oid, schema_id text, name text, position mz_timestamp?, behind_ms int8?,"
        "definition text, owner_id text, create_sql text",
        _subscriptions,
    ),
    (
        "mz_internal",
        "mz_wallclock_global_lag",
        "object_id text, lag interval?",
        _wallclock_lags,
    ),
    (
        "mz_internal",
        "mz_materialization_lag",
        "object_id text, local_lag interval?, global_lag interval?,"
        "slowest_local_input_id text, slowest_global_input_id text",
        _materialization_lags,
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
        "mz_message_loop_latency",
        "window_end timestamptz, window_ms int8, probes int8, avg_ms float8, max_ms float8",
        live("mz_message_loop_latency"),
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
        "batches int8, size int8, merges int8",
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
        _refresh_strategies,
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
)


def relations() -> Iterator[Declaration]:
    """Yield the relations of mz_catalog, mz_internal and mz_introspection."""
    for number, (schema, name, columns, rows) in enumerate(_RELATIONS):
        yield Declaration(FIRST_OID + number, schema, name, columns, rows)
