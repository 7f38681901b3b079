"""Plans are deterministic: evaluated twice, with other hash seeds and windows, they agree."""

from collections import Counter

import pyarrow as pa
import pytest

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Input
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.protocol import DataflowDescription
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from tests.compute.flow.test_sizes import SCHEMAS, updates
from tests.compute.plans import PLANS

SAMPLE = [name for name, plan in PLANS.items() if sources_of(plan) <= SCHEMAS.keys()]


def evaluated(name: str, uppers: list[int]) -> Counter[tuple[object, ...]]:
    """Return the updates of a plan's rows and errors, in windows that end at `uppers`."""
    bulk = DuckDbEngine(threads=1)
    engine = FlowEngine(bulk)  # with a hash seed of its own
    relation = PLANS[name]
    ids = tuple(sorted(sources_of(relation)))
    dataflow = engine.create(DataflowDescription(GlobalId("t1"), relation, ids, (), 1), SCHEMAS)
    outputs = [
        dataflow.hydrate({id: Input(SCHEMAS[id], (), (updates(id, 0, 30, 1),)) for id in ids})
    ]
    changes = {
        2: {id: updates(id, 30, 5, 2) for id in ids},
        3: {id: updates(id, 0, 10, 3, -1) for id in ids},
        4: {id: updates(id, 3, 4, 4) for id in ids},
    }
    lower = 2
    for upper in uppers:
        times = [time for time in changes if lower <= time < upper]
        deltas = {id: pa.concat_tables([changes[time][id] for time in times]) for id in ids}
        outputs.append(dataflow.step(lower, upper, deltas))
        lower = upper
    found: Counter[tuple[object, ...]] = Counter()
    for output in outputs:
        for table in (output.rows, output.errors):
            for *row, diff in zip(*(column.to_pylist() for column in table.columns), strict=True):
                found[tuple(map(str, row))] += diff
    dataflow.close()
    bulk.close()
    return Counter({row: count for row, count in found.items() if count})


@pytest.mark.parametrize("name", SAMPLE)
def test_plan_evaluated_twice_gives_the_same(name: str) -> None:
    assert evaluated(name, [3, 4, 5]) == evaluated(name, [5])
