"""Planning: turn a parsed statement into a plan.

The adapter calls only `plan_statement`. It is pure: the same statement, catalog and parameter types
give the same plan. Planning fills in `ParameterTypes`, so the types of all parameters are known
afterwards.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Literal, assert_never

from foreshore.errors import (
    FeatureNotSupported,
    InvalidParameterValue,
    UndefinedObject,
    UndefinedTable,
    WrongObjectType,
)
from foreshore.expr.block import AnyRecursion, MutualRecursion, Recursion
from foreshore.expr.explain import NameOf, explain_order, explain_relation
from foreshore.ids import GlobalId
from foreshore.item_view import ItemView
from foreshore.sql import ast
from foreshore.sql.bind.bound_query import plain_relation
from foreshore.sql.bind.definitions import (
    cluster,
    domains,
    enums,
    refresh,
    sequence,
    table,
    table_as,
    unique_index,
)
from foreshore.sql.bind.definitions import objects as ddl
from foreshore.sql.bind.definitions.show import bind_show
from foreshore.sql.bind.expression import Clause, ExpressionBinder, at_of
from foreshore.sql.bind.query import bind_query
from foreshore.sql.bind.result import finished_query, plain_query
from foreshore.sql.bind.scope import Scope
from foreshore.sql.bind.subquery import check_no_subquery
from foreshore.sql.bind.subscribe import (
    bind_advance,
    bind_create_subscription,
    bind_subscribe,
    query_of,
)
from foreshore.sql.bind.time import bind_as_of
from foreshore.sql.bind.type_names import type_of_name
from foreshore.sql.bind.writes import copy
from foreshore.sql.bind.writes.locking import bind_lock_table, bind_locking_query
from foreshore.sql.bind.writes.with_changes import bind_change, with_changes
from foreshore.sql.catalog_reader import CatalogReader
from foreshore.sql.parse.grammar.base import too_deep
from foreshore.sql.parse.parse import Statement
from foreshore.sql.plan import (
    Begin,
    CloseCursor,
    Commit,
    CopyTo,
    Deallocate,
    Declare,
    Delete,
    Discard,
    Execute,
    Explain,
    ExplainAnalyze,
    ExplainChange,
    ExplainFreshness,
    ExplainMaintained,
    ExplainOperators,
    Fetch,
    Insert,
    Merge,
    Plan,
    Prepare,
    Query,
    ResetVariable,
    Rollback,
    Savepoint,
    Select,
    SetTransaction,
    SetVariable,
    ShowVariable,
    Subscribe,
    Unlisten,
    Update,
)
from foreshore.sql.plan.reads import query_read_by
from foreshore.sql.planning import ParameterTypes, Planning, located
from foreshore.sql.rewrite.full_names import dotted
from foreshore.sql.rewrite.session_zone import SessionZone
from foreshore.text import format_text, parse_text
from foreshore.types import (
    INTERVAL,
    TEXT,
    ColumnType,
    RelationDesc,
    SqlType,
)

# Statements whose expressions are kept and later evaluated in any session.
_KEPT_DEFINITIONS = (
    ast.CreateTableStatement,
    ast.AlterTableStatement,
    ast.CreateViewStatement,
    ast.CreateIndexStatement,
    ast.CreateDomainStatement,
    ast.CreateSubscriptionStatement,
)
_ZONE_LIMIT = 16 * 3_600_000_000  # microseconds from UTC
# Names of variables as SHOW prints them.
_SHOWN_NAMES = {
    "timezone": "TimeZone",
    "datestyle": "DateStyle",
    "intervalstyle": "IntervalStyle",
    "transaction isolation level": "transaction_isolation",
}


def plan_statement(
    statement: Statement,
    catalog: CatalogReader,
    parameters: ParameterTypes | Sequence[SqlType | None] = (),
    *,
    zone: SessionZone | str = "UTC",
    defined: bool = False,
) -> Plan:
    """Return the plan of `statement`.

    `parameters` are the declared types of `$1`, `$2`, ..., None or unknown for those to infer; a
    `ParameterTypes` holds all of them afterwards (`resolved`). `zone` is the session's time zone; a
    `SessionZone` records whether the plan depends on it. Definitions are bound in UTC, except for a
    view that is bound again for a reader in another `SessionZone`. `defined`: the statement is a
    kept definition, and the sequences of its columns exist.
    """
    if not isinstance(parameters, ParameterTypes):
        parameters = ParameterTypes(parameters)
    if isinstance(statement.ast, _KEPT_DEFINITIONS) and not (
        defined and isinstance(zone, SessionZone)
    ):
        zone = SessionZone(of_constants="UTC")
    if not isinstance(zone, SessionZone):
        zone = SessionZone(zone)
    planning = Planning(catalog, statement.whole, parameters, zone, defined=defined)
    ctes = _queries_of_with(statement.ast)
    planning.changing = frozenset(id(each) for each in ctes if isinstance(each, ast.ChangingTable))
    try:
        return with_changes(planning, ctes, _plan(planning, statement.ast))
    except RecursionError:
        raise too_deep() from None


def _queries_of_with(
    tree: ast.StatementSyntax,
) -> tuple[ast.CommonTable | ast.ChangingTable, ...]:
    """Return the queries of the WITH of a statement that reads or changes rows."""
    match tree:
        case ast.SelectStatement(query=query):
            return query.ctes
        case (
            ast.InsertStatement(ctes=ctes)
            | ast.UpdateStatement(ctes=ctes)
            | ast.DeleteStatement(ctes=ctes)
            | ast.MergeStatement(ctes=ctes)
        ):
            return ctes
        case _:
            return ()


def _plan(planning: Planning, tree: ast.StatementSyntax) -> Plan:
    match tree:
        case ast.SelectStatement():
            return _select(planning, tree)
        case ast.SubscribeStatement():
            return bind_subscribe(planning, tree)
        case ast.CreateSubscriptionStatement():
            return bind_create_subscription(planning, tree)
        case ast.AdvanceStatement():
            return bind_advance(planning, tree)
        case ast.ExplainStatement():
            return _explain(planning, tree)
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
            return table.bind_alter_table(planning, tree)
        case ast.CreateUniqueIndexStatement():
            return unique_index.bind_create_unique_index(planning, tree)
        case ast.TruncateStatement():
            return table.bind_truncate(planning, tree)
        case ast.LockTableStatement():
            return bind_lock_table(planning, tree)
        case ast.CreateEnumStatement():
            return enums.bind_create_enum(planning, tree)
        case ast.CreateDomainStatement():
            return domains.bind_create_domain(planning, tree)
        case ast.AlterEnumStatement():
            return enums.bind_alter_enum(planning, tree)
        case ast.CreateSequenceStatement():
            return sequence.bind_create_sequence(planning, tree)
        case ast.AlterSequenceStatement():
            return sequence.bind_alter_sequence(planning, tree)
        case ast.CreateViewStatement():
            plan = ddl.bind_create_view(planning, tree)
            return refresh.with_options(planning, tree, plan)
        case ast.RefreshViewStatement():
            return refresh.bind_refresh_view(planning, tree)
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
        case ast.OwnerStatement():
            return ddl.bind_owner(planning, tree)
        case ast.SetSchemaStatement():
            return ddl.bind_set_schema(planning, tree)
        case ast.LimitMemoryStatement():
            return ddl.bind_limit_memory(planning, tree)
        case ast.RetainStatement():
            return ddl.bind_retain(planning, tree)
        case ast.CommentStatement():
            return ddl.bind_comment(planning, tree)
        case ast.ShowCreateStatement():
            return ddl.bind_show_create(planning, tree)
        case ast.ShowStatement():
            return Select(finished_query(bind_show(planning, tree)))
        case _:
            return _session(planning, tree)


def _session(planning: Planning, tree: ast.StatementSyntax) -> Plan:
    """Return the plan of a statement about the session, its transaction or its cursors."""
    match tree:
        case ast.SetStatement(name=name, values=values, local=local):
            return SetVariable(name, values, local)
        case ast.SetZoneStatement():
            return SetVariable("timezone", (_zone(tree),), tree.local)
        case ast.ShowVariableStatement(name=name):
            return _show_variable(name)
        case ast.ResetStatement(name=name):
            return ResetVariable(name)
        case ast.TransactionStatement():
            return _transaction(tree)
        case ast.SavepointStatement(kind=kind, name=name):
            return Savepoint(kind, name)
        case ast.PrepareStatement(name=name, types=types, start=start, end=end):
            declared = tuple(type_of_name(type, planning) for type in types)
            return Prepare(name, declared, planning.text[start:end])
        case ast.ExecuteStatement(name=name, args=args):
            binder = ExpressionBinder(planning, Scope(), Clause("EXECUTE parameters"))
            bound = tuple(map(binder.bind, args))
            for scalar, arg in zip(bound, args, strict=True):
                check_no_subquery(scalar, "EXECUTE parameter", at_of(arg))
            return Execute(name, bound)
        case ast.DeallocateStatement(name=name):
            return Deallocate(name)
        case ast.DeclareStatement(name=name, hold=hold, statement=inner):
            plan = _plan(planning, inner)
            assert isinstance(plan, Select | Subscribe)
            if hold and isinstance(plan, Select) and plan.locking is not None:
                raise FeatureNotSupported(
                    f"DECLARE CURSOR WITH HOLD ... {plan.locking.strength} is not supported",
                    detail="Holdable cursors must be READ ONLY.",
                )
            return Declare(name, plan, hold)
        case ast.FetchStatement(name=name, count=count, timeout=timeout, move=move):
            return Fetch(name, count, None if timeout is None else _millis(timeout), move)
        case ast.CloseStatement(name=name):
            return CloseCursor(name)
        case ast.UnlistenStatement():
            return Unlisten()
        case ast.DiscardStatement(what=what):
            match what:
                case "all" | "plans" | "sequences" | "temp":
                    return Discard(what)
            raise AssertionError(what)
        case ast.MaintenanceStatement():
            return table.bind_maintenance(planning, tree)
        case ast.Unsupported(what=what, at=at):
            raise FeatureNotSupported(f"{what} is not supported", position=at + 1)
        case _:
            raise AssertionError(tree)


def _show_variable(name: str) -> ShowVariable:
    text = ColumnType(TEXT)
    if name == "all":
        return ShowVariable(name, RelationDesc(("name", "setting", "description"), (text,) * 3))
    return ShowVariable(name, RelationDesc((_SHOWN_NAMES.get(name, name),), (text,)))


def _transaction(tree: ast.TransactionStatement) -> Plan:
    match tree.kind:
        case "begin" | "start":
            return Begin(tree.read_only, tree.isolation, tree.kind == "start")
        case "commit":
            return Commit(tree.chain)
        case "rollback":
            return Rollback(tree.chain)
        case "set" | "characteristics":
            return SetTransaction(tree.read_only, tree.isolation, tree.kind == "characteristics")
        case _:
            assert_never(tree.kind)


def _zone(tree: ast.SetZoneStatement) -> str:
    """Return an interval east of Greenwich as hours and minutes; raises 22023."""
    with located(tree.at):
        value = parse_text(tree.text, SqlType("interval", fields=tree.fields))
    assert isinstance(value, tuple)
    months, days, micros = map(int, value)
    wrong = (
        "Cannot specify months in time zone interval."
        if months
        else "Cannot specify days in time zone interval."
        if days
        else "UTC timezone offset is out of range."
        if abs(micros) >= _ZONE_LIMIT
        else None
    )
    if wrong is not None:
        shown = format_text((months, days, micros), INTERVAL)
        raise InvalidParameterValue(
            f"""invalid value for parameter "TimeZone": "INTERVAL '{shown}'\"""", detail=wrong
        )
    minutes, rest = divmod(abs(micros), 60_000_000)
    if rest:
        raise FeatureNotSupported("a time zone with seconds is not supported")
    return f"{'-' if micros < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"


