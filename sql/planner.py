"""Planning: turn a parsed statement into a plan.

The adapter calls only `plan_statement`. It is pure: the same statement, catalog and parameter types
give the same plan. Planning fills in `ParameterTypes`, so the types of all parameters are known
afterwards.
"""

from collections.abc import Sequence

from msgspec.structs import replace as with_fields

from foreshore.errors import FeatureNotSupported, InvalidCursorDefinition
from foreshore.expr.columns import keeping_columns
from foreshore.policy import Securing
from foreshore.sql import ast
from foreshore.sql.bind.binding import BINDING
from foreshore.sql.bind.definitions import (
    cluster,
    connections,
    domains,
    enums,
    functions,
    maintenance,
    policies,
    refresh,
    roles,
    secrets,
    sequence,
    structured_types,
    table,
    table_as,
    unique_index,
    verify,
)
from foreshore.sql.bind.definitions import objects as ddl
from foreshore.sql.bind.definitions.external_options import bind_alter_options
from foreshore.sql.bind.definitions.metrics import bind_create_metric
from foreshore.sql.bind.definitions.sinks.create import bind_create_sink
from foreshore.sql.bind.definitions.sinks.set_from import bind_set_sink_from
from foreshore.sql.bind.definitions.sinks.wait import bind_wait_for_sinks
from foreshore.sql.bind.definitions.sources import tables as source_tables
from foreshore.sql.bind.definitions.sources.create import bind_create_source
from foreshore.sql.bind.definitions.subscribe import (
    bind_advance,
    bind_create_subscription,
    bind_subscribe,
)
from foreshore.sql.bind.locking import bind_lock_table, locked_below
from foreshore.sql.bind.needs import Needs
from foreshore.sql.bind.planning import ParameterTypes, Planning
from foreshore.sql.bind.result import finished_query
from foreshore.sql.bind.select_statement import bind_select
from foreshore.sql.bind.session import bind_session
from foreshore.sql.bind.show import bind_show
from foreshore.sql.bind.writes import copy, copy_files
from foreshore.sql.bind.writes.copy_options import check_forced_columns, copy_options
from foreshore.sql.bind.writes.current_of import with_cursor_tables
from foreshore.sql.bind.writes.with_changes import (
    bind_change,
    bind_changing_table,
    queries_of_with,
    with_changes,
)
from foreshore.sql.catalog_reader import CatalogReader
from foreshore.sql.explain import bind_explain
from foreshore.sql.parse.grammar.base import too_deep
from foreshore.sql.parse.parse import Statement
from foreshore.sql.plan import (
    CopyChange,
    CopyOptions,
    CopyTo,
    CopyToFiles,
    Declare,
    Plan,
    Select,
    Subscribe,
    result_desc,
)
from foreshore.sql.rewrite.session_zone import SessionZone
from foreshore.types import SqlType

# Statements whose expressions are kept and later evaluated in any session.
_KEPT_DEFINITIONS = (
    ast.CreateTableStatement,
    ast.AlterTableStatement,
    ast.CreateViewStatement,
    ast.CreateIndexStatement,
    ast.CreateDomainStatement,
    ast.CreateFunctionStatement,
    ast.CreateSubscriptionStatement,
    ast.CreatePolicyStatement,
    ast.AlterPolicyStatement,
)


