"""EXPLAIN: the plan of each of its forms, and plans as text."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

from foreshore.errors import FeatureNotSupported, UndefinedObject, UndefinedTable, WrongObjectType
from foreshore.expr.block import AnyRecursion, MutualRecursion, Recursion
from foreshore.expr.column_names import NamedColumns, Names, with_names
from foreshore.expr.explain import NameOf, explain_nodes, explain_order, explain_scalar
from foreshore.expr.ir import Get, Scalar
from foreshore.expr.plan_nodes import PlanNode
from foreshore.expr.recursion import single_relation
from foreshore.item_view import ItemView
from foreshore.sql import ast
from foreshore.sql.bind.binding import BINDING
from foreshore.sql.bind.bound_query import BoundQuery, plain_relation
from foreshore.sql.bind.definitions import objects as ddl
from foreshore.sql.bind.definitions.sinks.create import bind_create_sink
from foreshore.sql.bind.definitions.subscribe import query_of
from foreshore.sql.bind.planning import ParameterTypes, Planning, located
from foreshore.sql.bind.query import bind_query
from foreshore.sql.bind.result import finished_query, lower_and_optimize_block, plain_query
from foreshore.sql.bind.select_statement import bind_select
from foreshore.sql.bind.time import bind_as_of
from foreshore.sql.bind.writes.with_changes import bind_change
from foreshore.sql.explained_names import columns_of, full_name
from foreshore.sql.lower.lower import lower_block
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.parse.parse import Statement, parse
from foreshore.sql.plan import (
    Delete,
    Explain,
    ExplainAnalyze,
    ExplainChange,
    ExplainFreshness,
    ExplainMaintained,
    ExplainOperators,
    ExplainSinkSchema,
    Insert,
    Merge,
    Plan,
    Query,
    Update,
)
from foreshore.sql.plan.reads import query_read_by
from foreshore.sql.rewrite.session_zone import SessionZone

_EARLY = ("raw", "decorrelated", "local")  # stages before a definition is optimized as a whole


def bind_explain(
    planning: Planning, tree: ast.ExplainStatement
) -> (
    Explain
    | ExplainAnalyze
    | ExplainChange
    | ExplainFreshness
    | ExplainMaintained
    | ExplainOperators
    | ExplainSinkSchema
):
    """Return the plan of EXPLAIN; raises FeatureNotSupported for other statements."""
    inner = tree.statement
    if isinstance(inner, ast.CreateSinkStatement) and tree.stage.endswith(" schema"):
        part: Literal["key", "value"] = "key" if tree.stage == "key schema" else "value"
        return ExplainSinkSchema(bind_create_sink(planning, inner), part)
    if tree.analyze or (tree.json and tree.stage == "optimized" and _is_query(inner)):
        return _explain_analyze(planning, tree)
    match inner:
        case ast.ObjectRef() if tree.stage == "analyze":
            return ExplainOperators(_object(planning, inner).id, tree.measures, tree.skew)
        case ast.ObjectRef() if tree.stage == "freshness":
            return _explain_freshness(planning, inner)
        case ast.ObjectRef() if tree.stage in _EARLY:
            return _explain_early(planning, inner, tree)
        case ast.ObjectRef(kind="view", name=name):
            _object(planning, inner)
            bound = bind_query(planning, query_of(name), None)
            time, finished = None, finished_query(bound)
        case ast.ObjectRef():
            of_view: Literal["definition", "physical", "pushdown"] = "definition"
            if tree.stage == "physical":
                of_view = "physical"
            elif tree.stage == "pushdown":
                of_view = "pushdown"
            return ExplainMaintained(_object(planning, inner).id, of_view, tree.json)
        case ast.CreateIndexStatement():
            index = ddl.bind_create_index(planning, inner)
            bound = bind_query(planning, query_of(inner.on), None)
            time, finished = None, finished_query(bound)
            if tree.stage not in ("cost", "timestamp", "freshness", "pushdown"):
                nodes = _staged(planning, bound, finished, tree.stage)
                names = tuple(map(quote_identifier, planning.catalog.item(index.on).desc.names))
                node = index_node(index.key, names, nodes)
                return Explain("raw", finished, None, (node,), tree.json)
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

    match tree.stage:
        case "raw" | "decorrelated" | "local" | "physical" as stage:
            nodes = _staged(planning, bound, finished, stage)
            return Explain(stage, finished, time, nodes, tree.json)
        case "optimized":
            shown = finished
            if isinstance(inner, ast.CreateViewStatement) and inner.materialized:
                shown = ddl.maintained_query(finished, "a materialized view")
            nodes = _staged(planning, bound, shown, "optimized")
            return Explain("optimized", finished, time, nodes, tree.json)
        case "pushdown" if time is not None or tree.json:
            raise FeatureNotSupported(
                f"EXPLAIN FILTER PUSHDOWN {'AS JSON' if tree.json else 'AS OF'} is not supported",
                position=tree.at + 1,
            )
        case "pushdown" | "cost" as stage if planning.securing.restricts:
            what = "COST" if stage == "cost" else "FILTER PUSHDOWN"
            raise FeatureNotSupported(
                f"EXPLAIN {what} is not supported with row-level security",
                detail="It would count rows that policies hide.",
                position=tree.at + 1,
            )
        case "pushdown":
            return Explain("pushdown", finished, None)
        case "cost":
            maintained = ddl.maintained_query(finished, "a materialized view")
            return Explain("cost", maintained, time, json=tree.json)
        case "timestamp":
            return Explain("timestamp", finished, time, json=tree.json)
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


def _staged(
    planning: Planning, bound: BoundQuery, finished: Query, stage: str
) -> tuple[PlanNode, ...]:
    """Return the plan of a query after it is bound, lowered, optimized by itself, or finished."""
    name_of, columns = partial(full_name, planning.catalog), columns_of(planning.catalog)
    match stage:
        case "raw":
            relation = plain_relation(bound)
        case "decorrelated":
            block = lower_block(plain_relation(bound))
            recursions = _explained_recursions(block.recursions, name_of, columns)
            return (*recursions, explain_nodes(block.relation, name_of, columns=columns))
        case "local":
            relation = single_relation(lower_and_optimize_block(plain_relation(bound)))
        case _:
            return _explained(finished, name_of, columns)
    return (explain_nodes(relation, name_of, columns=columns),)


def index_node(key: Sequence[Scalar], names: Names, definition: tuple[PlanNode, ...]) -> PlanNode:
    """Return the node of an index, over the definition of what it indexes."""
    shown = with_names(", ".join(map(explain_scalar, key)), names)
    return PlanNode("Index", f"by ({shown})", inputs=definition)


def _explain_early(
    planning: Planning, of: ast.ObjectRef, tree: ast.ExplainStatement
) -> ExplainMaintained:
    """Return the plan of an object's definition before its optimization, from its text."""
    item = _object(planning, of)
    if item.kind != "index":
        return ExplainMaintained(
            item.id, "definition", tree.json, _defined(planning, item, tree.stage)
        )
    (statement,) = parse(planning.catalog.statement_of(item.id))
    assert isinstance(statement.ast, ast.CreateIndexStatement), item
    inner = _planning_of(planning, item, statement)
    index = ddl.bind_create_index(inner, statement.ast)
    on = planning.catalog.item(index.on)
    names = tuple(map(quote_identifier, on.desc.names))
    node = index_node(index.key, names, _defined(planning, on, tree.stage))
    return ExplainMaintained(item.id, "definition", tree.json, (node,))


