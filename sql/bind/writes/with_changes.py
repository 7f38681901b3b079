"""Bind statements that change rows, also those in the WITH of another statement.

    WITH moved AS (DELETE FROM a RETURNING *) INSERT INTO b SELECT * FROM moved

A part of a WITH that changes rows is a plan of its own, and what it returns is a statement-local
collection, like the rows of a locking subquery. All parts read the same contents: what they change
is written when all have been computed.
"""

from collections.abc import Sequence
from dataclasses import replace

from msgspec.structs import replace as with_fields

from foreshore.errors import FeatureNotSupported
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Constant, Get, Relation
from foreshore.ids import GlobalId
from foreshore.sql import ast
from foreshore.sql.bind.planning import CommonTable, Planning
from foreshore.sql.bind.writes import insert, merge, update
from foreshore.sql.plan import (
    Change,
    Delete,
    InitPlan,
    Insert,
    Merge,
    Plan,
    Select,
    Update,
    WithChanges,
)

ChangeSyntax = ast.InsertStatement | ast.UpdateStatement | ast.DeleteStatement | ast.MergeStatement


def queries_of_with(
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


def bind_change(planning: Planning, tree: ChangeSyntax) -> Change:
    """Return the plan of INSERT, UPDATE, DELETE or MERGE."""
    planning.init_plans = {}
    plan: Change
    match tree:
        case ast.InsertStatement():
            if tree.as_of is not None:
                planning.init_plans = None
                return insert.bind_insert(planning, tree)
            plan = insert.bind_insert(planning, tree)
        case ast.UpdateStatement():
            plan = update.bind_update(planning, tree)
        case ast.DeleteStatement():
            plan = update.bind_delete(planning, tree)
        case ast.MergeStatement():
            plan = merge.bind_merge(planning, tree)
    return replace(plan, init_plans=_all_of(planning))


def _all_of(planning: Planning) -> tuple[InitPlan, ...]:
    return (*planning.written.values(), *(planning.init_plans or {}).values())


def with_changes(
    planning: Planning, ctes: Sequence[ast.CommonTable | ast.ChangingTable], plan: Plan
) -> Plan:
    """Return the plan of a statement after a WITH with `ctes`, some of which change rows."""
    changing = [each for each in ctes if isinstance(each, ast.ChangingTable)]
    if not changing:
        return plan
    for each in changing:
        if id(each) not in planning.written:  # of INSERT ... DEFAULT VALUES
            raise FeatureNotSupported("this WITH is not supported here", position=each.at + 1)
    assert isinstance(plan, Select | Insert | Update | Delete | Merge)
    parts = tuple(planning.written[id(each)] for each in changing)
    _check_targets([each.plan for each in parts] + [plan], changing)
    return WithChanges(parts, plan)


def _check_targets(plans: Sequence[Plan], changing: Sequence[ast.ChangingTable]) -> None:
    """Raise FeatureNotSupported if two parts may change the same row."""
    changed: set[GlobalId] = set()
    for place, plan in enumerate(plans):
        replaces = isinstance(plan, Update | Delete | Merge) or (
            isinstance(plan, Insert)
            and plan.on_conflict is not None
            and plan.on_conflict.update is not None
        )
        if not replaces:
            continue
        assert isinstance(plan, Insert | Update | Delete | Merge)
        if plan.table in changed:
            at = changing[min(place, len(changing) - 1)].at
            raise FeatureNotSupported(
                "two parts of a statement that change or delete rows of one table"
                " are not supported",
                position=at + 1,
            )
        changed.add(plan.table)


def bind_changing_table(
    planning: Planning,
    common: ast.ChangingTable,
    before: tuple[ast.CommonTable | ast.ChangingTable, ...],
    names: dict[str, CommonTable],
) -> tuple[int, Relation]:
    """Add a query of WITH that changes rows to `names`; return its number and its rows.

    `before` are the queries of WITH that it may read.
    """
    if id(common) not in planning.written:
        kept = planning.init_plans, planning.common_tables, planning.changes
        planning.common_tables, planning.changes = [], None
        try:
            plan = bind_change(
                planning, with_fields(common.change, ctes=(*before, *common.change.ctes))
            )
        finally:
            planning.init_plans, planning.common_tables, planning.changes = kept
        name = GlobalId(f"w{len(planning.written) + 1}")
        planning.written[id(common)] = InitPlan(name, plan)
    found = planning.written[id(common)]
    assert not isinstance(found.plan, Select)
    number = planning.new_let()
    if found.plan.returning is None:
        names[common.name] = CommonTable(number, (), (), returns=False)
        return number, Constant((), ())
    desc = found.plan.returning.desc
    rows = Get(found.id, desc.columns)
    shown = common.columns + desc.names[len(common.columns) :]
    names[common.name] = CommonTable(number, shown, columns_of(rows))
    return number, rows
