"""The check of row-level security: rows that a statement writes must satisfy its policies."""

from collections.abc import Sequence
from dataclasses import replace as replace_plan

import pyarrow as pa
from msgspec.structs import replace

from foreshore.adapter.plans.prepared import Made, Prepared
from foreshore.adapter.plans.target import Target
from foreshore.adapter.read.pipeline import read_rows
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.write.returning import WRITTEN, over_rows
from foreshore.adapter.write.stage import first_failing, with_generated
from foreshore.compute.engine import rows_schema
from foreshore.errors import InsufficientPrivilege
from foreshore.rows import split_diffs
from foreshore.sql.plan import Query, RowCheck
from foreshore.table_rows import TableRows


async def require_policies(
    context: StatementContext, target: Target, checks: Sequence[RowCheck], rows: TableRows
) -> None:
    """Raise InsufficientPrivilege for the first row that breaks a policy.

    Generated columns of the rows are computed before.
    """
    if not checks or not rows.num_rows:
        return
    columns, _ = split_diffs(with_generated(target, rows).table)
    broken: list[tuple[int, int, RowCheck]] = []
    for place, each in enumerate(checks):
        if each.condition is not None:
            failing = first_failing(context, each.condition, columns, rows.num_rows)
            if failing is not None:
                broken.append((failing, place, each))
        elif await _has_violations(context, target, each.violations, columns):
            broken.append((rows.num_rows, place, each))
    if broken:
        _, _, first = min(broken, key=lambda each: each[:2])
        raise _violated(context.planner.state.item(target.id).name, first)


async def _has_violations(
    context: StatementContext, target: Target, query: Query | None, columns: Sequence[pa.Array]
) -> bool:
    """Return whether a query over the rows, and what its subqueries read, returns any."""
    assert query is not None
    types = target.desc.columns
    query = replace_plan(query, relation=over_rows(query.relation, types))
    peek = context.planner.plan_aside(query)
    if context.transaction.time is None:
        context = context.reading_newest()
    aside = replace(context, prepared=Prepared("", context.prepared.syntax, made=Made(peek=peek)))
    given = pa.Table.from_arrays([*columns], schema=rows_schema(types))
    found = await read_rows(aside, None, {WRITTEN: given})
    return bool(found.num_rows)


def _violated(table: str, check: RowCheck) -> InsufficientPrivilege:
    name = "" if check.policy is None else f' "{check.policy}"'
    using = "" if check.about == "new row" else " (USING expression)"
    row = "target row" if check.about == "target row" else "new row"
    return InsufficientPrivilege(
        f'{row} violates row-level security policy{name}{using} for table "{table}"'
    )
