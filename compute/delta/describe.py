"""The plan of a dataflow's changes as text, for EXPLAIN PHYSICAL PLAN.

One paragraph for each trace, in the order in which a tick works through them: what it is used
for, its columns, and the operators that lead to it; then the outputs. `#3` is the trace 3.
"""

from collections.abc import Iterator

from foreshore.compute.delta.differentiate import TickPlan, Trace
from foreshore.expr.ir import (
    Constant,
    Filter,
    FlatMap,
    Get,
    Join,
    LocalGet,
    Map,
    Project,
    Reduce,
    Relation,
    TopK,
    columns_of,
    inputs_of,
)


def describe_plan(engine: str, plan: TickPlan) -> str:
    """Return the text of `plan` as `engine` runs it."""
    lines = [f"Engine: {engine}"]
    for trace in plan.traces:
        lines.append(f"Trace #{trace.number}: {_use(trace)}")
        lines += _lines(trace.body, 1)
    for name, output in zip(("Rows", "Errors"), plan.outputs, strict=False):
        lines.append(f"{name}:")
        lines += _lines(output, 1)
    return "\n".join(lines)


def _use(trace: Trace) -> str:
    types = ", ".join(str(column.type) for column in trace.columns)
    if trace.sums is not None:
        names = ", ".join(["rows", *(aggregate.function for aggregate in trace.sums.aggregates)])
        return f"accumulators ({names}) by ({types})"
    return f"{'rows' if trace.kept else 'changes only'} ({types})"


def _lines(relation: Relation, depth: int) -> Iterator[str]:
    yield "  " * depth + _operator(relation)
    for input in inputs_of(relation):
        yield from _lines(input, depth + 1)


def _operator(relation: Relation) -> str:
    match relation:
        case Get(id=id):
            return f"Get {id}"
        case LocalGet(number=number):
            return f"#{number}"
        case Map(scalars=scalars):
            return f"Map ({len(scalars)} scalars)"
        case Filter(predicates=predicates):
            return f"Filter ({len(predicates)} predicates)"
        case Project(outputs=outputs):
            return f"Project ({', '.join(f'c{i}' for i in outputs)})"
        case FlatMap(function=function):
            return f"FlatMap {function}"
        case Join(inputs=inputs, equivalences=equivalences):
            return f"Delta join of {len(inputs)} on {len(equivalences)} equivalences"
        case Reduce(group_key=group_key, aggregates=aggregates):
            names = ", ".join(aggregate.function for aggregate in aggregates)
            return f"Reduce by {len(group_key)} keys: {names or 'distinct'}"
        case TopK(group_key=group_key):
            return f"TopK by {len(group_key)} keys"
        case Constant(rows=rows):
            return f"Constant ({len(rows)} rows, {len(columns_of(relation))} columns)"
        case _:
            return type(relation).__name__