def plan_statement(
    statement: Statement,
    catalog: CatalogReader,
    parameters: ParameterTypes | Sequence[SqlType | None] = (),
    *,
    zone: SessionZone | str = "UTC",
    defined: bool = False,
    needs: Needs | None = None,
    as_role: str | None = None,
    securing: Securing | None = None,
) -> Plan:
    """Return the plan of `statement`.

    `parameters` are the declared types of `$1`, `$2`, ..., None or unknown for those to infer; a
    `ParameterTypes` holds all of them afterwards (`resolved`). `zone` is the session's time zone; a
    `SessionZone` records whether the plan depends on it. Definitions are bound in UTC, except for a
    view that is bound again for a reader in another `SessionZone`. `defined`: the statement is a
    kept definition, and the sequences of its columns exist. `needs` has the rights that the
    statement needs afterwards. `as_role` is the id of the role whose row-level security counts,
    None: the current one; `securing` is how the policies of a view's statement are bound.
    """
    if not isinstance(parameters, ParameterTypes):
        parameters = ParameterTypes(parameters)
    if isinstance(statement.ast, _KEPT_DEFINITIONS) and not (
        defined and isinstance(zone, SessionZone)
    ):
        zone = SessionZone(of_constants="UTC")
    if not isinstance(zone, SessionZone):
        zone = SessionZone(zone)
    planning = Planning(
        catalog, statement.whole, parameters, zone, defined=defined, binding=BINDING
    )
    if needs is not None:
        planning.needs = needs
    planning.as_role = as_role
    if isinstance(statement.ast, ast.CreateViewStatement) and not statement.ast.materialized:
        planning.defining = securing is None  # it is bound again for who reads it
        is_own = securing is None and zone.is_utc
        planning.names_views = is_own and statement.ast.emit_at is None
    if securing is not None:
        planning.securing = securing
        if securing.locking and isinstance(statement.ast, ast.CreateViewStatement):
            planning.locking = locked_below(planning, statement.ast.query)
    ctes = queries_of_with(statement.ast)
    planning.changing = frozenset(id(each) for each in ctes if isinstance(each, ast.ChangingTable))
    planning.bind_change = bind_changing_table
    try:
        with keeping_columns():
            return with_changes(planning, ctes, _plan(planning, statement.ast))
    except RecursionError:
        raise too_deep() from None


