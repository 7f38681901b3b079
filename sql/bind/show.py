"""Bind SHOW objects, as SQL queries over mz_catalog."""

from foreshore.errors import InvalidSchemaName, SyntaxError_
from foreshore.ids import is_temporary
from foreshore.sql import ast
from foreshore.sql.bind.bound_query import BoundQuery
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.parse.keywords import quote_string

_IN_SCHEMA = """
    FROM mz_catalog.{relation} o
    JOIN mz_catalog.mz_schemas s ON s.id = o.schema_id
    LEFT JOIN mz_catalog.mz_databases d ON d.id = s.database_id
    WHERE {where}"""


def bind_show(planning: Planning, statement: ast.ShowStatement) -> BoundQuery:
    """Return the query of a SHOW statement."""
    from foreshore.sql.parse.parse import parse

    with located(statement.at):
        text = _text(planning, statement)
    base = parse(text)[0].ast
    assert isinstance(base, ast.SelectStatement)
    query = base.query
    at = statement.at
    where = statement.where
    if statement.like is not None:
        where = ast.Like(
            "like",
            ast.ColumnRef(("name",), at),
            ast.String(statement.like, at),
            None,
            False,
            at,
        )
    shown = ast.SubqueryRef(query, "shown", (), False, at)
    star = ast.Target(ast.Star((), at), None, at)
    select = ast.Select(None, (star,), (shown,), where, (), None, at)
    order = (ast.SortKey(ast.Number("1", at), False, None, at),)
    if statement.what == "columns":
        # Order by the relation's position, which is not shown.
        order = (ast.SortKey(ast.ColumnRef(("position",), at), False, None, at),)
    bound = planning.binding.query(planning, ast.Query(select, at, order_by=order), None)
    if statement.what == "columns":
        bound.project, bound.names = bound.project[:-1], bound.names[:-1]
        bound.origins = bound.origins[:-1]
    return bound


def _schema(planning: Planning, within: tuple[str, ...]) -> str:
    """Return the condition that selects the schema."""
    if len(within) > 2:
        raise SyntaxError_(f"improper qualified name: {'.'.join(within)}")
    catalog = planning.catalog
    if within:
        name = within[-1]
        database = within[0] if len(within) == 2 else catalog.database
        catalog.resolve_new((*((database,) if len(within) == 2 else ()), name, "x"))
    else:
        system = (
            "pg_catalog",
            "mz_catalog",
            "mz_internal",
            "mz_introspection",
            "information_schema",
        )
        path = catalog.search_path
        own = [each for each in path if each not in system and not is_temporary(each)]
        if not own:
            raise InvalidSchemaName("no schema has been selected")
        name, database = own[0], catalog.database
    database = quote_string(database)
    return f"s.name = {quote_string(name)} AND (d.name = {database} OR s.database_id IS NULL)"


