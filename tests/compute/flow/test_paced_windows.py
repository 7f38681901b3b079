"""A step over window functions, lists or joins has few times if each of them costs much."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.flow.batch import Batch
from foreshore.compute.flow.dataflow import FlowDataflow
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.flow.operators.operator import Window as Times
from foreshore.compute.flow.spine import Spine
from foreshore.compute.inputs import Contents, with_times
from foreshore.compute.output import Output
from foreshore.compute.protocol import DataflowDescription, InputSnapshot
from foreshore.compute.replica import dataflow as replica_dataflow
from foreshore.compute.replica.dataflow import DataflowState
from foreshore.compute.replica.scheduler import step_and_merge
from foreshore.errors import OutOfMemory
from foreshore.expr.ir import (
    Aggregate,
    Column,
    Join,
    OrderKey,
    Reduce,
    Relation,
    Window,
    WindowFunction,
)
from foreshore.ids import GlobalId
from foreshore.storage.blob import FileBlob
from foreshore.storage.local_files import LocalFiles
from foreshore.types import INT4, INT8, TEXT, array_of
from foreshore.update import encode_schema
from tests.compute.runtime.harness import KV_SCHEMA, contents, id_, index_on, rows, table
from tests.compute.without_bulk import WithoutBulk

U1 = id_("u1")
LAST = 1_000_000  # a key after all others: its row is the first, and moves all others
(GET,) = table("u1")
DESCENDING = (OrderKey(Column(0, INT4), True),)
NUMBERED = Window(GET, (), DESCENDING, (WindowFunction("row_number", (), INT8),))
LIST = Aggregate("array_agg", (Column(0, INT4),), array_of(INT4), order_by=DESCENDING)


@pytest.fixture(scope="module")
def engine() -> Iterator[FlowEngine]:
    """Yield one engine for all tests."""
    bulk = DuckDbEngine(threads=1)
    yield WithoutBulk(bulk)
    bulk.close()


def hydrated(
    engine: FlowEngine, relation: Relation, path: Path, first: pa.Table
) -> tuple[DataflowState, FlowDataflow]:
    """Return a dataflow with an index on the first column, hydrated as of time 1."""
    files = LocalFiles(FileBlob(path), path)
    snapshot = InputSnapshot(U1, 1, 2, (), first.num_rows, encode_schema(KV_SCHEMA))
    imports = {U1: Contents(snapshot, KV_SCHEMA, (with_times(first, 1),), files)}
    exports = (index_on("u3", 0, of=relation),)
    running = DataflowState(
        DataflowDescription(id_("u2"), relation, (U1,), exports, 1), imports, {}
    )
    running.begin_hydration()
    running.hydrate(engine)
    assert isinstance(running._dataflow, FlowDataflow)
    return running, running._dataflow


def feed(running: DataflowState, lower: int, changes: list[tuple[range, int]]) -> int:
    """Insert or delete keys at each time from `lower` on; return the time after the last."""
    parts = []
    for time, (keys, diff) in enumerate(changes, lower):
        part = with_times(rows(*((key, "a") for key in keys)), time)
        diffs = pa.array([diff] * len(keys), pa.int64())
        parts.append(part.set_column(part.num_columns - 1, part.schema[-1], diffs))
    running.queues[U1].feed(lower, lower + len(changes), pa.concat_tables(parts))
    return lower + len(changes)


def toggled(times: int) -> list[tuple[range, int]]:
    """Return changes that insert and delete the row that is first in the order."""
    return [(range(LAST, LAST + 1), 1 - 2 * (i % 2)) for i in range(times)]


def numbered(keys: set[int]) -> Counter[tuple[object, ...]]:
    ordered = sorted(keys, reverse=True)
    return Counter({(key, "a", number): 1 for number, key in enumerate(ordered, 1)})


def steps(running: DataflowState, upper: int) -> list[int | None]:
    """Step until `upper`; return the number of times of each step."""
    found = []
    while running.frontier < upper:
        running.begin_step()
        assert running._window is not None
        found.append(running._window.times)
        running.step()
    return found


def test_times_of_a_step_follow_its_cost(
    engine: FlowEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A changed row costs 0.1 ms: first a time changes some 10 rows, then 1,500, then 10."""
    running, dataflow = hydrated(engine, NUMBERED, tmp_path, rows(*((k, "a") for k in range(10))))
    now, step = 0.0, dataflow.step

    def costly(lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> Output:
        nonlocal now
        output = step(lower, upper, deltas)
        now += 0.001 + 1e-4 * output.rows.num_rows
        return output

    monkeypatch.setattr(dataflow, "step", costly)
    monkeypatch.setattr(replica_dataflow, "time", SimpleNamespace(monotonic=lambda: now))
    many = range(100, 1_600)
    changes = [*toggled(100), (many, 1), *toggled(40), (many, -1), *toggled(150)]
    phases = {"few": 102, "many": 143, "few again": 2 + len(changes)}
    feed(running, 2, changes)
    sizes: dict[str, list[int | None]] = {name: [] for name in phases}
    keys, index = set(range(10)), running.indexes[id_("u3")].rows
    for name, end in phases.items():
        while running.frontier < end:
            first = running.frontier
            sizes[name] += steps(running, first + 1)
            for time in range(first, running.frontier):
                changed, diff = changes[time - 2]
                keys = keys.union(changed) if diff > 0 else keys.difference(changed)
                assert contents(index.scan(time)) == numbered(keys), time
    assert sizes["few"][:3] == [4, 8, 16]
    assert max(size or 0 for size in sizes["many"][2:]) <= 8, "now and then more are tried"
    assert sizes["many"][-1] == 4
    assert max(size or 0 for size in sizes["few again"]) >= 16
    assert max(size or 0 for each in sizes.values() for size in each) <= 64


def test_step_that_exceeds_memory_is_divided(
    engine: FlowEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of the step that failed remains, also where rows of shared collections are joined."""
    joined = Join((GET, GET), ((Column(0, INT4), Column(2, INT4)),))
    relation = Window(joined, (), DESCENDING, (WindowFunction("row_number", (), INT8),))
    running, dataflow = hydrated(engine, relation, tmp_path, rows((1, "a"), (2, "a")))
    window, most = dataflow._operators[dataflow._rows], 2
    stepped = window.step

    def greedy(within: Times, inputs: Sequence[Batch]) -> Batch:
        output = stepped(within, inputs)
        if within.upper - within.lower > most:
            raise OutOfMemory("so many times")
        return output

    monkeypatch.setattr(window, "step", greedy)
    upper = feed(running, 2, [(range(key, key + 1), 1) for key in range(10, 22)])
    assert steps(running, upper)[:2] == [4, 2]
    index = running.indexes[id_("u3")].rows
    for time in range(2, upper):
        ordered = sorted({1, 2, *range(10, 9 + time)}, reverse=True)
        wanted = Counter({(key, "a", key, "a", n): 1 for n, key in enumerate(ordered, 1)})
        assert contents(index.scan(time)) == wanted, time


def test_join_of_totals_takes_a_backlog_in_parts(engine: FlowEngine, tmp_path: Path) -> None:
    """Both totals change at each time, so a step of n times would join n rows with n rows."""
    totals = Reduce(GET, (), (Aggregate("count", (), INT8),))
    greatest = Reduce(GET, (), (Aggregate("max", (Column(0, INT4),), INT4),))
    relation = Join((totals, greatest), ())
    running, _ = hydrated(engine, relation, tmp_path, rows((1, "a")))
    upper = feed(running, 2, [(range(key, key + 1), 1) for key in range(2, 402)])
    sizes = steps(running, upper)
    assert sizes == [*[64] * 6, 16], "however quick a step is"
    index = running.indexes[id_("u3")].rows
    for time in range(2, upper):
        assert contents(index.scan(time)) == Counter({(time, time): 1}), time


def test_backlog_does_not_keep_runs_from_being_merged(engine: FlowEngine, tmp_path: Path) -> None:
    totals = Reduce(GET, (), (Aggregate("count", (), INT8),))
    greatest = Reduce(GET, (), (Aggregate("max", (Column(0, INT4),), INT4),))
    relation = Join((totals, greatest), ())
    running, _ = hydrated(engine, relation, tmp_path, rows((1, "a")))
    upper = feed(running, 2, [(range(key, key + 1), 1) for key in range(2, 4002)])
    most = 0
    while running.frontier < upper:
        running.begin_step()
        step_and_merge(running)
        sizes = [each.records for each in running.arrangement_status() if each.name == "rows"]
        most = max(most, *sizes)
    assert most <= 2048, "each time adds two updates, of which one row remains"


def test_versions_that_were_not_merged_cancel_out_at_one_time(
    engine: FlowEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step of one time looks up what 600 steps have left of each of three totals."""
    aggregates = (
        Aggregate("count", (), INT8),
        Aggregate("sum", (Column(0, INT4),), INT8),
        Aggregate("min", (Column(0, INT4),), INT4),
    )
    relation = Join(tuple(Reduce(GET, (), (each,)) for each in aggregates), ())
    running, _ = hydrated(engine, relation, tmp_path, rows((0, "a")))
    most, joined = 0, Spine.joined

    def counted(spine: Spine, *args: Any, **options: Any) -> Batch:
        nonlocal most
        found = joined(spine, *args, **options)
        most = max(most, len(found))
        return found

    monkeypatch.setattr(Spine, "joined", counted)
    for time in range(2, 602):
        feed(running, time, [(range(-time, 1 - time), 1)])
        running.begin_step()
        running.step()
        assert running.frontier == time + 1
    assert most < 10_000, "all versions of two totals would be a million pairs"
    index = running.indexes[id_("u3")].rows
    assert contents(index.scan(601)) == Counter({(601, 1 - sum(range(602)), -601): 1})


def test_only_plans_that_multiply_are_paced(engine: FlowEngine, tmp_path: Path) -> None:
    key = (Column(1, TEXT),)
    plans: dict[str, Relation] = {
        "window": NUMBERED,
        "list": Reduce(GET, key, (LIST,)),
        "sum": Reduce(GET, key, (Aggregate("count", (), INT8),)),
        "rows": GET,
        "join": Join((GET, GET), ((Column(0, INT4), Column(2, INT4)),)),
    }
    paced = set()
    for name, plan in plans.items():
        (tmp_path / name).mkdir()
        _, dataflow = hydrated(engine, plan, tmp_path / name, rows((1, "a")))
        if dataflow.batch_sizing is not None:
            paced.add(name)
    assert paced == {"window", "list", "join"}
