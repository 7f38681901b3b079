"""A dataflow that merges times is exact at all others, and so are those that share its inputs."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.flow import hydration, ordered, spine
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.flow.unsupported import Unsupported
from foreshore.compute.merged_times import MergedTimes, at_or_after
from foreshore.compute.output import Output
from foreshore.compute.protocol import DataflowDescription, SubscribeIndex
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Join, LocalGet, Project, Relation, Union
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from foreshore.types import TEXT, ColumnType
from tests.compute.cases import (
    START,
    Case,
    columns_by_id,
    deltas,
    initial,
    random_history,
    rows_of,
    schema_of,
)
from tests.compute.flow.test_loop import DISTANCES, EDGES, distinct, graphs, rec
from tests.compute.flow.test_paced_windows import NUMBERED, feed, hydrated, numbered, steps, toggled
from tests.compute.plans import PLANS, column
from tests.compute.runtime.harness import contents, id_, rows
from tests.compute.without_bulk import WithoutBulk
from tests.effort import examples
from tests.model import evaluate
from tests.relations import histories, lowered_relations

TIMES = 8


@pytest.fixture(scope="module")
def bulk() -> Iterator[DuckDbEngine]:
    """Yield one bulk engine for all cases."""
    bulk = DuckDbEngine(threads=1)
    yield bulk
    bulk.close()


@pytest.fixture
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let few updates be runs of their own."""
    monkeypatch.setattr(hydration, "BULK_ROWS", 1 << 60)
    monkeypatch.setattr(spine, "TAIL_ROWS", 3)
    monkeypatch.setattr(ordered, "EAGER", 4)


def check_merging(bulk: DuckDbEngine, case: Case, random: Random) -> None:
    """Assert that of two dataflows one is exact at times that are not merged, the other at all."""
    engine = WithoutBulk(bulk)
    ranges = []
    for _ in range(random.randint(1, 2)):
        first, last = sorted(random.sample(range(1, len(case.history) + 2), 2))
        ranges.append((START + first, START + last))
    ranges.sort()
    columns = columns_by_id(case.relation)
    schemas = {id: schema_of(each) for id, each in columns.items()}
    sources = tuple(sorted(sources_of(case.relation)))
    outputs: dict[str, list[Output]] = {"merging": [], "exact": []}
    dataflows = {}
    for number, name in enumerate(outputs):
        description = DataflowDescription(GlobalId(f"t{number}"), case.relation, sources, (), START)
        dataflows[name] = engine.create(description, schemas)
        outputs[name].append(dataflows[name].hydrate(initial(case)))
    dataflows["merging"].merge_times(MergedTimes(tuple(ranges)))
    for first, beyond in case.windows:
        window = deltas(case, first, beyond)
        for name in random.sample(sorted(dataflows), 2):
            step = dataflows[name].step(START + first, START + beyond, window)
            outputs[name].append(step)
    for name, found in outputs.items():
        dataflows[name].close()
        for i, each in enumerate(case.history):
            if name == "merging" and at_or_after(ranges, START + i) > START + i:
                continue
            check_at(case, found, each, i)


def check_at(case: Case, outputs: list[Output], tables: object, i: int) -> None:
    wanted, failures = evaluate(case.relation, tables, time=START + i)  # type: ignore[arg-type]
    out = pa.concat_tables([output.rows for output in outputs])
    errors = pa.concat_tables([output.errors for output in outputs])
    counted = Counter({(text,): count for text, count in failures.items()})
    assert rows_of(errors, (ColumnType(TEXT),), START + i) == counted, f"errors at {i}"
    assert rows_of(out, columns_of(case.relation), START + i) == wanted, f"rows at {i}"


@settings(max_examples=examples(200), deadline=None)
@given(st.data(), st.booleans(), st.randoms(use_true_random=False))
def test_random_plans_are_exact_at_times_that_are_not_merged(
    bulk: DuckDbEngine, data: st.DataObject, failing: bool, random: Random
) -> None:
    relation = data.draw(lowered_relations(size=data.draw(st.integers(1, 6)), failing=failing))
    cuts = frozenset(data.draw(st.sets(st.integers(2, TIMES - 1))))
    try:
        check_merging(bulk, Case(relation, data.draw(histories(TIMES)), cuts), random)
    except Unsupported:
        reject()


