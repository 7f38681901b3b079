"""Dataflows of one engine share the collections that they read, each at times of its own."""

from collections.abc import Iterator, Sequence
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Input, Output
from foreshore.compute.flow import collection, hydration, spine
from foreshore.compute.flow.collection import Collections
from foreshore.compute.flow.dataflow import FlowDataflow
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.unsupported import Unsupported
from foreshore.compute.protocol import DataflowDescription
from foreshore.errors import OutOfMemory
from foreshore.expr.ir import Filter, Join, Project, Relation, columns_of, sources_of
from foreshore.ids import GlobalId
from foreshore.types import TEXT, ColumnType
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
                    patch.setattr(FlowDataflow, "_table", _exhausted)
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
