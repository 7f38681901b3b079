"""A dataflow on a replica outputs each window of its updates once."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from time import process_time

import pyarrow as pa
import pytest

from foreshore.compute.batch_sizing import BatchSizing
from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Dataflow
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.inputs import Contents, with_times
from foreshore.compute.linear_dataflow import LinearDataflow, LinearFirst
from foreshore.compute.output import Output
from foreshore.compute.protocol import DataflowDescription, InputSnapshot
from foreshore.compute.replica.dataflow import DataflowState
from foreshore.compute.replica.queues import ImportQueue, Part
from foreshore.errors import OutOfMemory
from foreshore.expr.ir import Column, Join, Reduce, count_all
from foreshore.ids import GlobalId
from foreshore.storage.blob import FileBlob
from foreshore.storage.local_files import LocalFiles
from foreshore.types import INT4
from foreshore.update import encode_schema
from tests.compute.runtime.harness import KV_SCHEMA, contents, id_, index_on, rows, table

U1 = id_("u1")


class FailingOnce(LinearFirst):
    """An engine whose dataflows fail at their first step."""

    def create(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> Dataflow:
        dataflow = super().create(description, schemas)
        assert isinstance(dataflow, LinearDataflow)
        step = dataflow.step
        failed: list[bool] = []

        def failing(lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> Output:
            if not failed:
                failed.append(True)
                raise OSError("no more threads")
            return step(lower, upper, deltas)

        dataflow.step = failing  # type: ignore[method-assign]
        return dataflow


@pytest.mark.parametrize("compacted", [None, 5])
def test_history_may_be_compacted_before_hydration(tmp_path: Path, compacted: int | None) -> None:
    (get,) = table("u1")
    counts = Reduce(get, (Column(0, INT4),), (count_all(),))
    exports = (index_on("u3", 0, of=counts),)
    description = DataflowDescription(id_("u2"), counts, (U1,), exports, 1)
    snapshot = InputSnapshot(U1, 1, 2, (), 1, encode_schema(KV_SCHEMA))
    for engine in (FlowEngine(DuckDbEngine()), DuckDbEngine()):
        files = LocalFiles(FileBlob(tmp_path), tmp_path)
        tail = (with_times(rows((1, "a")), 1),)
        running = DataflowState(description, {U1: Contents(snapshot, KV_SCHEMA, tail, files)}, {})
        if compacted is not None:
            running.allow_compaction(id_("u3"), compacted)
        running.hydrate(engine)
        for lower, upper, row in ((2, 4, (2, "b")), (4, 9, (3, "c"))):
            running.queues[U1].feed(lower, upper, with_times(rows(row), upper - 1))
            running.begin_step()
            running.step()
        found = running.indexes[id_("u3")].rows.scan(8)
        assert contents(found) == Counter({(1, 1): 1, (2, 1): 1, (3, 1): 1})


def test_window_without_updates_advances_an_index(tmp_path: Path) -> None:
    (get,) = table("u1")
    counts = Reduce(get, (Column(0, INT4),), (count_all(),))
    exports = (index_on("u3", 0, of=counts),)
    description = DataflowDescription(id_("u2"), counts, (U1,), exports, 1)
    snapshot = InputSnapshot(U1, 1, 2, (), 1, encode_schema(KV_SCHEMA))
    files = LocalFiles(FileBlob(tmp_path), tmp_path)
    tail = (with_times(rows((1, "a")), 1),)
    running = DataflowState(description, {U1: Contents(snapshot, KV_SCHEMA, tail, files)}, {})
    running.hydrate(FlowEngine(DuckDbEngine()))
    running.queues[U1].feed(2, 4, None)
    running.begin_step()
    running.step()
    assert contents(running.indexes[id_("u3")].rows.scan(3)) == Counter({(1, 1): 1})


def test_pending_retry_skips_no_updates(tmp_path: Path) -> None:
    (get,) = table("u1")
    description = DataflowDescription(id_("u2"), get, (U1,), (index_on("u3", 0, of=get),), 1)
    snapshot = InputSnapshot(U1, 1, 2, (), 1, encode_schema(KV_SCHEMA))
    tail = (with_times(rows((1, "a")), 1),)
    imports = {U1: Contents(snapshot, KV_SCHEMA, tail, LocalFiles(FileBlob(tmp_path), tmp_path))}
    running = DataflowState(description, imports, {})
    running.hydrate(FailingOnce(DuckDbEngine()))
    running.queues[U1].feed(2, 4, with_times(rows((2, "b")), 3))
    running.begin_step()
    with pytest.raises(OSError, match="no more threads"):
        running.step()
    running.queues[U1].feed(4, 9, None)  # time goes on
    assert not running.progress(9)
    running.begin_step()
    running.step()
    assert running.frontier == 4
    assert running.progress(9)
    index = running.indexes[id_("u3")].rows
    assert contents(index.scan(2)) == Counter({(1, "a"): 1})
    assert contents(index.scan(8)) == Counter({(1, "a"): 1, (2, "b"): 1})


@pytest.mark.parametrize("at", ["hydration", "a step"])
def test_work_before_failed_insertion_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    (get,) = table("u1")
    exports = (index_on("u3", 0, of=get), index_on("u4", 1, of=get))
    description = DataflowDescription(id_("u2"), get, (U1,), exports, 1)
    snapshot = InputSnapshot(U1, 1, 2, (), 1, encode_schema(KV_SCHEMA))
    tail = (with_times(rows((1, "a")), 1),)
    imports = {U1: Contents(snapshot, KV_SCHEMA, tail, LocalFiles(FileBlob(tmp_path), tmp_path))}
    running = DataflowState(description, imports, {})
    engine = LinearFirst(DuckDbEngine())
    last = running.indexes[id_("u4")].rows
    insert, left = last.insert_output, [1 if at == "hydration" else 2]

    def failing(output: Output, upper: int) -> None:
        left[0] -= 1
        if not left[0]:
            raise MemoryError("no more memory")
        insert(output, upper)

    monkeypatch.setattr(last, "insert_output", failing)
    if at == "hydration":
        with pytest.raises(MemoryError):
            running.hydrate(engine)
    running.hydrate(engine)
    running.queues[U1].feed(2, 4, with_times(rows((2, "b")), 3))
    running.begin_step()
    if at == "a step":
        assert running._dataflow is not None
        steps: list[int] = []
        step = running._dataflow.step

        def counted(lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> Output:
            steps.append(upper)
            return step(lower, upper, deltas)

        monkeypatch.setattr(running._dataflow, "step", counted)
        with pytest.raises(MemoryError):
            running.step()
        running.step()
        assert len(steps) == 1
    else:
        running.step()
    for index in running.indexes.values():
        assert contents(index.rows.scan(3)) == Counter({(1, "a"): 1, (2, "b"): 1})


def joined(imports: Mapping[GlobalId, Contents]) -> DataflowState:
    """Return a hydrated dataflow of an index on u1 joined with itself on the key."""
    (get,) = table("u1")
    relation = Join((get, get), ((Column(0, INT4), Column(2, INT4)),))
    description = DataflowDescription(
        id_("u2"), relation, (U1,), (index_on("u3", 0, of=relation),), 1
    )
    running = DataflowState(description, imports, {})
    running.begin_hydration()
    running.hydrate(LinearFirst(DuckDbEngine()))
    return running


def test_windows_respect_batch_size(tmp_path: Path) -> None:
    """Updates before hydration, out of order, and later ones, in one part or several."""
    backlog = pa.concat_tables([with_times(rows((t, "b")), t) for t in (9, 3, 7, 3, 4)])
    snapshot = InputSnapshot(U1, 1, 10, (), 2, encode_schema(KV_SCHEMA))
    files = LocalFiles(FileBlob(tmp_path), tmp_path)
    tail = (with_times(rows((0, "a")), 1), backlog)
    running = joined({U1: Contents(snapshot, KV_SCHEMA, tail, files)})
    assert running._dataflow is not None
    running._dataflow.batch_sizing = batch_sizing = BatchSizing(2, seconds=60)
    batch_sizing.stepped = lambda *_: None  # type: ignore[method-assign]
    later = pa.concat_tables([with_times(rows((t, "c")), t) for t in (14, 11, 12)])
    running.queues[U1].feed(10, 15, later)
    running.queues[U1].feed(15, 21, with_times(rows((20, "d")), 20))
    uppers = []
    while running.frontier < 21:
        running.begin_step()
        running.step()
        uppers.append(running.frontier)
    assert uppers == [7, 11, 14, 21]  # 3, 4; 7, 9; 11, 12; 14, 20
    index = running.indexes[id_("u3")].rows
    keys = {1: {0: 1}, 3: {3: 4}, 4: {4: 1}, 7: {7: 1}, 9: {9: 1}}
    keys |= {t: {t: 1} for t in (11, 12, 14, 20)}
    wanted: Counter[int] = Counter()
    for time in range(1, 21):
        wanted.update(keys.get(time, {}))
        found: Counter[int] = Counter()
        for (key, *_), count in contents(index.scan(time)).items():
            found[key] += count
        assert found == wanted, time


def test_window_cost_is_independent_of_backlog() -> None:
    count, most = 200_000, 16
    queue = ImportQueue(count)
    parts = [with_times(rows((t, "b")), t) for t in range(1_000)]
    times = pa.array(range(1_000, count))
    many = with_times(pa.table([times.cast(pa.int32()), times.cast(pa.string())], KV_SCHEMA), 0)
    place = many.num_columns - 2
    waiting = pa.concat_tables([*parts, many.set_column(place, many.schema[place], times)])
    queue.precede(Part.ordered(0, waiting))
    started = process_time()
    for lower in range(0, 1_000 * most, most):
        found = queue.times(count, most + 1)
        assert [t for each in found for t in each] == list(range(lower, lower + most + 1))
        assert [taken.num_rows for taken in queue.take(lower + most)] == [most]
    assert process_time() - started < 5


@pytest.mark.parametrize("at", ["hydration", "a step"])
def test_window_of_several_imports_is_returned_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    relation = Join(table("u1", "u2"), ())
    ids = (id_("u1"), id_("u2"))
    exports = (index_on("u3", 0, of=relation),)
    schema = encode_schema(KV_SCHEMA)
    files = LocalFiles(FileBlob(tmp_path), tmp_path)
    imports = {
        id: Contents(
            InputSnapshot(id, 1, 4, (), 2, schema),
            KV_SCHEMA,
            (with_times(rows((n, "a")), 1), with_times(rows((n + 10, "b")), 3)),
            files,
        )
        for n, id in enumerate(ids)
    }
    running = DataflowState(DataflowDescription(id_("u4"), relation, ids, exports, 1), imports, {})
    engine = LinearFirst(DuckDbEngine())

    def failing_once(lower: int, updates: pa.Table) -> Part:
        made.append(ordered(lower, updates))
        if len(made) == 2:
            raise MemoryError("no more memory")
        return made[-1]

    made: list[Part] = []
    ordered = Part.ordered
    if at == "hydration":
        monkeypatch.setattr(Part, "ordered", failing_once)
        with pytest.raises(MemoryError):
            running.hydrate(engine)
    running.hydrate(engine)
    running.begin_step()
    if at == "a step":
        assert running._dataflow is not None
        step = running._dataflow.step

        def greedy(lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> Output:
            monkeypatch.setattr(running._dataflow, "step", step)
            raise OutOfMemory("so many times")

        monkeypatch.setattr(running._dataflow, "step", greedy)
        monkeypatch.setattr(Part, "ordered", failing_once)
        with pytest.raises(MemoryError):
            running.step()
        running.begin_step()
    running.step()
    index = running.indexes[id_("u3")].rows
    wanted = Counter(
        {(a, x, b, y): 1 for a, x in ((0, "a"), (10, "b")) for b, y in ((1, "a"), (11, "b"))}
    )
    assert running.frontier == 4
    assert contents(index.scan(3)) == wanted
    for queue in running.queues.values():
        queue.feed(4, 5, None)
    assert running.progress(5)  # there are no updates


def test_window_exceeding_memory_is_halved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = InputSnapshot(U1, 1, 2, (), 1, encode_schema(KV_SCHEMA))
    files = LocalFiles(FileBlob(tmp_path), tmp_path)
    tail = (with_times(rows((0, "a")), 1),)
    running = joined({U1: Contents(snapshot, KV_SCHEMA, tail, files)})
    dataflow = running._dataflow
    assert dataflow is not None
    step, room = dataflow.step, 3

    def greedy(lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> Output:
        if upper - lower > room:
            raise OutOfMemory("so many times")
        return step(lower, upper, deltas)

    monkeypatch.setattr(dataflow, "step", greedy)
    for time in range(2, 12):
        running.queues[U1].feed(time, time + 1, with_times(rows((time, "b")), time))
    given_back = 0
    while running.frontier < 12:
        running.begin_step()
        if running.step() is None:
            given_back += 1
            assert not running.progress(12)
    assert given_back == 2  # of 10 times and of 5
    index = running.indexes[id_("u3")].rows
    assert {key for key, *_ in contents(index.scan(11))} == {0, *range(2, 12)}
    room = 0  # not for one time alone
    running.queues[U1].feed(12, 13, with_times(rows((12, "b")), 12))
    for _ in range(2):
        running.begin_step()
        with pytest.raises(OutOfMemory):
            running.step()
