"""The changes of traces that are linear in the inputs, by the functions' kernels.

The changes of a linear relation are the relation applied to its inputs' changes.
"""

from collections.abc import Mapping

import pyarrow as pa

from foreshore.compute.delta.changes import change_table, input_table
from foreshore.compute.delta.differentiate import TickPlan, Trace
from foreshore.compute.engine import output_schema
from foreshore.compute.linear import Rows, apply
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Filter, Get, LocalGet, Map, Negate, Project, Union
from foreshore.expr.traversal import walk_relations

_LINEAR = (Get, LocalGet, Map, Filter, Project, Union, Negate)


def linear_traces(plan: TickPlan) -> frozenset[int]:
    """Return the traces that are linear in inputs, and in other such traces."""
    found: set[int] = set()
    for trace in plan.traces:
        nodes = list(walk_relations(trace.body))
        over = {node.number for node in nodes if isinstance(node, LocalGet)}
        over -= {number for number in over if plan.traces[number].leaf is not None}
        if trace.sums is None and over <= found and all(isinstance(n, _LINEAR) for n in nodes):
            found.add(trace.number)
    return frozenset(found)


def changes_of(
    trace: Trace, traces: tuple[Trace, ...], updates: Mapping[str, pa.Table | None]
) -> pa.Table:
    """Return the changes of a linear trace, given those of what it reads, by table of changes."""

    def rows(table: str, node: Get | LocalGet) -> Rows:
        found = updates.get(table)
        if found is None or not found.num_rows:
            found = output_schema(node.columns).empty_table()
        return Rows.of_table(found, 2)

    nodes = [node for node in walk_relations(trace.body) if isinstance(node, LocalGet)]
    locals = {node.number: rows(change_table(traces[node.number]), node) for node in nodes}
    found = apply(trace.body, lambda get: rows(input_table(get.id), get), locals)
    schema = output_schema(columns_of(trace.body))
    return pa.Table.from_arrays([*found.columns, *found.along], schema=schema)
