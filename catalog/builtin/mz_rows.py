"""The rows of Foreshore's own catalog relations, from a snapshot of the catalog and the system."""

from collections.abc import Iterator

from foreshore.catalog.builtin import foreign_keys
from foreshore.catalog.builtin.definitions import (
    constraint_definition,
    index_definition,
    key_definition,
)
from foreshore.catalog.builtin.function_texts import arguments_of, definition_of
from foreshore.catalog.builtin.relation import IntrospectionSnapshot, Row
from foreshore.catalog.builtin.watermarks import watermark_definitions
from foreshore.catalog.item import (
    Cluster,
    Connection,
    Database,
    Item,
    Object,
    Replica,
    Role,
    Schema,
    Secret,
)
from foreshore.ids import is_temporary
from foreshore.sinks.kafka import KafkaTarget
from foreshore.sinks.spec import Target, connections_of, secrets_of
from foreshore.sinks.spec import kind_of as kind_of_target
from foreshore.sources.formats import Format, name_of
from foreshore.sources.kafka import KafkaSource
from foreshore.sources.outputs import PROGRESS, is_auxiliary
from foreshore.sources.spec import Feed, kind_of
from foreshore.sources.spec import connections_of as connections_of_source
from foreshore.sources.spec import secrets_of as secrets_of_source
from foreshore.types import format_type, oid_of

# kinds of objects whose columns nobody reads
NO_RELATIONS = frozenset(("index", "subscription", "sink", "type", "domain", "function", "policy"))


def _items(snapshot: IntrospectionSnapshot, kind: str) -> Iterator[Item]:
    return (item for item in snapshot.state.all(Item) if item.type == kind)


def _common(each: Object) -> Row:
    return {"id": each.id, "oid": each.oid, "name": each.name}


def database_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_databases."""
    for database in snapshot.state.all(Database):
        yield {**_common(database), "owner_id": database.owner}


def schema_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_schemas."""
    for schema in snapshot.state.all(Schema):
        yield {**_common(schema), "database_id": schema.database, "owner_id": schema.owner}


def role_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_roles."""
    for role in snapshot.state.all(Role):
        yield {
            **_common(role),
            "superuser": role.superuser,
            "inherit": role.inherit,
            "rolcanlogin": role.login,
            "rolsuper": role.superuser,
        }


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


def object_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_objects."""
    for item in snapshot.all_items:
        yield {
            **_common(item),
            "schema_id": item.schema,
            "type": item.kind.replace(" ", "-"),
            "owner_id": item.owner,
            "cluster_id": item.cluster,
        }
    for row in _builtin_tables(snapshot):
        yield {**row, "type": "table"}


def relation_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_relations.

    The schema of temporary relations is 0, as in Materialize, by which tools find their own.
    """
    for row in object_rows(snapshot):
        if row["type"] not in NO_RELATIONS:
            yield {**row, "schema_id": "0"} if is_temporary(str(row["schema_id"])) else row


def table_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_tables."""
    for item in _items(snapshot, "table"):
        if item.feed and (item.feed.spec is not None or is_auxiliary(item.feed.reference)):
            continue
        yield {
            **_common(item),
            "schema_id": item.schema,
            "owner_id": item.owner,
            "create_sql": snapshot.create_sql_of(item) if item.feed else item.create_sql,
            "source_id": item.feed.source if item.feed else None,
        }
    yield from _builtin_tables(snapshot)


def _view_row(snapshot: IntrospectionSnapshot, item: Item) -> Row:
    return {
        **_common(item),
        "schema_id": item.schema,
        "definition": snapshot.full_definition_of(item.id),
        "owner_id": item.owner,
        "create_sql": item.create_sql,
    }


def view_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_views."""
    for item in _items(snapshot, "view"):
        if not item.metric:
            yield _view_row(snapshot, item)


def materialized_view_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_materialized_views."""
    for item in _items(snapshot, "materialized view"):
        yield {**_view_row(snapshot, item), "cluster_id": item.cluster}


def refresh_strategy_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
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
        if refresh.is_downstream:
            yield {**id, "type": "downstream"}
        if refresh.every_ms is not None:
            yield {
                **id,
                "type": "target-lag" if refresh.is_lag else "every",
                "interval": span(refresh.every_ms),
                "aligned_to": refresh.aligned_to * 1000,
            }


def subscription_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_subscriptions."""
    for item in _items(snapshot, "subscription"):
        if item.sink:
            continue
        position, behind_ms = snapshot.subscription_state_of(item.id) or (None, None)
        yield {**_view_row(snapshot, item), "position": position, "behind_ms": behind_ms}


def secret_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_secrets, which have no values."""
    for each in snapshot.state.all(Secret):
        yield {
            "id": each.id,
            "oid": each.oid,
            "schema_id": each.schema,
            "name": each.name,
            "owner_id": each.owner,
        }


