"""The plan of a dataflow's changes as text, for EXPLAIN PHYSICAL PLAN.

There is one paragraph for each trace, in the order of a tick: its use, its columns, and its
operators. The outputs follow. `Get trace 3` reads `Trace 3`.
"""

from foreshore.compute.delta.differentiate import TickPlan, Trace
from foreshore.expr.explain import NameOf, explain_operator, explain_relation
from foreshore.expr.ir import Join, LocalGet, Relation
from foreshore.types import format_type


def describe_plan(plan: TickPlan, name_of: NameOf = str, mark: str = "") -> str:
    """Return the text of `plan`; `name_of` returns the names of collections.

    Each operator's line ends with `mark`.
    """

    def title(relation: Relation) -> str:
        return (_title(relation) or explain_operator(relation, name_of)) + mark

    lines = []
    closing = {each.trace: each.column for each in plan.closing}
    for trace in plan.traces:
        closed = f", without closed #{closing[trace.number]}" if trace.number in closing else ""
        lines.append(f"Trace {trace.number}: {_use(trace)}{closed}")
        lines.append(explain_relation(trace.body, name_of, title, depth=1))
    for name, output in zip(("Rows", "Errors"), plan.outputs, strict=False):
        lines.append(f"{name}:")
        lines.append(explain_relation(output, name_of, title, depth=1))
    return "\n".join(lines)


def _use(trace: Trace) -> str:
    types = ", ".join(format_type(column.type) for column in trace.columns)
    if trace.sums is not None:
        names = ", ".join(["rows", *(aggregate.function for aggregate in trace.sums.aggregates)])
        return f"accumulators ({names}) by ({types})"
    return f"{'rows' if trace.kept else 'changes only'} ({types})"


def _title(relation: Relation) -> str | None:
    """Return the name of an operator over changes, if it differs from the relation's."""
    match relation:
        case LocalGet(number=number):
            return f"Get trace {number}"
        case Join():
            return f"Delta{explain_operator(relation)}"
        case _:
            return None