def _millis(timeout: str) -> int:
    """Return the time-out of FETCH, an interval or a number of seconds, in milliseconds."""
    if timeout.replace(".", "", 1).isdigit():
        timeout += " seconds"
    value = parse_text(timeout, INTERVAL)
    assert isinstance(value, tuple)
    months, days, micros = map(int, value)
    return (months * 30 + days) * 86_400_000 + micros // 1000


# --- queries -------------------------------------------------------------------------------


def _select(planning: Planning, tree: ast.SelectStatement) -> Select:
    as_of = None if tree.as_of is None else bind_as_of(planning, tree.as_of)
    planning.changes = []
    # A locking query reads the newest rows, and a query with its own locks has no init plans.
    init_plans = planning.init_plans = None if as_of or tree.query.locks else {}
    query, locks = bind_locking_query(planning, tree.query)
    if locks is not None and as_of is not None:
        raise FeatureNotSupported(
            f"{locks.strength} AS OF a time is not supported",
            position=tree.query.locks[0].at + 1,
        )
    query = replace(
        query,
        changes=tuple(planning.changes),
        init_plans=(*planning.written.values(), *(init_plans or {}).values()),
    )
    return Select(query, as_of, locks)


def _copy(planning: Planning, tree: ast.CopyStatement) -> Plan:
    if tree.is_from:
        return copy.bind_copy_from(planning, tree)
    source = tree.source
    options = copy.copy_options(tree)
    if isinstance(source, ast.TableRef):
        columns = tree.columns or (("*", source.at),)
        targets = tuple(
            ast.Target(
                ast.Star((), at)
                if name == "*" and tree.columns is None
                else ast.ColumnRef((name,), at),
                None,
                at,
            )
            for name, at in columns
        )
        select = ast.Select(None, targets, (source,), None, (), None, source.at)
        return CopyTo(
            _select(planning, ast.SelectStatement(ast.Query(select, source.at), None)), options
        )
    plan = _plan(planning, source)
    assert isinstance(plan, Select | Subscribe)
    return CopyTo(plan, options)


