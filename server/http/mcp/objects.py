"""The tools that say what there is: `list_objects` and `describe_object`."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from foreshore.errors import UndefinedTable
from foreshore.server.http.mcp.work import Audience, Work

_OBJECTS = """
SELECT n.schema_name AS schema, n.name, o.type AS kind, c.comment, r.name AS owner,
       CASE WHEN o.type IN ('table', 'source', 'materialized-view') THEN t.n_live_tup END
         AS estimated_rows,
       z.size_bytes, {of_object}
  FROM mz_internal.mz_object_fully_qualified_names n
  JOIN mz_catalog.mz_objects o ON o.id = n.id
  LEFT JOIN mz_catalog.mz_roles r ON r.id = o.owner_id
  LEFT JOIN mz_internal.mz_comments c ON c.id = n.id AND c.object_sub_id IS NULL
  LEFT JOIN pg_catalog.pg_stat_all_tables t ON t.relid = o.oid
  LEFT JOIN mz_internal.mz_storage_sizes z ON z.object_id = n.id
 WHERE n.database_name = current_database() AND {offered}"""
# What agents are offered: the rows of these are there before a query.
_TO_AGENTS = """
   o.type IN ('table', 'source', 'materialized-view', 'view')
   AND (o.type <> 'view' OR o.id IN (SELECT on_id FROM mz_catalog.mz_indexes))
   AND has_schema_privilege(n.schema_name, 'USAGE')
   AND has_any_column_privilege(o.oid, 'SELECT')"""
_OFFERED: Mapping[Audience, str] = {"agent": _TO_AGENTS, "developer": "o.type <> 'index'"}
_CHOSEN = """
   AND ($1::text IS NULL OR n.schema_name = $1::text)
   AND ($2::text IS NULL OR o.type = $2::text)
   AND ($3::text IS NULL OR position(lower($3::text) IN lower(n.name)) > 0)
 ORDER BY n.schema_name, n.name, o.id LIMIT $4::text::int + 1 OFFSET $5::text::int"""
_ONE = " AND o.oid = to_regclass($1::text)::oid"

_COLUMNS = """
SELECT a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type,
       NOT a.attnotnull AS nullable, pg_get_expr(d.adbin, d.adrelid) AS "default",
       col_description(a.attrelid, a.attnum) AS comment
  FROM pg_catalog.pg_attribute a
  LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
 WHERE a.attrelid = $1::text::oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_KEYS = """
SELECT conname AS name, pg_get_constraintdef(oid) AS definition
  FROM pg_catalog.pg_constraint WHERE conrelid = $1::text::oid ORDER BY conname"""
_INDEXES = """
SELECT i.name, k.name AS cluster, pg_get_indexdef(i.oid) AS definition,
       (extract(epoch FROM l.lag) * 1000)::float8 AS lag_ms
  FROM mz_catalog.mz_indexes i JOIN mz_catalog.mz_clusters k ON k.id = i.cluster_id
  LEFT JOIN mz_internal.mz_wallclock_global_lag l ON l.object_id = i.id
 WHERE i.on_id = $1::text ORDER BY i.name"""
_FRESHNESS = """
SELECT (extract(epoch FROM lag) * 1000)::float8 AS lag_ms
  FROM mz_internal.mz_wallclock_global_lag WHERE object_id = $1::text"""
_ERRORS = """
SELECT n.schema_name AS in_schema, n.name AS in_relation, e.sqlstate, e.error, e.rows,
       e.skipped
  FROM mz_internal.mz_view_errors e
  JOIN mz_internal.mz_object_fully_qualified_names n ON n.id = e.cause_id
 WHERE e.object_id = $1::text ORDER BY e.rows DESC NULLS LAST, e.error"""
_NEAR = """
SELECT n.schema_name AS schema, n.name, n.object_type AS kind
  FROM mz_internal.mz_object_dependencies d
  JOIN mz_internal.mz_object_fully_qualified_names n ON n.id = d.{other}
 WHERE d.{this} = $1::text ORDER BY 1, 2"""
_DEPENDS_ON = _NEAR.format(this="object_id", other="referenced_object_id")
_USED_BY = _NEAR.format(this="referenced_object_id", other="object_id")
_DEFINITION = "SELECT pg_get_viewdef($1::text::oid) AS definition"


class ListObjects(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `list_objects`."""

    schema: Annotated[str | None, Meta(description="only objects of this schema")] = None
    kind: Annotated[
        str | None,
        Meta(description="only of this kind: table, source, view, materialized-view, sink, ..."),
    ] = None
    name_contains: Annotated[
        str | None, Meta(description="only objects with this in their name, in any case")
    ] = None
    limit: Annotated[int, Meta(ge=1, le=500, description="how many to return")] = 100
    offset: Annotated[int, Meta(ge=0, le=1_000_000, description="how many to leave out")] = 0


class DescribeObject(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of `describe_object`."""

    name: Annotated[str, Meta(description="a table or view as SQL names it, such as public.orders")]


async def list_objects(work: Work, args: ListObjects) -> Mapping[str, Any]:
    """Return objects of the session's database, and whether there are more."""
    sql = _listing(work.audience, "o.id IN (SELECT on_id FROM mz_catalog.mz_indexes) AS indexed")
    params = (args.schema, args.kind, args.name_contains, str(args.limit), str(args.offset))
    found = await work.dicts(sql + _CHOSEN, *params)
    return {"objects": found[: args.limit], "more": len(found) > args.limit}


async def describe_object(work: Work, args: DescribeObject) -> Mapping[str, Any]:
    """Return what a relation is made of, how fresh it is, and the errors in its data.

    Raises UndefinedTable, also if it is not offered to agents.
    """
    sql = _listing(work.audience, "o.id, o.oid::text AS oid")
    found = await work.dicts(sql + _ONE, args.name)
    if not found:
        hint = "Names are those that list_objects returns, as SQL writes them."
        raise UndefinedTable(f'relation "{args.name}" does not exist', hint=hint)
    (head,) = found
    id, oid = str(head.pop("id")), str(head.pop("oid"))
    lags = await work.dicts(_FRESHNESS, id)
    shown = {
        **head,
        "columns": await work.dicts(_COLUMNS, oid),
        "constraints": await work.dicts(_KEYS, oid),
        "indexes": await work.dicts(_INDEXES, id),
        "lag_ms": lags[0]["lag_ms"] if lags else None,
        "errors": await work.dicts(_ERRORS, id),
    }
    if work.audience == "developer":
        shown |= await _context(work, str(head["kind"]), id, oid)
    return shown


async def _context(work: Work, kind: str, id: str, oid: str) -> Mapping[str, Sequence[Any] | str]:
    """Return what a relation depends on, what uses it, and the query of a view."""
    shown: dict[str, Any] = {
        "depends_on": await work.dicts(_DEPENDS_ON, id),
        "used_by": await work.dicts(_USED_BY, id),
    }
    if kind in ("view", "materialized-view"):
        (found,) = await work.dicts(_DEFINITION, oid)
        shown |= found
    return shown


def _listing(audience: Audience, of_object: str) -> str:
    return _OBJECTS.format(of_object=of_object, offered=_OFFERED[audience])
