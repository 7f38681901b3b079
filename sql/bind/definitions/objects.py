"""Bind CREATE, DROP, RENAME and COMMENT ON for all objects but tables.

The `sql` of a plan is the statement in a fixed form with qualified relation names. Planning it
again, at any time and in any session, has the same result.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

import msgspec

from foreshore.errors import (
    FeatureNotSupported,
    InvalidParameterValue,
    SyntaxError_,
    UndefinedObject,
    UndefinedTable,
    WrongObjectType,
)
from foreshore.expr.ir import Call, Column, Environment, Relation, Scalar
from foreshore.expr.recursion import check_may_skip_errors
from foreshore.expr.scalars import scalars_of
from foreshore.expr.temporal import temporal_filters
from foreshore.expr.traversal import walk_relations, walk_scalars
from foreshore.expr.watermarks import final_rows
from foreshore.hydrate_mode import HydrateMode, checked_mode
from foreshore.interval_text import parse_interval
from foreshore.item_view import ItemView, Name
from foreshore.sizes import bytes_of
from foreshore.sql import ast
from foreshore.sql.bind.binder import Clause
from foreshore.sql.bind.definitions.expectations import (
    checked,
    counting_view,
    kept_checks,
    violations,
)
from foreshore.sql.bind.definitions.partitions import check_partition
from foreshore.sql.bind.expression import ExpressionBinder
from foreshore.sql.bind.from_clause import alias_of, qualify
from foreshore.sql.bind.item_relations import relation_of_item
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.python_calls import refuse_not_immutable, refuse_python
from foreshore.sql.bind.query import bind_query
from foreshore.sql.bind.result import lower_and_optimize_block, plain_query
from foreshore.sql.bind.scope import Scope, Slot, Table, resolve_column
from foreshore.sql.bind.subquery import check_no_subquery
from foreshore.sql.bind.time import bind_as_of
from foreshore.sql.bind.type_names import qualified_types
from foreshore.sql.bind.widths import check_columns, check_index_columns
from foreshore.sql.optimize.properties import default_key
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.plan import (
    Comment,
    CreateDatabase,
    CreateIndex,
    CreateMaterializedView,
    CreateSchema,
    CreateView,
    Drop,
    LimitMemory,
    ObjectKind,
    Query,
    Rename,
    RenameViewColumn,
    Retain,
    SetErrorPolicy,
    SetOwner,
    SetSchema,
    SetSecurityInvoker,
    ShowCreate,
    ShowCreateAll,
)
from foreshore.sql.rewrite.column_names import without_qualifiers
from foreshore.sql.rewrite.full_names import dotted
from foreshore.sql.rewrite.object_options import EMIT
from foreshore.sql.rewrite.text_edits import apply_edits
from foreshore.types import TEXT, ColumnType, RelationDesc

_KINDS: dict[str, ObjectKind] = {
    "database": "database",
    "schema": "schema",
    "table": "table",
    "view": "view",
    "materialized view": "materialized view",
    "index": "index",
    "sequence": "sequence",
    "subscription": "subscription",
    "type": "type",
    "domain": "domain",
    "cluster": "cluster",
    "cluster replica": "cluster replica",
    "role": "role",
    "secret": "secret",
    "connection": "connection",
    "source": "source",
    "sink": "sink",
    "metric": "metric",
    "network policy": "network policy",
    "column": "column",
}


def kept_text(planning: Planning, start: int, end: int) -> str:
    """Return the text between two offsets with qualified relation names."""
    return apply_edits(planning.text, set(planning.qualified), start, end)


# --- views ---------------------------------------------------------------------------------


def bind_create_view(
    planning: Planning, statement: ast.CreateViewStatement
) -> CreateView | CreateMaterializedView:
    """Return the plan of CREATE VIEW or CREATE MATERIALIZED VIEW."""
    with located(statement.name.at):
        name = planning.catalog.resolve_new(statement.name.name, temporary=statement.temporary)
    as_of = None if statement.as_of is None else bind_as_of(planning, statement.as_of)
    planning.in_view = planning.keeps_text = True
    planning.maintained = statement.materialized
    bound = bind_query(planning, statement.query, None)
    if statement.materialized:  # it is planned again when what it reads is altered
        planning.depends_on |= planning.securing.used
    if len(statement.columns) > len(bound.names):
        raise SyntaxError_(
            "CREATE VIEW specifies more column names than columns",
            position=statement.name.at + 1,
        )
    names = statement.columns + bound.names[len(statement.columns) :]
    if statement.checks.assertion and len(set(names)) < len(names):
        names = tuple(f"column{i}" for i in range(1, len(names) + 1))
    check_columns(names, defined=planning.defined)
    query = plain_query(checked(planning, statement, bound, names), names)
    check_partition(statement.partition_by, names, query.desc.columns)
    notices: tuple[str, ...] = ()
    if any(planning.catalog.item(each).name.temporary for each in planning.depends_on):
        if statement.materialized:
            raise FeatureNotSupported("materialized views must not use temporary tables or views")
        if not name.temporary:
            notices = (f'view "{name.item}" will be a temporary view',)
            with located(statement.name.at):
                name = planning.catalog.resolve_new(statement.name.name, temporary=True)
    if statement.materialized:
        query = maintained_query(query, "a materialized view")
        if statement.checks.skip_errors:
            check_may_skip_errors(query.relation)
    if statement.emit_at is not None:
        with located(statement.emit_at):
            query = final_query(query)
    require_cluster(planning, statement.cluster)
    depends_on = frozenset(planning.depends_on)
    sql = "CREATE MATERIALIZED VIEW " if statement.materialized else "CREATE VIEW "
    sql += dotted(name.parts)
    if statement.columns:
        sql += f" ({', '.join(map(quote_identifier, statement.columns))})"
    if statement.cluster is not None:
        sql += f" IN CLUSTER {quote_identifier(statement.cluster)}"
    if statement.emit_at is not None:
        sql += f" WITH ({EMIT})"
    body = kept_text(planning, statement.at, statement.end)
    sql += f" AS {body}{kept_checks(statement, partial(kept_text, planning))}"
    if statement.materialized:
        counted = violations(statement, body, partial(kept_text, planning))
        return CreateMaterializedView(
            name,
            query,
            statement.cluster,
            statement.or_replace,
            statement.if_not_exists,
            depends_on,
            sql,
            retention(statement.retain),
            as_of,
            memory_limit(statement.memory_limit),
            violations=None
            if counted is None
            else counting_view(
                name, statement.cluster, counted, skip_errors=statement.checks.skip_errors
            ),
            needs=planning.needs.all(),
            hydrate=hydrate_mode(statement.hydrate),
        )
    return CreateView(
        name,
        query,
        statement.or_replace,
        statement.if_not_exists,
        depends_on,
        sql,
        notices,
        planning.zone.was_used,
        planning.needs.all(),
        statement.security_invoker,
    )


def maintained_query(query: Query, what: str) -> Query:
    """Return a query as it is maintained: predicates on mz_now() become temporal filters.

    Raises FeatureNotSupported if it depends on the time or the session in any other way.
    """
    relation = temporal_filters(query.relation)
    refuse_environment(relation, what)
    return replace(query, relation=relation)


def final_query(query: Query) -> Query:
    """Return the query of the rows that never change again; raises FeatureNotSupported."""
    relation = final_rows(query.relation)
    if relation is None:
        raise FeatureNotSupported(
            "EMIT ON WINDOW CLOSE needs a column that says when a row is final",
            hint="Group by window_end of TUMBLE, HOP or SESSION, or by date_bin or date_trunc, of a"
            " column with a watermark, and select it. A join has to equate such columns of all its"
            " inputs, or to compare them within an interval; of FULL JOIN, select coalesce of"
            " both.",
        )
    return replace(
        query, relation=relation, desc=msgspec.structs.replace(query.desc, append_only=True)
    )


def refuse_environment(relation: Relation, what: str) -> None:
    """Raise an error if the relation depends on the time or the session, or on calls."""
    for node in walk_relations(relation):
        for scalar in scalars_of(node):
            refuse_not_immutable(scalar, what)
            for part in walk_scalars(scalar):
                if isinstance(part, Call) and part.number:
                    raise FeatureNotSupported(
                        f"{part.function.partition('(')[0]} cannot be used in {what}, "
                        "because each call has another value"
                    )
                if isinstance(part, Environment):
                    raise FeatureNotSupported(
                        f"{part.name.split(':')[0]} cannot be used in {what}, "
                        "because its value depends on the time or the session"
                    )


def require_cluster(planning: Planning, cluster: str | None) -> None:
    """Raise UndefinedObject if a cluster was named that does not exist."""
    if cluster is not None and not planning.catalog.cluster_exists(cluster):
        raise UndefinedObject(f'unknown cluster "{cluster}"')


# --- indexes -------------------------------------------------------------------------------


def bind_create_index(planning: Planning, statement: ast.CreateIndexStatement) -> CreateIndex:
    """Return the plan of CREATE INDEX."""
    with located(statement.on.at):
        item = planning.catalog.resolve_item(statement.on.name)
        if item.kind == "index":
            raise WrongObjectType(f'"{item.name.item}" is an index')
        if item.kind == "builtin":
            raise WrongObjectType(
                f'cannot create an index on system catalog "{item.name.item}"', sqlstate="42501"
            )
    check_index_columns(len(statement.keys), defined=planning.defined)
    qualify(planning, statement.on, item)
    refuse_environment(temporal_filters(relation_of_item(planning, item)), "an index")
    require_cluster(planning, statement.cluster)
    as_of = None if statement.as_of is None else bind_as_of(planning, statement.as_of)
    planning.in_view = planning.maintained = True
    columns = item.desc.columns
    slots = [Slot(column, i) for i, column in enumerate(item.desc.names)]
    table = Table(*alias_of(statement.on, item), tuple(slots))
    scope = Scope(list(columns), [table], slots)
    for name, at in statement.included:  # an index has all columns anyway
        resolve_column(scope, (name,), at)
    key: tuple[Scalar, ...]
    if statement.default:
        positions = default_index_key(planning, item)
        key = tuple(Column(i, columns[i].type, columns[i].nullable) for i in positions)
        names = item.desc.names
        # With columns it stays the same index whatever becomes of the keys of tables.
        is_named = all(names.count(names[i]) == 1 for i in positions)
        keys = f" ({', '.join(quote_identifier(names[i]) for i in positions)})" if is_named else ""
    else:
        binder = ExpressionBinder(planning, scope, Clause("index expressions"))
        bound = []
        for expr in statement.keys:
            scalar = binder.bind(expr)
            check_no_subquery(scalar, "index expression", at_of(expr))
            refuse_python(scalar, "an index expression", at_of(expr))
            bound.append(scalar)
        key = tuple(bound)
        written = planning.text[statement.keys_at : statement.keys_end]
        types = qualified_types(planning, written, statement.keys_at)
        keys = " " + without_qualifiers(written, statement.keys_at, statement.keys, types)
    sql = "CREATE INDEX" if keys else "CREATE DEFAULT INDEX"
    if statement.name is not None:
        sql += f" {quote_identifier(statement.name)}"
    if statement.cluster is not None:
        sql += f" IN CLUSTER {quote_identifier(statement.cluster)}"
    sql += f" ON {dotted(item.name.parts)}{keys}"
    return CreateIndex(
        statement.name,
        item.id,
        key,
        statement.default,
        statement.cluster,
        statement.if_not_exists,
        sql,
        retention(statement.retain),
        memory_limit(statement.memory_limit),
        hydrate_mode(statement.hydrate),
        as_of,
    )


def default_index_key(planning: Planning, item: ItemView) -> Sequence[int]:
    """Return the columns of an index without any: a unique key that is known, otherwise all."""
    if item.desc.keys:
        return item.desc.keys[0]
    if item.definition is None and item.expanded is None:
        return range(len(item.desc.columns))
    block = lower_and_optimize_block(relation_of_item(planning, item))
    return range(len(item.desc.columns)) if block.recursions else default_key(block.relation)


# --- namespaces ---------------------------------------------------------------------------


def bind_create_namespace(
    planning: Planning, statement: ast.CreateNamespaceStatement
) -> CreateDatabase | CreateSchema:
    """Return the plan of CREATE DATABASE or CREATE SCHEMA."""
    parts = statement.name
    if statement.kind == "database":
        if len(parts) != 1:
            raise SyntaxError_(
                f'improper database name: "{".".join(parts)}"', position=statement.at + 1
            )
        return CreateDatabase(parts[0], statement.if_not_exists, statement.owner)
    if len(parts) > 2:
        raise SyntaxError_(
            f"improper qualified name (too many dotted names): {'.'.join(parts)}",
            position=statement.at + 1,
        )
    database = parts[0] if len(parts) == 2 else planning.catalog.database
    return CreateSchema(database, parts[-1], statement.if_not_exists, statement.owner)


# --- DROP, RENAME, SHOW CREATE -------------------------------------------------------------


def bind_drop(planning: Planning, statement: ast.DropStatement) -> Drop:
    """Return the plan of DROP."""
    kind = _KINDS[statement.kind]
    names = tuple(name_of(planning, kind, ref) for ref in statement.names)
    return Drop(kind, names, statement.if_exists, statement.cascade, statement.assertions)


def bind_rename(planning: Planning, statement: ast.RenameStatement) -> Rename:
    """Return the plan of ALTER ... RENAME TO."""
    kind = _KINDS[statement.kind]
    name = name_of(planning, kind, statement.name)
    return Rename(kind, name, statement.to, statement.if_exists)


def bind_rename_column(
    planning: Planning, statement: ast.RenameColumnStatement
) -> RenameViewColumn:
    """Return the plan of ALTER [MATERIALIZED] VIEW ... RENAME [COLUMN] ... TO."""
    kind = _KINDS[statement.kind]
    name = name_of(planning, kind, statement.name)
    return RenameViewColumn(kind, name, statement.column, statement.to, statement.if_exists)


def bind_alter_view(
    planning: Planning, statement: ast.AlterTableStatement
) -> RenameViewColumn | None:
    """Return the plan of ALTER TABLE ... RENAME COLUMN for a view, None for other statements."""
    match statement.actions:
        case (ast.RenameColumn(name=column, to=to),):
            with suppress(UndefinedTable):
                item = planning.catalog.resolve_item(statement.name.name)
                if item.kind in ("view", "materialized view"):
                    return RenameViewColumn("table", item.name, column, to, statement.if_exists)
    return None


def bind_owner(planning: Planning, statement: ast.OwnerStatement) -> SetOwner:
    """Return the plan of ALTER ... OWNER TO."""
    kind = _KINDS[statement.kind]
    name = name_of(planning, kind, statement.name)
    return SetOwner(kind, name, statement.role, statement.if_exists)


def bind_set_schema(planning: Planning, statement: ast.SetSchemaStatement) -> SetSchema:
    """Return the plan of ALTER ... SET SCHEMA."""
    kind = _KINDS[statement.kind]
    name = name_of(planning, kind, statement.name)
    return SetSchema(kind, name, statement.schema, statement.if_exists)


def retention(retain: ast.Retain | None) -> int | None:
    """Return RETAIN HISTORY in milliseconds, or None if not given."""
    if retain is None:
        return None
    with located(retain.at):
        months, days, microseconds = parse_interval(retain.interval)
        total = days * 86_400_000 + microseconds // 1000
        if months or total <= 0:
            raise InvalidParameterValue(
                f'invalid value for RETAIN HISTORY: "{retain.interval}"',
                hint="Give a positive interval in days or less.",
            )
    return total


def memory_limit(limit: ast.MemoryLimit | None) -> int | None:
    """Return MEMORY LIMIT in bytes, or None if not given."""
    if limit is None:
        return None
    with located(limit.at):
        try:
            return bytes_of(limit.size)
        except ValueError:
            raise InvalidParameterValue(
                f'invalid value for MEMORY LIMIT: "{limit.size}"',
                hint="Give a size such as '500MB' or '4GB'.",
            ) from None


def hydrate_mode(hydrate: ast.Hydrate | None) -> HydrateMode | None:
    """Return what HYDRATE says, or None if not given."""
    if hydrate is None:
        return None
    with located(hydrate.at):
        return checked_mode(hydrate.mode)


def bind_security_invoker(
    planning: Planning, statement: ast.SecurityInvokerStatement
) -> SetSecurityInvoker:
    """Return the plan of ALTER VIEW ... SET (security_invoker = ...) and of its RESET."""
    name = name_of(planning, "view", statement.name)
    return SetSecurityInvoker("view", name, statement.invoker, statement.if_exists)


def bind_limit_memory(planning: Planning, statement: ast.LimitMemoryStatement) -> LimitMemory:
    """Return the plan of ALTER ... SET (MEMORY LIMIT = ...) and of its RESET."""
    kind = _KINDS[statement.kind]
    name = name_of(planning, kind, statement.name)
    return LimitMemory(kind, name, memory_limit(statement.limit), statement.if_exists)


def bind_error_policy(planning: Planning, statement: ast.ErrorPolicyStatement) -> SetErrorPolicy:
    """Return the plan of ALTER MATERIALIZED VIEW ... SET (ON ERROR = ...) and of its RESET."""
    name = name_of(planning, "materialized view", statement.name)
    return SetErrorPolicy("materialized view", name, statement.skips, statement.if_exists)


def bind_retain(planning: Planning, statement: ast.RetainStatement) -> Retain:
    """Return the plan of ALTER ... SET (RETAIN HISTORY FOR ...) and of its RESET."""
    kind = _KINDS[statement.kind]
    name = name_of(planning, kind, statement.name)
    return Retain(kind, name, retention(statement.retain), statement.if_exists)


def bind_comment(planning: Planning, statement: ast.CommentStatement) -> Comment:
    """Return the plan of COMMENT ON."""
    if statement.kind == "constraint":
        name = name_of(planning, "table", statement.name)
        return Comment("constraint", name, statement.constraint, statement.text or None)
    kind, ref = _KINDS[statement.kind], statement.name
    column = None
    if kind == "column":
        if len(ref.name) == 1:
            raise SyntaxError_("column name must be qualified", position=ref.at + 1)
        column = ref.name[-1]
        ref = ast.TableRef(ref.name[:-1], None, (), ref.at, ref.end)
    return Comment(kind, name_of(planning, kind, ref), column, statement.text or None)


def bind_show_create(planning: Planning, statement: ast.ShowCreateStatement) -> ShowCreate:
    """Return the plan of SHOW CREATE."""
    kind = _KINDS[statement.kind]
    name = name_of(planning, kind, statement.name)
    text = ColumnType(TEXT, False)
    desc = RelationDesc(("name", "create_sql"), (text, text))
    return ShowCreate(kind, name, desc, statement.redacted)


def bind_show_create_all() -> ShowCreateAll:
    """Return the plan of SHOW CREATE ALL."""
    text = ColumnType(TEXT, False)
    return ShowCreateAll(RelationDesc(("type", "name", "create_sql", "part"), (text,) * 4))


def name_of(planning: Planning, kind: ObjectKind, ref: ast.TableRef) -> Name:
    """Return a name with as many parts as the kind has; None for omitted ones.

    Existence is checked at execution, because IF EXISTS decides what happens otherwise, and the
    object may be created by an earlier statement of the same text.
    """
    parts = ref.name
    limits = {"database": 1, "cluster": 1, "schema": 2, "cluster replica": 2, "role": 1}
    if len(parts) > limits.get(kind, 3):
        raise SyntaxError_(
            f"improper qualified name (too many dotted names): {'.'.join(parts)}",
            position=ref.at + 1,
        )
    match kind:
        case "database" | "cluster" | "role":
            return Name(None, None, parts[0])
        case "schema":
            database = parts[0] if len(parts) == 2 else planning.catalog.database
            return Name(database, None, parts[-1])
        case "cluster replica":
            if len(parts) != 2:
                raise SyntaxError_(
                    "a cluster replica is named cluster.replica", position=ref.at + 1
                )
            return Name(None, parts[0], parts[1])
        case _:
            padded = (None, None, *parts)[-3:]
            return Name(padded[0], padded[1], parts[-1])