@pytest.mark.parametrize("name", PLANS)
def test_each_operator_is_exact_at_times_that_are_not_merged(
    small_runs: None, bulk: DuckDbEngine, name: str
) -> None:
    random = Random(name)
    for _ in range(6):
        cuts = frozenset(random.sample(range(2, TIMES), random.randint(0, 3)))
        case = Case(PLANS[name], random_history(random, times=TIMES), cuts)
        try:
            check_merging(bulk, case, random)
        except Unsupported as error:
            pytest.skip(str(error))


TWICE = rec(  # two steps at once, over inputs that change at different times
    distinct(
        Union(
            (
                EDGES,
                Project(
                    Join(
                        (LocalGet(1, EDGES.columns), EDGES, EDGES),
                        ((column(1), column(2)), (column(3), column(4))),
                    ),
                    (0, 5),
                ),
            )
        ),
        2,
    )
)


@pytest.mark.parametrize("relation", [TWICE, DISTANCES], ids=["ranks", "iterations"])
def test_recursions_are_exact_at_times_that_are_not_merged(
    bulk: DuckDbEngine, relation: Relation
) -> None:
    random = Random(0)
    for _ in range(examples(40)):
        nodes, times = random.randint(2, 5), random.randint(3, 9)
        history = graphs(random, nodes, times, nodes + 3)
        cuts = frozenset(random.sample(range(2, times + 1), random.randint(0, times - 1)))
        check_merging(bulk, Case(relation, history, cuts), random)


# --- a replica ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engine(bulk: DuckDbEngine) -> FlowEngine:
    """Return one engine for all tests."""
    return WithoutBulk(bulk)


def test_times_that_nobody_reads_are_one_step(engine: FlowEngine, tmp_path: Path) -> None:
    """Of 100 commits the first 90 count as one; without that there would be 25 steps of four."""
    running, dataflow = hydrated(engine, NUMBERED, tmp_path, rows(*((k, "a") for k in range(10))))
    assert dataflow.batch_sizing is not None
    changes = toggled(99)
    upper = feed(running, 2, changes)
    running.merge_times(2, 92)
    first = steps(running, 3)
    assert first == [4]
    assert running.frontier == 96, "the merged times and 92, which are one, and three more"
    steps(running, upper)
    assert running.exact_from == 92, "a server that begins anew does not know of merged times"
    index = running.indexes[id_("u3")].rows
    keys = set(range(10))
    for time, (changed, diff) in enumerate(changes, 2):
        keys = keys.union(changed) if diff > 0 else keys.difference(changed)
        if time >= 92:
            assert contents(index.scan(time)) == numbered(keys), time
    before = contents(index.scan(91))
    assert before == numbered(set(range(10))), "no time in between has got changes"


def test_subscribers_get_each_time(engine: FlowEngine, tmp_path: Path) -> None:
    running, _ = hydrated(engine, NUMBERED, tmp_path, rows((1, "a"), (2, "a")))
    running.subscribers.request(SubscribeIndex(id_("t9"), id_("u3"), 1, 0))
    upper = feed(running, 2, toggled(8))
    running.merge_times(2, 10)
    assert steps(running, upper)[:1] == [4]
    assert running.exact_from == 1
    assert contents(running.indexes[id_("u3")].rows.scan(2)) == numbered({1, 2, 1_000_000})


def test_a_range_that_goes_beyond_a_window_ends_with_it() -> None:
    merged = MergedTimes(((3, 9), (12, 14)))
    times = np.arange(1, 7)
    assert merged.moved(times, 7).tolist() == [1, 2, 6, 6, 6, 6]
    assert merged.moved(np.arange(1, 16), 16).tolist() == [1, 2, *[9] * 7, 10, 11, 14, 14, 14, 15]
    assert [merged.end(upper) for upper in (3, 4, 7, 11, 13, 20)] == [0, 3, 6, 9, 12, 14]
    assert merged.beyond(9).ranges == ((12, 14),)
    assert merged.with_range(3, 11).ranges == ((12, 14), (3, 11))
