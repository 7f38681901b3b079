"""EXPLAIN ANALYZE of a query: it is run, its rows are counted and dropped, and what was done shown.

Also EXPLAIN (FORMAT JSON), which does not run it.
"""

import json
from typing import Any

import pyarrow as pa
from msgspec.structs import replace

from foreshore.adapter.explain.explain import name_of
from foreshore.adapter.read.select import selected
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.result import ALL, BatchSource, Selected
from foreshore.adapter.statement.trace import Trace
from foreshore.expr.plan_nodes import document_of, text_of
from foreshore.ids import GlobalId
from foreshore.sql.plan import ExplainAnalyze


async def explain_analyze(context: StatementContext, plan: ExplainAnalyze) -> Selected:
    """Run the query, with its locks and side effects, and return its plan and what it took."""
    planning = context.prepared.made.planning_seconds
    trace, rows = Trace(), 0
    if plan.run:
        traced = replace(context, trace=trace)
        found = await selected(traced, plan.select, "SELECT")
        try:
            while (batch := await found.source.next(ALL)) is not None:
                rows += batch.num_rows
        finally:
            found.source.close()
    seconds = trace.seconds
    ran = [_named(context, each) for each in trace.ran]
    if plan.json:
        shown: dict[str, Any] = {"Plan": document_of(plan.nodes)}
        if plan.run:
            shown["Plan"] = {
                "Node Type": (ran or ["Nothing"])[-1].split(",")[0],
                "Executed": ran,
                "Actual Rows": rows,
                "Actual Total Time": _ms(seconds),
                "Actual Loops": 1,
                "Plans": [shown["Plan"]],
            }
        shown["Planning Time"] = _ms(planning)
        if plan.run:
            shown["Timestamp"] = trace.time
            shown["Timestamp Wait Time"] = _ms(trace.waited)
            shown["Execution Time"] = _ms(seconds)
        lines = [json.dumps([shown], indent=2, ensure_ascii=False)]
    else:
        *before, last = ran or ["Nothing is read"]
        time = "" if trace.time is None else f"Timestamp: {trace.time}\n"
        lines = [
            *before,
            f"{last} (actual time={seconds * 1000:.3f} rows={rows} loops=1)",
            *(f"  {line}" for line in text_of(plan.nodes).splitlines()),
            f"Planning Time: {planning * 1000:.3f} ms",
            *time.splitlines(),
            f"Timestamp Wait Time: {trace.waited * 1000:.3f} ms",
            f"Execution Time: {seconds * 1000:.3f} ms",
        ]
    batch = pa.RecordBatch.from_arrays([pa.array(lines, pa.string())], names=["c0"])
    return Selected(plan.desc, BatchSource(batch), "EXPLAIN")


def _named(context: StatementContext, ran: str) -> str:
    """Return a line of a trace with the full names of indexes in place of their ids."""
    head, found, rest = ran.partition("Read of index ")
    if not found:
        return ran
    id, comma, tail = rest.partition(",")
    return f"{head}{found}{name_of(context, GlobalId(id))}{comma}{tail}"


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)