def _defined(planning: Planning, item: ItemView, stage: str) -> tuple[PlanNode, ...]:
    """Return the definition of a view at a stage, or the relation itself if it is no view."""
    if item.kind not in ("view", "materialized view"):
        get = Get(item.id, item.desc.columns)
        columns = columns_of(planning.catalog)
        return (explain_nodes(get, partial(full_name, planning.catalog), columns=columns),)
    (statement,) = parse(planning.catalog.statement_of(item.id))
    assert isinstance(statement.ast, ast.CreateViewStatement), item
    inner = _planning_of(planning, item, statement)
    bound = bind_query(inner, statement.ast.query, None)
    return _staged(planning, bound, plain_query(bound), stage)


def _planning_of(planning: Planning, item: ItemView, statement: Statement) -> Planning:
    """Return the planning of an object's own statement."""
    catalog = planning.catalog.within(item.id)
    zone = SessionZone(of_constants="UTC")
    inner = Planning(
        catalog, statement.whole, ParameterTypes(()), zone, defined=True, binding=BINDING
    )
    inner.in_view = True
    return inner


def _is_query(statement: object) -> bool:
    return isinstance(statement, ast.SelectStatement)


def _explain_analyze(planning: Planning, tree: ast.ExplainStatement) -> ExplainAnalyze:
    """Return the plan of EXPLAIN ANALYZE, or of EXPLAIN (FORMAT JSON), of a query."""
    if not isinstance(tree.statement, ast.SelectStatement):
        what = "EXPLAIN ANALYZE" if tree.analyze else "EXPLAIN (FORMAT JSON)"
        raise FeatureNotSupported(
            f"{what} of anything but a query is not supported", position=tree.at + 1
        )
    select = bind_select(planning, tree.statement)
    nodes = _explained(
        select.query, partial(full_name, planning.catalog), columns_of(planning.catalog)
    )
    return ExplainAnalyze(select, nodes, tree.analyze, tree.json)


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
    nodes = _explained(query, partial(full_name, planning.catalog), columns_of(planning.catalog))
    return ExplainChange(stage, change, nodes, tree.json)


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