def connection_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_connections."""
    for each in snapshot.state.all(Connection):
        yield {
            **_common(each),
            "schema_id": each.schema,
            "type": each.spec.kind.replace(" ", "-"),
            "owner_id": each.owner,
            "create_sql": snapshot.create_sql_of(each),
        }


def source_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_sources: sources, and the relations that come with them."""
    for item in _items(snapshot, "table"):
        if item.feed:
            yield {
                **_common(item),
                "schema_id": item.schema,
                "type": source_type(item.feed),
                **_read_by(item.feed),
                "cluster_id": item.cluster,
                "owner_id": item.owner,
                "create_sql": snapshot.create_sql_of(item),
            }


def _read_by(feed: Feed) -> Row:
    """Return the columns about a source's connection, envelope and formats."""
    spec, messages = feed.spec, feed.messages
    row: dict[str, str | None] = {}
    if spec is not None:
        row["connection_id"] = next(iter(connections_of_source(spec)), None)
    if isinstance(spec, KafkaSource):
        messages = spec.messages
    if messages is not None:
        row["envelope_type"] = messages.envelope
        row |= _formats(messages.key, messages.value)
    return row


def _formats(key: Format | None, value: Format) -> dict[str, str | None]:
    return {"key_format": None if key is None else name_of(key), "value_format": name_of(value)}


def sink_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_sinks."""
    for item in _items(snapshot, "subscription"):
        if item.sink:
            yield {
                **_common(item),
                "schema_id": item.schema,
                "type": kind_of_target(item.sink.target),
                "connection_id": next(iter(connections_of(item.sink.target)), None),
                "envelope_type": item.sink.envelope,
                **_written_formats(item.sink.target),
                "cluster_id": item.cluster,
                "owner_id": item.owner,
                "create_sql": snapshot.create_sql_of(item),
            }


def _written_formats(target: Target) -> Row:
    """Return the columns about the formats of a topic; `format` if key and value have the same."""
    if not isinstance(target, KafkaTarget):
        return {}
    row = _formats(target.key, target.value)
    is_one = row["key_format"] in (None, row["value_format"])
    return {**row, "format": row["value_format"] if is_one else None}


_FOLLOWED = ("table", "view", "materialized view")  # by metrics


def metric_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_metrics."""
    for item in _items(snapshot, "view"):
        if item.metric:
            yield {
                **_common(item),
                "schema_id": item.schema,
                "type": item.metric.kind,
                "help": item.metric.help,
                "relation_id": next(
                    id for id in item.depends_on if snapshot.state.item(id).type in _FOLLOWED
                ),
                "labels": list(snapshot.desc_of(item.id).names[:-1]),
                "max_series": item.metric.most_series,
                "owner_id": item.owner,
            }


def source_type(feed: Feed) -> str:
    """Return the type of a source in mz_sources."""
    if feed.spec is not None:
        return kind_of(feed.spec)
    return "progress" if feed.reference == PROGRESS else "subsource"


def index_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_indexes."""
    for item in _items(snapshot, "index"):
        yield {
            **_common(item),
            "on_id": item.on,
            "cluster_id": item.cluster,
            "owner_id": item.owner,
            "create_sql": item.create_sql,
        }


def index_column_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_index_columns."""
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


def column_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_columns."""
    described = [
        (item.id, snapshot.desc_of(item.id), item.type == "table")
        for item in snapshot.all_items
        if item.kind not in NO_RELATIONS
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


def cluster_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_clusters."""
    for cluster in snapshot.state.all(Cluster):
        yield {
            **_common(cluster),
            "owner_id": cluster.owner,
            "managed": cluster.managed,
            "size": cluster.size,
            "replication_factor": cluster.replication_factor,
        }


def replica_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_cluster_replicas."""
    for replica in snapshot.state.all(Replica):
        yield {
            "id": replica.id,
            "name": replica.name,
            "cluster_id": replica.cluster,
            "size": replica.size,
            "owner_id": replica.owner,
            "workers": int(replica.options.get("workers", "1")),
        }


def cluster_option_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_cluster_options: what was given, by the engine's names."""
    for cluster in snapshot.state.all(Cluster):
        for name, value in sorted(cluster.options.items()):
            yield {"cluster_id": cluster.id, "name": name, "value": value}


def frontier_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_frontiers."""
    for frontier in snapshot.frontiers():
        yield {
            "object_id": frontier.id,
            "read_frontier": frontier.since,
            "write_frontier": frontier.upper,
        }


def _lag(upper: int | None, than: int) -> dict[str, int] | None:
    """Return how far `upper` is behind `than`, as an interval; None if it is not known."""
    return span(max(than - upper, 0)) if upper else None


def span(milliseconds: int) -> dict[str, int]:
    """Return an interval."""
    return {"months": 0, "days": 0, "micros": milliseconds * 1000}


def wallclock_lag_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield how far each collection is behind the current time."""
    for each in snapshot.frontiers():
        yield {"object_id": each.id, "lag": _lag(each.upper, snapshot.now)}