def _explain(
    planning: Planning, tree: ast.ExplainStatement
) -> (
    Explain
    | ExplainAnalyze
    | ExplainChange
    | ExplainFreshness
    | ExplainMaintained
    | ExplainOperators
):
    inner = tree.statement
    if tree.analyze or tree.json:
        return _explain_analyze(planning, tree)
    match inner:
        case ast.ObjectRef() if tree.stage == "analyze":
            return ExplainOperators(_object(planning, inner).id, tree.measures, tree.skew)
        case ast.ObjectRef() if tree.stage == "freshness":
            return _explain_freshness(planning, inner)
        case ast.ObjectRef():
            return ExplainMaintained(_object(planning, inner).id)
        case ast.SelectStatement(query=query, as_of=as_of):
            time = None if as_of is None else bind_as_of(planning, as_of)
            planning.locked = query
            bound = bind_query(planning, query, None)
            finished = finished_query(bound)
        case ast.CreateViewStatement(query=query, as_of=as_of):
            time = None if as_of is None else bind_as_of(planning, as_of)
            planning.in_view, planning.zone = True, SessionZone()
            bound = bind_query(planning, query, None)
            finished = plain_query(bound)
        case (
            ast.InsertStatement()
            | ast.UpdateStatement()
            | ast.DeleteStatement()
            | ast.MergeStatement()
        ):
            return _explain_change(planning, tree, bind_change(planning, inner))
        case _:
            raise FeatureNotSupported(
                "EXPLAIN of anything but a query, a view or a change of rows is not supported",
                position=tree.at + 1,
            )

    name_of = partial(_full_name, planning)
    match tree.stage:
        case "raw":
            return Explain("raw", finished, time, explain_relation(plain_relation(bound), name_of))
        case "decorrelated":
            from foreshore.sql.lower.lower import lower

            text = explain_relation(lower(plain_relation(bound)), name_of)
            return Explain("decorrelated", finished, time, text)
        case "optimized":
            shown = finished
            if isinstance(inner, ast.CreateViewStatement) and inner.materialized:
                shown = ddl.maintained_query(finished, "a materialized view")
            return Explain("optimized", finished, time, _explained(shown, name_of))
        case "physical":
            return Explain("physical", finished, time, _explained(finished, name_of))
        case "timestamp":
            return Explain("timestamp", finished, time, "")
        case "freshness" if as_of is not None:
            raise FeatureNotSupported(
                "EXPLAIN FRESHNESS of a query AS OF a time is not supported",
                detail="It reports the freshness of the newest readable data.",
                hint="Use EXPLAIN TIMESTAMP to see what such a query waits for.",
                position=tree.at + 1,
            )
        case "freshness":
            return ExplainFreshness(finished)
    raise AssertionError(tree.stage)


