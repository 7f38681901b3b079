"""Dataflows of one engine share the collections that they read, each at times of its own."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Event

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Input
from foreshore.compute.flow import collection, hydration, spine
from foreshore.compute.flow.batch import Batch
from foreshore.compute.flow.build import columns_imported
from foreshore.compute.flow.collection import Collection, Collections, Import
from foreshore.compute.flow.dataflow import FlowDataflow
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.program import Context
from foreshore.compute.flow.unsupported import Unsupported
from foreshore.compute.output import Output
from foreshore.compute.protocol import DataflowDescription
from foreshore.errors import OutOfMemory
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Aggregate,
    Column,
    Filter,
    Join,
    LetRec,
    Literal,
    LocalGet,
    Map,
    Project,
    Reduce,
    Relation,
    Union,
)
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from foreshore.types import BOOL, INT4, INT8, TEXT, ColumnType
from foreshore.update import update_schema
from tests.compute.cases import (
    START,
    Case,
    Contents,
    columns_by_id,
    deltas,
    difference,
    random_history,
    rows_of,
    schema_of,
    updates,
)
from tests.compute.plans import PLANS, U1, U2, column
from tests.effort import examples
from tests.model import evaluate
from tests.relations import lowered_relations

TIMES = 12
NONE = np.zeros(1, np.int64)
JOINS: Sequence[Relation] = [
    Project(Join((U1, U2), ((column(0), column(len(U1.columns))),)), (1,)),
    Project(Join((U2, U2), ((column(0), column(2)),)), (0, 1)),
    Project(Join((U2, U2), ((column(1), column(3)),)), (0, 3)),
    *(plan for plan in PLANS.values() if isinstance(plan, Join | Filter | Project)),
]


@pytest.fixture(scope="module")
def bulk() -> Iterator[DuckDbEngine]:
    """Yield an engine for hydration."""
    engine = DuckDbEngine(threads=1)
    yield engine
    engine.close()


class Reader:
    """A dataflow over a history that it began to read at some position."""

    def __init__(
        self,
        relation: Relation,
        history: Sequence[Contents],
        begin: int,
        bulk: DuckDbEngine,
        collections: Collections,
    ) -> None:
        self.case = Case(relation, history)
        self.begin = begin
        self.reached = begin + 1
        sources = tuple(sorted(sources_of(relation)))
        description = DataflowDescription(GlobalId("t1"), relation, sources, (), START + begin)
        self.dataflow = FlowDataflow(description, bulk, collections)
        try:
            self.outputs: list[Output] = [self.dataflow.hydrate(self._inputs())]
        except BaseException:
            self.dataflow.close()
            raise

    def _inputs(self) -> dict[GlobalId, Input]:
        """Return all updates until the beginning, each at its time, and some later ones."""
        inputs = {}
        for id, columns in columns_by_id(self.case.relation).items():
            entries = [
                (row, START + i, count)
                for i in range(min(self.begin + 2, TIMES))
                for row, count in difference(
                    self.case.history[i - 1][id] if i else type(self.case.history[0][id])(),
                    self.case.history[i][id],
                ).items()
            ]
            inputs[id] = Input(schema_of(columns), (), (updates(columns, entries),))
        return inputs

    def step(self, beyond: int, *, fails: bool) -> None:
        """Go on to a position, at the second attempt if it fails."""
        window = deltas(self.case, self.reached, beyond)
        if not any(table.num_rows for table in window.values()):
            self.dataflow.advanced(START + beyond)
        else:
            if fails:
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(FlowDataflow, "_consolidated", _exhausted)
                    with pytest.raises(OutOfMemory):
                        self.dataflow.step(START + self.reached, START + beyond, window)
            self.outputs.append(self.dataflow.step(START + self.reached, START + beyond, window))
        self.reached = beyond

    def check(self) -> None:
        """Assert that the output is exact at each time."""
        rows = pa.concat_tables([output.rows for output in self.outputs])
        errors = pa.concat_tables([output.errors for output in self.outputs])
        relation = self.case.relation
        for i in range(self.begin, self.reached):
            wanted, failures = evaluate(relation, self.case.history[i])
            assert rows_of(rows, columns_of(relation), START + i) == wanted, f"rows at {i}"
            assert rows_of(errors, (ColumnType(TEXT),), START + i) == {
                (text,): count for text, count in failures.items()
            }


def _exhausted(*_: object) -> None:
    raise OutOfMemory("no memory")


@pytest.mark.parametrize("bulk_rows", [0, 1_000], ids=["hydrated in bulk", "by operators"])
@settings(max_examples=examples(60))
@given(st.randoms(use_true_random=False), st.data())
def test_sharing_dataflows_are_exact_at_every_time(
    bulk: DuckDbEngine, bulk_rows: int, random: Random, data: st.DataObject
) -> None:
    history: list[Contents] = []
    while len(history) < TIMES:  # some tables stay as they are
        new = random_history(random, times=1)[0]
        old = history[-1] if history else new
        history.append({id: random.choice((old[id], new[id])) for id in new})
    plans = [*JOINS, *(data.draw(lowered_relations(size=4)) for _ in range(2))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collection, "KEPT_TIMES", random.choice((0, 2, 100)))
        patch.setattr(hydration, "BULK_ROWS", bulk_rows)
        patch.setattr(spine, "TAIL_ROWS", random.choice((3, 1 << 14)))
        patch.setattr(spine, "MERGE_BUDGET", 5)
        collections = Collections(Interner(), 1)
        if random.random() < 0.5:
            collections.expect(columns_imported(random.choice(plans)))
        readers: list[Reader] = []
        for _ in range(40):
            act = random.random()
            if act < 0.15 or not readers:
                try:
                    begin = random.randrange(TIMES - 1)
                    plan = random.choice(plans)
                    readers.append(Reader(plan, history, begin, bulk, collections))
                except Unsupported:
                    continue
            elif act < 0.2:
                gone = readers.pop(random.randrange(len(readers)))
                gone.check()
                gone.dataflow.close()
            elif act < 0.4:
                random.choice(readers).dataflow.maintain()
            else:
                reader = random.choice(readers)
                beyond = random.randint(reader.reached, TIMES)
                if beyond > reader.reached:
                    reader.step(beyond, fails=random.random() < 0.2)
        for reader in readers:
            reader.check()
            reader.dataflow.close()
        assert not collections.sizes()


def test_second_reader_reads_nothing_anew(
    bulk: DuckDbEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = random_history(Random(1), times=TIMES)
    collections = Collections(Interner(), 1)
    first = Reader(JOINS[1], history, 0, bulk, collections)
    first.step(6, fails=False)
    monkeypatch.setattr(collection, "read_until", None)
    second = Reader(JOINS[2], history, 5, bulk, collections)
    assert [len(spines) for spines in collections.sizes().values()] == [1]
    first.step(TIMES, fails=False)
    second.step(TIMES, fails=False)
    first.check()
    second.check()


def test_reader_goes_over_to_collection_with_more_columns(bulk: DuckDbEngine) -> None:
    history = random_history(Random(2), times=TIMES)
    collections = Collections(Interner(), 1)
    narrow = Project(Join((U1, U1), ((column(0), column(len(U1.columns))),)), (0,))
    wide = Join((U1, U1), ((column(0), column(len(U1.columns))),))
    first = Reader(narrow, history, 0, bulk, collections)
    second = Reader(wide, history, 2, bulk, collections)
    assert [len(spines) for spines in collections.sizes().values()] == [2]
    first.step(3, fails=False)
    first.step(7, fails=False)
    assert [len(spines) for spines in collections.sizes().values()] == [1]
    second.step(9, fails=False)
    first.step(9, fails=False)
    first.check()
    second.check()


def test_recursion_goes_over_to_collection_with_more_columns(bulk: DuckDbEngine) -> None:
    history = random_history(Random(2), times=TIMES)
    collections = Collections(Interner(), 1)
    key, one = U1.columns[0], Literal(1, INT4)
    pairs = LocalGet(1, (key, ColumnType(INT4)))
    found = Project(Join((pairs, Project(U1, (0,))), ((column(0), column(2)),)), (2, 1))
    begun = Map(Project(U1, (0,)), (one,))
    least = Reduce(
        Union((begun, found)), (Column(0, key.type),), (Aggregate("min", (column(1),), INT4),)
    )
    recursion = LetRec((1,), (pairs.columns,), (least,), pairs)
    first = Reader(recursion, history, 0, bulk, collections)
    second = Reader(
        Join((U1, U1), ((column(0), column(len(U1.columns))),)), history, 2, bulk, collections
    )
    first.step(3, fails=False)
    first.step(7, fails=False)
    assert [len(spines) for spines in collections.sizes().values()] == [1]
    second.step(9, fails=False)
    first.step(9, fails=True)
    first.check()
    second.check()


def test_columns_of_expected_dataflows_are_read_at_once(bulk: DuckDbEngine) -> None:
    history = random_history(Random(2), times=TIMES)
    engine = FlowEngine(bulk)
    narrow = Project(Join((U1, U1), ((column(0), column(len(U1.columns))),)), (0,))
    wide = Join((U1, U1), ((column(0), column(len(U1.columns))),))
    plans: list[Relation] = [narrow, wide, Filter(U2, (Literal(True, BOOL),))]
    engine.expect(
        DataflowDescription(GlobalId(f"t{i}"), plan, (), (), 0) for i, plan in enumerate(plans)
    )
    collections = engine._collections
    first = Reader(narrow, history, 0, bulk, collections)
    first.step(3, fails=False)
    second = Reader(wide, history, 2, bulk, collections)
    assert {id: len(spines) for id, spines in collections.sizes().items()} == {U1.id: 1}
    for reader in (first, second):
        reader.step(9, fails=False)
        reader.check()


def test_failed_windows_of_two_readers_are_told_apart(bulk: DuckDbEngine) -> None:
    history = random_history(Random(3), times=TIMES)
    collections = Collections(Interner(), 1)
    first = Reader(JOINS[1], history, 0, bulk, collections)
    second = Reader(JOINS[2], history, 0, bulk, collections)
    second.step(4, fails=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FlowDataflow, "_consolidated", _exhausted)
        for reader in (first, second):
            window = deltas(reader.case, reader.reached, TIMES)
            with pytest.raises(OutOfMemory):
                reader.dataflow.step(START + reader.reached, START + TIMES, window)
    for reader in (first, second):
        reader.step(TIMES, fails=False)
        reader.check()


def test_altered_columns_are_not_shared(bulk: DuckDbEngine) -> None:
    collections = Collections(Interner(), 1)
    narrow, wide = (ColumnType(INT4, False),), (ColumnType(INT4, True),)
    schema = pa.schema({"a": pa.int32()})
    first = collections.open(GlobalId("u1"), narrow, (0,), 5)
    first.hydrate(Input(schema), 5, Context(collections.interner, 1), bulk)
    second = collections.open(GlobalId("u1"), wide, (0,), 5)
    assert second.collection is not first.collection
    assert second.collection.layout.masks == 1
    assert first.collection.successor is None


def test_window_is_small_only_if_what_it_looks_up_is_indexed(
    bulk: DuckDbEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spine, "TAIL_ROWS", 16)
    monkeypatch.setattr(hydration, "BULK_ROWS", 0)
    relation = Join((U2, U2, U2), ((column(0), column(2)), (column(1), column(4))))
    description = DataflowDescription(GlobalId("t1"), relation, (U2.id,), (), START)
    dataflow = FlowDataflow(description, bulk, Collections(Interner(), 1))
    rows = updates(U2.columns, [((n, n), START, 1) for n in range(40)])
    dataflow.hydrate({U2.id: Input(schema_of(U2.columns), (), (rows,))})
    assert dataflow.small_window([]) > 0
    assert dataflow.small_window([U2.id]) == 0
    changed = updates(U2.columns, [((1, 1), START + 1, 1)])
    dataflow.step(START + 1, START + 2, {U2.id: changed})
    assert dataflow.small_window([U2.id]) > 0
    dataflow.close()


def test_threads_share_a_collection(bulk: DuckDbEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys are added, rows inserted and looked up, and runs merged, each on a thread of its own."""
    monkeypatch.setattr(spine, "TAIL_ROWS", 16)
    monkeypatch.setattr(spine, "UNSORTED", 20)
    monkeypatch.setattr(spine, "MERGE_BUDGET", 64)
    monkeypatch.setattr(collection, "KEPT_TIMES", 0)
    columns = tuple(ColumnType(INT8, False) for _ in range(3))
    schema = pa.schema({name: pa.int64() for name in "abc"})
    for trial in range(examples(200)):
        reader = Collections(Interner(), trial).open(GlobalId("u1"), columns, (0, 1, 2), 0)
        shared = reader.collection
        shared.add_key(np.array([0]))
        reader.hydrate(Input(schema), 0, Context(shared.spine.interner, 1), bulk)
        ended = Event()

        def insert(reader: Import = reader) -> None:
            for time in range(1, 60):
                rows = [pa.array([time * 8 + i, i, time], pa.int64()) for i in range(8)]
                each = [pa.array([row[k].as_py() for row in rows], pa.int64()) for k in range(3)]
                each += [pa.array([time] * 8, pa.int64()), pa.array([1] * 8, pa.int64())]
                table = pa.Table.from_arrays(each, schema=update_schema(schema))
                reader.begin(time, time + 1, table)

        def maintain(reader: Import = reader, ended: Event = ended) -> None:
            while not ended.is_set():
                reader.maintain()

        def add_keys(shared: Collection = shared) -> None:
            for places in ([1], [2], [1, 2]):
                key = shared.add_key(np.array(places))
                wanted = Batch(np.array([[3, 7]])[:, : len(places)], NONE + 0, NONE + 1)
                shared.joined(key, wanted, NONE[:0], np.arange(3), 1000)

        with ThreadPoolExecutor(3) as threads:
            merging = threads.submit(maintain)
            others = [threads.submit(insert), threads.submit(add_keys)]
            for other in others:
                other.result()
            ended.set()
            merging.result()
        for key, places in enumerate(shared.spine.keys):
            for run in shared.spine.runs:
                hashes = run.hashes if key == 0 else run.indexes[key - 1].hashes
                assert len(hashes) == len(run)
            wanted = Batch(np.array([[3, 7]])[:, : len(places)], NONE + 0, NONE + 1)
            found = shared.joined(key, wanted, NONE[:0], np.arange(3), 1000)
            rows = [(t * 8 + i, i, t) for t in range(1, 60) for i in range(8)]
            like = [row for row in rows if [row[p] for p in places] == [3, 7][: len(places)]]
            assert sorted(map(tuple, found.words.tolist())) == sorted(like)