def materialization_lag_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
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


def dependency_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_object_dependencies."""
    for item in snapshot.all_items:
        for need in (*item.depends_on, *_external_needs(item)):
            yield {"object_id": item.id, "referenced_object_id": need}
    if snapshot.is_rest:
        for connection in snapshot.state.all(Connection):
            for need in sorted(connection.spec.needs):
                yield {"object_id": connection.id, "referenced_object_id": need}


def _external_needs(item: Item) -> tuple[str, ...]:
    """Return the ids of connections and secrets that a source or sink uses itself."""
    if item.feed and item.feed.spec is not None:
        spec = item.feed.spec
        return (*connections_of_source(spec), *secrets_of_source(spec))
    if item.sink:
        return (*connections_of(item.sink.target), *secrets_of(item.sink.target))
    return ()


def comment_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield all comments; those on columns with the column's position."""
    for each in snapshot.state.objects.values():
        of_object = {"id": each.id, "object_type": each.kind.replace(" ", "-")}
        if each.comment:
            yield {**of_object, "comment": each.comment}
        if isinstance(each, Item):
            for position, text in (each.column_comments or {}).items():
                yield {**of_object, "object_sub_id": position, "comment": text}


def visibility_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield for each relation and function whether the search path finds its unqualified name.

    Relations of mz_catalog are reported as not visible, although their names are found. Otherwise
    psql, which lists everything visible outside pg_catalog, would list them among the user's.
    """
    ids = {schema.name: schema.id for schema in snapshot.schemas.values()}

    def is_first(schema: str, name: str) -> bool:
        """Return whether the search path finds a name in this schema."""
        for each in snapshot.search_path:
            if each == schema:
                return schema != "mz_catalog"
            if (each, name) in snapshot.system_names:
                return False
            if each in ids and snapshot.state.is_taken(ids[each], name):
                return False
        return False

    for item in (*snapshot.items, *snapshot.types):
        yield {"oid": item.oid, "visible": is_first(snapshot.name(item.schema), item.name)}
    for item in snapshot.database_items:
        if item.is_function:
            visible = snapshot.name(item.schema) in snapshot.search_path
            yield {"oid": item.oid, "visible": visible}
    for item, constraint, _ in snapshot.keys:
        visible = is_first(snapshot.name(item.schema), constraint.name)
        yield {"oid": constraint.oid, "visible": visible}
    for builtin in snapshot.builtins:
        yield {"oid": builtin.oid, "visible": is_first(builtin.schema, builtin.name)}


def definition_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the results of pg_get_viewdef, pg_get_functiondef and others of their kind."""
    yield from foreign_keys.definition_rows(snapshot)
    yield from watermark_definitions(snapshot)
    for item, named, constraint in snapshot.constraints:
        texts = {
            "constraint": constraint_definition(snapshot, item, constraint),
            "pretty constraint": constraint_definition(snapshot, item, constraint, pretty=True),
        }
        for kind, text in texts.items():
            yield {"oid": named.oid, "kind": kind, "definition": text, "create_sql": text}
    for _, oid, check in snapshot.all_domain_checks:
        for kind, text in (
            ("constraint", f"CHECK (({check.text}))"),
            ("pretty constraint", f"CHECK ({check.text})"),
        ):
            yield {"oid": oid, "kind": kind, "definition": text, "create_sql": text}
    for item in snapshot.database_items:
        function = snapshot.planned[item.id].function if item.is_function else None
        if function is not None:
            texts = {
                "function": definition_of(snapshot.name(item.schema), item.name, function),
                "function arguments": arguments_of(function),
            }
            for kind, text in texts.items():
                yield {"oid": item.oid, "kind": kind, "definition": text, "create_sql": text}
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


def session_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_sessions."""
    for each in snapshot.live("pg_stat_activity"):
        yield {
            "connection_id": each["pid"],
            "role": each["usename"],
            "database": each["datname"],
            "application_name": each["application_name"],
            "state": each.get("state"),
            "query": each["query"],
            "connected_at": each.get("backend_start"),
            "client_address": each.get("client_addr"),
        }


def storage_size_rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_storage_sizes."""
    state = snapshot.state
    for each in snapshot.live("mz_storage_sizes"):
        item = state.item(each["object_id"])
        schema = state.objects[item.schema]
        assert isinstance(schema, Schema), schema
        yield {**each, "oid": item.oid, "database_id": schema.database}