def _full_name(planning: Planning, id: GlobalId) -> str:
    """Return the full name of a catalog item; ids of recursions are returned as they are."""
    return dotted(planning.catalog.item(id).name.parts) if id.startswith(("u", "s")) else id


def _explain_analyze(planning: Planning, tree: ast.ExplainStatement) -> ExplainAnalyze:
    """Return the plan of EXPLAIN ANALYZE, or of EXPLAIN (FORMAT JSON), of a query."""
    if not isinstance(tree.statement, ast.SelectStatement):
        what = "EXPLAIN ANALYZE" if tree.analyze else "EXPLAIN (FORMAT JSON)"
        raise FeatureNotSupported(
            f"{what} of anything but a query is not supported", position=tree.at + 1
        )
    select = _select(planning, tree.statement)
    text = _explained(select.query, partial(_full_name, planning))
    return ExplainAnalyze(select, text, tree.analyze, tree.json)


def _explain_change(planning: Planning, tree: ast.ExplainStatement, change: Plan) -> ExplainChange:
    """Return the plan of EXPLAIN of a statement that changes rows."""
    assert isinstance(change, Insert | Update | Delete | Merge), change
    if tree.stage not in ("optimized", "physical"):
        raise FeatureNotSupported(
            f"EXPLAIN {tree.stage.upper()} of a statement that changes rows is not supported",
            position=tree.at + 1,
        )
    query = query_read_by(change)
    assert query is not None
    stage: Literal["optimized", "physical"]
    stage = "optimized" if tree.stage == "optimized" else "physical"
    return ExplainChange(stage, change, _explained(query, partial(_full_name, planning)))