def _plan(planning: Planning, tree: ast.StatementSyntax) -> Plan:
    match tree:
        case ast.SelectStatement():
            return bind_select(planning, tree)
        case ast.SubscribeStatement():
            return bind_subscribe(planning, tree)
        case ast.CreateSubscriptionStatement():
            return bind_create_subscription(planning, tree)
        case ast.AdvanceStatement():
            return bind_advance(planning, tree)
        case ast.ExplainStatement():
            return bind_explain(planning, tree)
        case (
            ast.InsertStatement()
            | ast.UpdateStatement()
            | ast.DeleteStatement()
            | ast.MergeStatement()
        ):
            return bind_change(planning, tree)
        case ast.CopyStatement():
            return _copy(planning, tree)
        case ast.CreateTableStatement():
            return table.bind_create_table(planning, tree)
        case ast.CreateTableAsStatement():
            return table_as.bind_create_table_as(planning, tree)
        case ast.AlterTableStatement():
            return ddl.bind_alter_view(planning, tree) or table.bind_alter_table(planning, tree)
        case ast.CreateUniqueIndexStatement():
            return unique_index.bind_create_unique_index(planning, tree)
        case ast.TruncateStatement():
            return maintenance.bind_truncate(planning, tree)
        case ast.MaintenanceStatement():
            return maintenance.bind_maintenance(planning, tree)
        case ast.LockTableStatement():
            return bind_lock_table(planning, tree)
        case ast.CreateEnumStatement():
            return enums.bind_create_enum(planning, tree)
        case ast.CreateDomainStatement():
            return domains.bind_create_domain(planning, tree)
        case ast.CreateFunctionStatement():
            return functions.bind_create_function(planning, tree)
        case ast.DropFunctionStatement():
            return functions.bind_drop_function(planning, tree)
        case ast.AlterFunctionStatement():
            return functions.bind_alter_function(planning, tree)
        case ast.CreateStructuredStatement():
            return structured_types.bind_create_structured(planning, tree)
        case ast.AlterEnumStatement():
            return enums.bind_alter_enum(planning, tree)
        case ast.CreatePolicyStatement():
            return policies.bind_create_policy(planning, tree)
        case ast.AlterPolicyStatement():
            return policies.bind_alter_policy(planning, tree)
        case ast.DropPolicyStatement():
            return policies.bind_drop_policy(planning, tree)
        case ast.CommentPolicyStatement():
            return policies.bind_comment_policy(planning, tree)
        case ast.RowSecurityStatement():
            return policies.bind_row_security(planning, tree)
        case ast.CreateSecretStatement():
            return secrets.bind_create_secret(planning, tree)
        case ast.AlterSecretStatement():
            return secrets.bind_alter_secret(planning, tree)
        case ast.CreateConnectionStatement():
            return connections.bind_create_connection(planning, tree)
        case ast.AlterConnectionStatement():
            return connections.bind_alter_connection(planning, tree)
        case ast.CreateMetricStatement():
            return bind_create_metric(planning, tree)
        case ast.CreateSinkStatement():
            return bind_create_sink(planning, tree)
        case ast.CreateSourceStatement():
            return bind_create_source(planning, tree)
        case ast.CreateSourceTableStatement():
            return source_tables.bind_create_source_table(planning, tree)
        case ast.AddSourceTablesStatement():
            return source_tables.bind_add_source_tables(planning, tree)
        case ast.DropSourceTablesStatement():
            return source_tables.bind_drop_source_tables(planning, tree)
        case ast.AlterOptionsStatement():
            return bind_alter_options(planning, tree)
        case ast.SetSinkFromStatement():
            return bind_set_sink_from(planning, tree)
        case ast.RefreshSourceTablesStatement():
            return source_tables.bind_refresh_source_tables(planning, tree)
        case ast.ValidateConnectionStatement():
            return connections.bind_validate_connection(planning, tree)
        case ast.CreateSequenceStatement():
            return sequence.bind_create_sequence(planning, tree)
        case ast.AlterSequenceStatement():
            return sequence.bind_alter_sequence(planning, tree)
        case ast.CreateViewStatement():
            return refresh.with_options(planning, tree, ddl.bind_create_view(planning, tree))
        case ast.RefreshViewStatement():
            return refresh.bind_refresh_view(planning, tree)
        case ast.WaitForSinksStatement():
            return bind_wait_for_sinks(planning, tree)
        case ast.VerifyViewStatement():
            return verify.bind_verify(planning, tree)
        case ast.CreateIndexStatement():
            return ddl.bind_create_index(planning, tree)
        case ast.CreateNamespaceStatement():
            return ddl.bind_create_namespace(planning, tree)
        case ast.CreateClusterStatement():
            return cluster.bind_create_cluster(tree)
        case ast.CreateReplicaStatement():
            return cluster.bind_create_replica(planning, tree)
        case ast.AlterClusterStatement():
            return cluster.bind_alter_cluster(planning, tree)
        case ast.SwapStatement():
            return cluster.bind_swap(planning, tree)
        case ast.SetClusterStatement():
            return cluster.bind_set_cluster(planning, tree)
        case ast.DropStatement():
            return unique_index.bind_drop(planning, tree) or ddl.bind_drop(planning, tree)
        case ast.RenameStatement():
            return unique_index.bind_rename(planning, tree) or ddl.bind_rename(planning, tree)
        case (
            ast.CreateRoleStatement()
            | ast.CreateTokenStatement()
            | ast.DropTokenStatement()
            | ast.AlterRoleStatement()
            | ast.RenameRoleStatement()
            | ast.RoleSettingStatement()
            | ast.AlterSystemStatement()
            | ast.NetworkPolicyStatement()
            | ast.DropRoleStatement()
            | ast.GrantRoleStatement()
            | ast.GrantStatement()
            | ast.DefaultPrivilegesStatement()
            | ast.OwnedStatement()
        ):
            return roles.bind_role_statement(planning, tree)
        case ast.RenameColumnStatement():
            return ddl.bind_rename_column(planning, tree)
        case ast.OwnerStatement():
            return ddl.bind_owner(planning, tree)
        case ast.SetSchemaStatement():
            return ddl.bind_set_schema(planning, tree)
        case ast.SecurityInvokerStatement():
            return ddl.bind_security_invoker(planning, tree)
        case ast.LimitMemoryStatement():
            return ddl.bind_limit_memory(planning, tree)
        case ast.ErrorPolicyStatement():
            return ddl.bind_error_policy(planning, tree)
        case ast.RetainStatement():
            return ddl.bind_retain(planning, tree)
        case ast.CommentStatement():
            return ddl.bind_comment(planning, tree)
        case ast.ShowCreateAllStatement():
            return ddl.bind_show_create_all()
        case ast.ShowCreateStatement():
            return ddl.bind_show_create(planning, tree)
        case ast.DeclareStatement():
            return _declare(planning, tree)
        case ast.ShowStatement():
            return Select(finished_query(bind_show(planning, tree)))
        case _:
            return bind_session(planning, tree)


