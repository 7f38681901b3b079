"""Temporal filters, maintained by each engine, are exact at every time."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.delta.temporal import Stage, TemporalDataflow
from foreshore.compute.engine import Input
from foreshore.compute.flow.dataflow import FlowDataflow
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.flow.unsupported import Unsupported
from foreshore.compute.protocol import DataflowDescription
from foreshore.expr.ir import Get, TemporalFilter
from foreshore.expr.temporal import has_temporal_filter
from foreshore.ids import GlobalId
from foreshore.types import INT4, MZ_TIMESTAMP, ColumnType
from tests.compute.cases import START, Case, check_maintained, rows_of, schema_of, updates
from tests.compute.without_bulk import WithoutBulk
from tests.effort import examples
from tests.model import Row
from tests.relations import histories, lowered_relations

EVENTS = Get(
    GlobalId("u9"),
    (ColumnType(INT4, False), ColumnType(MZ_TIMESTAMP), ColumnType(MZ_TIMESTAMP, False)),
)
VISIBLE = TemporalFilter(EVENTS, (("ge", 1), ("lt", 2)))


@pytest.fixture(scope="module")
def duckdb() -> Iterator[DuckDbEngine]:
    """Yield one engine for all cases."""
    engine = DuckDbEngine(threads=1)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def flow(duckdb: DuckDbEngine) -> FlowEngine:
    """Return one engine for all cases."""
    return WithoutBulk(duckdb)


@st.composite
def cases(draw: st.DrawFn, failing: bool = False) -> Case:
    """Draw a plan with temporal filters, six versions of the tables, and cuts."""
    times = range(START - 1, START + 7)
    relation = draw(
        lowered_relations(draw(st.integers(1, 6)), failing, times).filter(has_temporal_filter)
    )
    versions = draw(histories(3))
    history = [draw(st.sampled_from(versions)) for _ in range(6)]
    return Case(relation, history, frozenset(draw(st.sets(st.integers(2, 5)))))


@settings(max_examples=examples(150))
@given(cases())
def test_temporal_filters_of_operators_are_exact(flow: FlowEngine, case: Case) -> None:
    try:
        check_maintained(flow, case)
    except Unsupported:
        reject()


@settings(max_examples=examples(100))
@given(cases(failing=True))
def test_errors_leave_with_their_rows(flow: FlowEngine, case: Case) -> None:
    try:
        check_maintained(flow, case)
    except Unsupported:
        reject()


@settings(max_examples=examples(40))
@given(cases())
def test_temporal_filters_on_duckdb_are_exact(duckdb: DuckDbEngine, case: Case) -> None:
    check_maintained(duckdb, case, counts_errors=False)


@settings(max_examples=examples(25))
@given(cases(failing=True))
def test_errors_on_duckdb_leave_with_their_rows(duckdb: DuckDbEngine, case: Case) -> None:
    check_maintained(duckdb, case, counts_errors=False)


class Events:
    """A dataflow of an engine over events, and its output so far."""

    def __init__(self, engine: FlowEngine | DuckDbEngine, rows: list[tuple[Row, int]]) -> None:
        description = DataflowDescription(GlobalId("t1"), VISIBLE, (EVENTS.id,), (), START)
        schema = schema_of(EVENTS.columns)
        self.dataflow = engine.create(description, {EVENTS.id: schema})
        tail = updates(EVENTS.columns, [(row, START, n) for row, n in rows])
        self.frontier = START + 1
        self.changes = [self.dataflow.hydrate({EVENTS.id: Input(schema, (), (tail,))}).rows]

    def step(self, upper: int, rows: Sequence[tuple[Row, int, int]] = ()) -> None:
        """Advance to `upper` with updates of the table."""
        changed = {EVENTS.id: updates(EVENTS.columns, rows)} if rows else {}
        self.changes.append(self.dataflow.step(self.frontier, upper, changed).rows)
        self.frontier = upper

    def there(self, time: int) -> set[int]:
        """Return the numbers of the rows that are there at a time."""
        rows = rows_of(pa.concat_tables(self.changes), EVENTS.columns, time)
        assert all(count == 1 for count in rows.values())
        return {row[0] for row in rows}

    def waiting(self) -> int:
        """Return how many updates wait for their times."""
        sizes = {size.name: size.records for size in self.dataflow.sizes()}
        return sizes.get("scheduled rows", 0)


@pytest.fixture(params=["flow", "duckdb"])
def engine(request: pytest.FixtureRequest) -> FlowEngine | DuckDbEngine:
    """Return each engine."""
    found: FlowEngine | DuckDbEngine = request.getfixturevalue(request.param)
    return found


def test_what_is_scheduled_is_due_although_no_input_changes(
    engine: FlowEngine | DuckDbEngine,
) -> None:
    events = Events(engine, [((1, START - 5, START + 3), 1), ((2, START + 5, START + 9), 1)])
    dataflow = events.dataflow
    assert [dataflow.due(START + i) for i in (3, 4, 5, 6, 9, 10)] == [0, 1, 1, 2, 2, 3]
    dataflow.advanced(START + 3)
    events.frontier = START + 3
    events.step(START + 20)
    assert [events.there(START + i) for i in (0, 2, 3, 4, 5, 8, 9)] == [
        {1}, {1}, set(), set(), {2}, {2}, set(),
    ]  # fmt: skip
    assert dataflow.due(START + 1000) == 0


def test_rows_of_the_past_never_enter(engine: FlowEngine | DuckDbEngine) -> None:
    events = Events(engine, [((1, START - 5, START), 1)])
    events.step(START + 9, [((2, None, START + 50), START + 2, 1), ((3, 0, START), START + 2, 1)])
    assert all(len(each) == 0 for each in events.changes)
    assert events.waiting() == 0


def test_row_deleted_before_its_end_leaves_once(engine: FlowEngine | DuckDbEngine) -> None:
    row = (1, START, START + 50)
    events = Events(engine, [(row, 1)])
    events.step(START + 10, [(row, START + 5, -1)])
    assert (events.there(START + 4), events.there(START + 5)) == ({1}, set())
    while events.dataflow.maintain():
        pass
    events.step(START + 60)
    assert events.there(START + 59) == set()


def test_opposite_updates_that_wait_are_forgotten(flow: FlowEngine) -> None:
    events = Events(flow, [((i, START, START + 1000), 1) for i in range(50)])
    for i in range(50):
        events.step(START + 2 + i, [((i, START, START + 1000), START + 1 + i, -1)])
        while events.dataflow.maintain():
            pass
    assert events.waiting() < 50


def test_failed_step_leaves_what_waits(flow: FlowEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    events = Events(flow, [((1, START, START + 3), 1)])
    with monkeypatch.context() as patch:
        patch.setattr(FlowDataflow, "_consolidated", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            events.step(START + 5)
    assert events.dataflow.due(START + 5) == 1
    events.step(START + 5)
    assert (events.there(START + 2), events.there(START + 3)) == ({1}, set())


def test_failed_stage_is_repeated_alone(
    duckdb: DuckDbEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stages before it have made their step, and must not make it again."""
    events = Events(duckdb, [((1, START, START + 3), 1)])
    assert isinstance(events.dataflow, TemporalDataflow)
    with monkeypatch.context() as patch:
        patch.setattr(Stage, "filtered", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            events.step(START + 5, [((2, START, START + 4), START + 2, 1)])
    events.step(START + 5, [((2, START, START + 4), START + 2, 1)])
    assert [events.there(START + i) for i in (1, 2, 3, 4)] == [{1}, {1, 2}, {2}, set()]
