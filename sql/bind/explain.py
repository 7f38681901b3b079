"""EXPLAIN: the plan of each of its forms, and plans as text."""

from collections.abc import Sequence
from functools import partial
from typing import Literal

from foreshore.errors import FeatureNotSupported, UndefinedObject, UndefinedTable, WrongObjectType
from foreshore.expr.block import AnyRecursion, MutualRecursion, Recursion
from foreshore.expr.explain import NameOf, explain_order, explain_relation
from foreshore.ids import GlobalId
from foreshore.item_view import ItemView
from foreshore.sql import ast
from foreshore.sql.bind.bound_query import plain_relation
from foreshore.sql.bind.definitions import objects as ddl
from foreshore.sql.bind.definitions.sinks.create import bind_create_sink
from foreshore.sql.bind.query import bind_query
from foreshore.sql.bind.result import finished_query, plain_query
from foreshore.sql.bind.select_statement import bind_select
from foreshore.sql.bind.subscribe import query_of
from foreshore.sql.bind.time import bind_as_of
from foreshore.sql.bind.writes.with_changes import bind_change
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
from foreshore.sql.planning import Planning, located
from foreshore.sql.rewrite.full_names import dotted
from foreshore.sql.rewrite.session_zone import SessionZone


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
        case "cost":
            if planning.securing.restricts:
                raise FeatureNotSupported(
                    "EXPLAIN COST is not supported with row-level security",
                    detail="It would count rows that policies hide.",
                    position=tree.at + 1,
                )
            maintained = ddl.maintained_query(finished, "a materialized view")
            return Explain("cost", maintained, time, "")
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
    select = bind_select(planning, tree.statement)
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