def _text(planning: Planning, statement: ast.ShowStatement) -> str:
    within = statement.within
    match statement.what:
        case "databases":
            return "SELECT name FROM mz_catalog.mz_databases"
        case "schemas":
            database = within[-1] if within else planning.catalog.database
            return (
                "SELECT s.name FROM mz_catalog.mz_schemas s "
                "LEFT JOIN mz_catalog.mz_databases d ON d.id = s.database_id "
                f"WHERE d.name = {quote_string(database)} OR s.database_id IS NULL"
            )
        case "tables" | "views":
            return "SELECT o.name" + _IN_SCHEMA.format(
                relation=f"mz_{statement.what}", where=_schema(planning, within)
            )
        case "objects":
            return "SELECT o.name, o.type" + _IN_SCHEMA.format(
                relation="mz_objects", where=_schema(planning, within)
            )
        case "materialized views":
            where = _schema(planning, within)
            if statement.in_cluster is not None:
                where += f" AND c.name = {quote_string(statement.in_cluster)}"
            return "SELECT o.name, c.name AS cluster" + _IN_SCHEMA.format(
                relation="mz_materialized_views o "
                "JOIN mz_catalog.mz_clusters c ON c.id = o.cluster_id",
                where=where,
            ).replace(" o\n", "\n", 1)
        case "indexes":
            return _indexes(planning, statement)
        case "subscriptions":
            return "SELECT o.name, o.position, o.behind_ms" + _IN_SCHEMA.format(
                relation="mz_subscriptions", where=_schema(planning, within)
            )
        case "secrets":
            return "SELECT o.name" + _IN_SCHEMA.format(
                relation="mz_secrets", where=_schema(planning, within)
            )
        case "sources" | "sinks":
            return "SELECT o.name, o.type, c.name AS cluster" + _IN_SCHEMA.format(
                relation=f"mz_{statement.what} o "
                "LEFT JOIN mz_catalog.mz_clusters c ON c.id = o.cluster_id",
                where=_schema(planning, within),
            ).replace(" o\n", "\n", 1)
        case "subsources":
            where = "o.type = 'subsource'"
            if statement.on:
                source = planning.catalog.resolve_item(statement.on).id
                where += f" AND b.referenced_object_id = {quote_string(source)}"
            else:
                where += f" AND {_schema(planning, within)}"
            return "SELECT o.name, o.type" + _IN_SCHEMA.format(
                relation="mz_sources o JOIN mz_internal.mz_object_dependencies b"
                " ON b.object_id = o.id",
                where=where,
            ).replace(" o\n", "\n", 1)
        case "connections":
            return "SELECT o.name, o.type" + _IN_SCHEMA.format(
                relation="mz_connections", where=_schema(planning, within)
            )
        case "functions":
            return (
                "SELECT o.name, pg_get_function_arguments(o.oid) AS arguments, "
                "pg_get_function_result(o.oid) AS result, l.lanname AS language"
            ) + _IN_SCHEMA.format(
                relation="mz_functions o JOIN pg_catalog.pg_proc p ON p.oid = o.oid "
                "JOIN pg_catalog.pg_language l ON l.oid = p.prolang",
                where=_schema(planning, within),
            ).replace(" o\n", "\n", 1)
        case "shard":
            return _shard(within[0])
        case "create function":
            return _function(*within)
        case "sequences":
            return "SELECT o.name" + _IN_SCHEMA.format(
                relation="mz_objects", where=f"o.type = 'sequence' AND {_schema(planning, within)}"
            )
        case "assertions":
            return "SELECT o.name, a.condition" + _IN_SCHEMA.format(
                relation="mz_materialized_views o "
                "JOIN mz_internal.mz_assertions a ON a.object_id = o.id",
                where=_schema(planning, within),
            ).replace(" o\n", "\n", 1)
        case "tokens":
            return "SELECT role, name, created_at, valid_until FROM mz_catalog.mz_tokens"
        case "types":
            return "SELECT o.name" + _IN_SCHEMA.format(
                relation="mz_types", where=_schema(planning, within)
            )
        case "clusters":
            return (
                "SELECT c.name, (SELECT string_agg(r.name || ' (' || r.size || CASE r.workers "
                "WHEN 1 THEN '' ELSE ', ' || r.workers || ' workers' END || ')', ', ' "
                "ORDER BY r.name) FROM mz_catalog.mz_cluster_replicas r "
                "WHERE r.cluster_id = c.id) AS replicas FROM mz_catalog.mz_clusters c"
            )
        case "cluster replicas":
            return (
                "SELECT c.name AS cluster, r.name AS replica, r.size, r.workers "
                "FROM mz_catalog.mz_cluster_replicas r "
                "JOIN mz_catalog.mz_clusters c ON c.id = r.cluster_id"
            )
        case "network policies":
            return (
                "SELECT p.name, (SELECT string_agg(r.name, ', ' ORDER BY r.name) "
                "FROM mz_internal.mz_network_policy_rules r WHERE r.policy_id = p.id) AS rules, "
                "coalesce((SELECT c.comment FROM mz_internal.mz_comments c "
                "WHERE c.id = p.id), '') AS comment FROM mz_internal.mz_network_policies p"
            )
        case "metrics":
            return "SELECT name, type, help, labels FROM mz_catalog.mz_metrics"
        case "roles":
            return "SELECT name FROM mz_catalog.mz_roles WHERE name NOT LIKE 'pg@_%' ESCAPE '@'"
        case "role membership":
            return (
                "SELECT r.name AS role, m.name AS member, g.name AS grantor "
                "FROM mz_catalog.mz_role_members x "
                "JOIN mz_catalog.mz_roles r ON r.id = x.role_id "
                "JOIN mz_catalog.mz_roles m ON m.id = x.member "
                "LEFT JOIN mz_catalog.mz_roles g ON g.id = x.grantor"
            )
        case "privileges":
            return (
                "SELECT grantor, grantee, database, schema, name, object_type, privilege_type "
                "FROM mz_internal.mz_show_privileges"
            )
        case "default privileges":
            return (
                "SELECT r.name AS object_owner, d.name AS database, s.name AS schema, "
                "p.object_type, CASE p.grantee WHEN 'p' THEN 'PUBLIC' ELSE g.name END AS grantee, "
                "p.privileges AS privilege_type FROM mz_catalog.mz_default_privileges p "
                "JOIN mz_catalog.mz_roles r ON r.id = p.role_id "
                "LEFT JOIN mz_catalog.mz_roles g ON g.id = p.grantee "
                "LEFT JOIN mz_catalog.mz_schemas s ON s.id = p.schema_id "
                "LEFT JOIN mz_catalog.mz_databases d ON d.id = p.database_id"
            )
        case "columns":
            if not within:
                raise SyntaxError_("SHOW COLUMNS needs FROM and a relation")
            item = planning.catalog.resolve_item(within)
            return (
                "SELECT c.name, c.nullable, c.type, c.position FROM mz_catalog.mz_columns c "
                f"WHERE c.id = {quote_string(item.id)}"
            )
    raise AssertionError(statement.what)


