"""EXPLAIN COST: what a materialized view will keep and take, before it is made.

The records of each part of its state are counted by a query over the present rows
(`compute/cost.py`), which can be cancelled, as any. How long hydration takes follows from the
volume of the inputs (`compute/hydrate/policy.py`).
"""

from dataclasses import dataclass
from time import perf_counter

from foreshore.adapter.explain.hydration import hydration
from foreshore.adapter.read.bound.bind import bind_peek
from foreshore.adapter.read.bound.timestamp import read_timestamp
from foreshore.adapter.read.execute import execute
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.planner import Planner
from foreshore.adapter.statement.result import all_rows
from foreshore.compute.cost import Part, counting, inlined, parts_of
from foreshore.errors import FeatureNotSupported, InternalError
from foreshore.expr import ir
from foreshore.expr.columns import columns_of
from foreshore.expr.traversal import walk_relations
from foreshore.ids import GlobalId
from foreshore.sizes import UNITS
from foreshore.sql.plan import Explain, Query
from foreshore.sql.rewrite.full_names import dotted
from foreshore.types import INT8, ColumnType, RelationDesc


@dataclass(frozen=True, slots=True)
class Estimate:
    """The parts of a view's state with their records, its rows, and what counting took."""

    parts: tuple[tuple[Part, int], ...]
    rows: int
    seconds: float

    @property
    def bytes(self) -> float:
        """Return the bytes of the state."""
        return sum(part.bytes(records) for part, records in self.parts)


async def estimate(context: StatementContext, query: Query) -> Estimate:
    """Return what a maintained query keeps of the present rows."""
    if any(isinstance(node, ir.LetRec) for node in walk_relations(query.relation)):
        raise FeatureNotSupported("EXPLAIN COST of a recursive view")
    relation = inlined(query.relation)
    parts = (*parts_of(relation), Part("view", relation, 0))
    counted = counting(parts)
    columns = tuple(columns_of(counted))
    finishing = ir.Finishing((), None, 0, tuple(range(len(columns))))
    desc = RelationDesc(("part", "records"), (ColumnType(INT8, False),) * 2)
    peek = context.planner.plan_query(Query(counted, finishing, desc))
    began = perf_counter()
    time = read_timestamp(context, peek, None)
    result = await execute(context, await bind_peek(context, peek, time))
    if result is None:
        raise InternalError("counting has no result")
    rows = await all_rows(result)
    seconds = perf_counter() - began
    numbers, counts = (rows.column(i).to_pylist() for i in range(2))
    records = dict(zip(numbers, counts, strict=True))
    known = tuple((part, records[number]) for number, part in enumerate(parts[:-1]))
    return Estimate(known, records[len(parts) - 1], seconds)


async def explain_cost(context: StatementContext, plan: Explain) -> str:
    """Return the text of EXPLAIN COST."""
    found = await estimate(context, plan.query)
    cluster = context.names.state.cluster(context.cluster)
    own = {} if cluster is None else cluster.options
    options = {**context.views.compute.clusters.options, **own}
    lines = [
        f"Rows: {found.rows}",
        f"State: {shown_bytes(found.bytes)}",
        hydration(context, plan.query.relation, options, None).strip()
        or "Hydration: by operators, as there are few rows",
        f"Counted in: {found.seconds:.2f} s",
        "Kept:",
    ]
    for part, records in found.parts:
        if not part.joins:
            whose = f" of {_name(context.planner, part.shared)}, shared" if part.shared else ""
            size = shown_bytes(part.bytes(records))
            lines.append(f"  {part.name}{whose}: {records} records, {size}")
    inputs = {part.shared: n for part, n in found.parts if part.shared and part.name == "rows"}
    for part, records in found.parts:
        for id in sorted(part.joins & inputs.keys()):
            if "Work:" not in lines:
                lines.append("Work:")
            met = records / max(1, inputs[id])
            lines.append(f"  a changed row of {_name(context.planner, id)}: {met:.2f} joined rows")
    return "\n".join(lines)


def shown_bytes(size: float) -> str:
    """Return a size in a unit in which it has at most four digits before the point."""
    for unit in ("TB", "GB", "MB", "kB"):
        if size >= UNITS[unit.lower()]:
            return f"{size / UNITS[unit.lower()]:.1f} {unit}"
    return f"{size:.0f} bytes"


def _name(planner: Planner, id: GlobalId) -> str:
    return dotted(planner.reader().item(id).name.parts) if id.startswith(("u", "s")) else id