def _declare(planning: Planning, tree: ast.DeclareStatement) -> Declare:
    plan = _plan(planning, tree.statement)
    assert isinstance(plan, Select | Subscribe)
    options = tree.options
    if isinstance(plan, Select) and plan.locking is not None:
        strength = plan.locking.strength
        if tree.hold:
            raise FeatureNotSupported(
                f"DECLARE CURSOR WITH HOLD ... {strength} is not supported",
                detail="Holdable cursors must be READ ONLY.",
            )
        if "scroll" in options:
            raise FeatureNotSupported(
                f"DECLARE SCROLL CURSOR ... {strength} is not supported",
                detail="Scrollable cursors must be READ ONLY.",
            )
        if "insensitive" in options:
            raise InvalidCursorDefinition(
                f"DECLARE INSENSITIVE CURSOR ... {strength} is not valid",
                detail="Insensitive cursors must be READ ONLY.",
            )
    if isinstance(plan, Subscribe) and "scroll" in options:
        raise FeatureNotSupported("DECLARE SCROLL CURSOR over SUBSCRIBE is not supported")
    scroll = True if "scroll" in options else False if "no scroll" in options else None
    found = Declare(tree.name, plan, tree.hold, scroll, "binary" in options)
    return with_cursor_tables(planning, tree, found)


def _copy(planning: Planning, tree: ast.CopyStatement) -> Plan:
    if tree.is_from:
        if tree.url is None:
            return copy.bind_copy_from(planning, tree)
        plain = copy.bind_copy_from(planning, with_fields(tree, options=()))
        return copy_files.with_files(planning, plain, tree)
    if tree.url is not None:
        return _copy_to_files(planning, tree)
    source = tree.source
    options = copy_options(tree)
    if isinstance(source, ast.TableRef):
        return _copied(bind_select(planning, _whole(planning, tree, source)), options)
    plan = _plan(planning, source)
    if isinstance(plan, Select | Subscribe):
        return _copied(plan, options)
    desc = result_desc(plan)
    if desc is None:
        raise FeatureNotSupported("COPY query must have a RETURNING clause")
    check_forced_columns(options, desc.names, desc.names.__contains__)
    return CopyChange(planning.text[slice(*tree.span)], options)


def _whole(
    planning: Planning, tree: ast.CopyStatement, source: ast.TableRef
) -> ast.SelectStatement:
    """Return the query for the columns that COPY of a relation copies."""
    columns = tree.columns or copy.columns_to_copy(planning, tree, source)
    targets = tuple(
        ast.Target(
            ast.Star((), at)
            if name == "*" and columns == (("*", source.at),)
            else ast.ColumnRef((name,), at),
            None,
            at,
        )
        for name, at in columns
    )
    select = ast.Select(None, targets, (source,), None, (), None, source.at)
    return ast.SelectStatement(ast.Query(select, source.at), None)


def _copy_to_files(planning: Planning, tree: ast.CopyStatement) -> Plan:
    """Return the plan of COPY TO files, of a relation or of a query."""
    source, relation = tree.source, None
    files = copy_files.file_options(planning, tree)
    if isinstance(source, ast.TableRef):
        if tree.columns is None:
            relation = planning.catalog.resolve_item(source.name).id
        source = _whole(planning, tree, source)
    if not isinstance(source, ast.SelectStatement):
        raise FeatureNotSupported("COPY of changes of rows, or of SUBSCRIBE, to files")
    plan = bind_select(planning, source)
    return CopyToFiles(plan, files, relation)


def _copied(plan: Select | Subscribe, options: CopyOptions) -> CopyTo:
    desc = plan.desc
    check_forced_columns(options, desc.names, desc.names.__contains__)
    return CopyTo(plan, options)