def _explain_freshness(planning: Planning, of: ast.ObjectRef) -> ExplainFreshness:
    """Return the plan for one object; a view is planned as a query over it."""
    item = _object(planning, of)
    if of.kind == "view":
        return ExplainFreshness(finished_query(bind_query(planning, query_of(of.name), None)))
    return ExplainFreshness(item.id)


def _object(planning: Planning, of: ast.ObjectRef) -> ItemView:
    """Return the object of EXPLAIN; raises UndefinedObject or WrongObjectType."""
    with located(of.name.at):
        try:
            item = planning.catalog.resolve_item(of.name.name)
        except UndefinedTable:
            code = "42704" if of.kind == "index" else "42P01"
            name = ".".join(of.name.name)
            raise UndefinedObject(f'{of.kind} "{name}" does not exist', sqlstate=code) from None
        if item.kind != of.kind:
            article = "an" if of.kind == "index" else "a"
            raise WrongObjectType(f'"{item.name.item}" is not {article} {of.kind}')
    return item


def _explained(query: Query, name_of: NameOf) -> str:
    """Return the optimised relation as text, below the finishing of its result."""
    text = explain_relation(query.relation, name_of)
    finishing = query.finishing
    recursions = _explained_recursions(query.recursions, name_of)
    parts = []
    if finishing.order_by:
        parts.append(f"order_by=[{explain_order(finishing.order_by)}]")
    if finishing.limit is not None:
        parts.append(f"limit={finishing.limit}")
    if finishing.offset:
        parts.append(f"offset={finishing.offset}")
    width = len(query.desc.columns)
    if not parts and finishing.project == tuple(range(width)):
        return "\n".join([*recursions, text])
    parts.append(f"output=[{', '.join(f'#{i}' for i in finishing.project)}]")
    return "\n".join([*recursions, f"Finish {' '.join(parts)}", *_indented(text.splitlines())])


def _explained_recursions(recursions: Sequence[AnyRecursion], name_of: NameOf) -> list[str]:
    """Return recursions as lines: the base and the step of each, or all values."""
    lines = []
    for each in recursions:
        if isinstance(each, Recursion):
            lines.append(f"Recursion {each.result} (found last: {each.working})")
            words: tuple[str, ...] = ("base", "step")
        else:
            lines.append(f"Mutual recursion{_explained_limit(each)}")
            words = each.collections
        for word, block in zip(words, each.blocks, strict=True):
            inner = [
                *_explained_recursions(block.recursions, name_of),
                *explain_relation(block.relation, name_of).splitlines(),
            ]
            lines += [f"  {word}", *_indented(_indented(inner))]
    return lines


def _explained_limit(recursion: MutualRecursion) -> str:
    if recursion.limit is None:
        return ""
    return f" ({'error' if recursion.fails else 'return'} at {recursion.limit})"


def _indented(lines: Sequence[str]) -> list[str]:
    return ["  " + line for line in lines]


__all__ = ["ParameterTypes", "plan_statement"]