def _shard(id: str) -> str:
    """Return the query of INSPECT SHARD: one row, a document; a shard has its collection's id."""
    shard = quote_string(id)
    missing = quote_string(f'shard "{id}" does not exist')
    return f"""SELECT jsonb_build_object('shard_id', {shard},
        'name', coalesce(o.name, _raised('42704', {missing})),
        'type', o.type, 'since', f.read_frontier::text, 'upper', f.write_frontier::text,
        'size_bytes', s.size_bytes, 'read_holds', coalesce(h.holds, '[]'))::text AS state
        FROM (VALUES ({shard})) AS asked(id)
        LEFT JOIN mz_internal.mz_storage_sizes s ON s.object_id = asked.id
        LEFT JOIN mz_catalog.mz_objects o ON o.id = s.object_id
        LEFT JOIN mz_internal.mz_frontiers f ON f.object_id = asked.id
        LEFT JOIN (SELECT r.object_id, jsonb_agg(jsonb_build_object('kind', r.kind,
            'time', r.time::text)) AS holds FROM mz_internal.mz_read_holds r GROUP BY r.object_id
        ) h ON h.object_id = asked.id"""


def _function(signature: str) -> str:
    """Return the query of SHOW CREATE FUNCTION; with types of arguments it names one of several."""
    kind = "regprocedure" if signature.endswith(")") else "regproc"
    oid = f"{quote_string(signature)}::{kind}::oid"
    return (
        "SELECT quote_ident(n.nspname) || '.' || quote_ident(p.proname) AS name, "
        "pg_get_functiondef(p.oid) AS create_sql FROM pg_catalog.pg_proc p "
        f"JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace WHERE p.oid = {oid}"
    )


def _indexes(planning: Planning, statement: ast.ShowStatement) -> str:
    text = (
        "SELECT i.name, o.name AS on, c.name AS cluster, "
        "(SELECT array_agg(coalesce(a.name, k.on_expression) ORDER BY k.index_position) "
        "FROM mz_catalog.mz_index_columns k LEFT JOIN mz_catalog.mz_columns a "
        "ON a.id = i.on_id AND a.position = k.on_position WHERE k.index_id = i.id) AS key "
        "FROM mz_catalog.mz_indexes i JOIN mz_catalog.mz_objects o ON o.id = i.on_id "
        "JOIN mz_catalog.mz_clusters c ON c.id = i.cluster_id "
        "JOIN mz_catalog.mz_schemas s ON s.id = o.schema_id "
        "LEFT JOIN mz_catalog.mz_databases d ON d.id = s.database_id WHERE "
    )
    if statement.on:
        text += f"i.on_id = {quote_string(planning.catalog.resolve_item(statement.on).id)}"
    else:
        text += _schema(planning, statement.within)
    if statement.in_cluster is not None:
        text += f" AND c.name = {quote_string(statement.in_cluster)}"
    return text