def _explained(query: Query, name_of: NameOf, columns: NamedColumns) -> tuple[PlanNode, ...]:
    """Return the recursions, and the optimised relation below the finishing of its result."""
    node = explain_nodes(query.relation, name_of, columns=columns)
    finishing = query.finishing
    recursions = _explained_recursions(query.recursions, name_of, columns)
    parts = []
    if finishing.order_by:
        parts.append(f"order_by=[{explain_order(finishing.order_by)}]")
    if finishing.limit is not None:
        parts.append(f"limit={finishing.limit}")
    if finishing.offset:
        parts.append(f"offset={finishing.offset}")
    width = len(query.desc.columns)
    if not parts and finishing.project == tuple(range(width)):
        return (*recursions, node)
    parts.append(f"output=[{', '.join(f'#{i}' for i in finishing.project)}]")
    finish = with_names(" ".join(parts), columns.names(query.relation))
    return (*recursions, PlanNode("Finish", finish, inputs=(node,)))


def _explained_recursions(
    recursions: Sequence[AnyRecursion], name_of: NameOf, columns: NamedColumns
) -> Iterator[PlanNode]:
    """Yield recursions: the base and the step of each, or all values."""
    for each in recursions:
        if isinstance(each, Recursion):
            detail = f"{each.result} (found last: {each.working})"
            words: tuple[str, ...] = ("base", "step")
        else:
            detail = f"of several values{_explained_limit(each)}"
            words = each.collections
        inputs = [
            PlanNode(
                word,
                inputs=(
                    *_explained_recursions(block.recursions, name_of, columns),
                    explain_nodes(block.relation, name_of, columns=columns),
                ),
            )
            for word, block in zip(words, each.blocks, strict=True)
        ]
        yield PlanNode("Recursion", detail, inputs=tuple(inputs))


def _explained_limit(recursion: MutualRecursion) -> str:
    if recursion.limit is None:
        return ""
    return f" ({'error' if recursion.fails else 'return'} at {recursion.limit})"
