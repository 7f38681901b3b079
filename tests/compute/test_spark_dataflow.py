"""Plans maintained by Spark are exact at every time; hundreds of cases share a few jobs."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from threading import Timer

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from foreshore.compute.bulk import spark_contents, spark_store
from foreshore.compute.bulk.spark import SparkEngine
from foreshore.compute.bulk.spark_local import LocalSteps
from foreshore.compute.engine import Cancellation, Input
from foreshore.compute.protocol import DataflowDescription
from foreshore.compute.spark.options import SparkOptions
from foreshore.compute.spark.session import stop_spark
from foreshore.errors import DataError, QueryCanceled
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Call,
    FlatMap,
    Get,
    Join,
    Literal,
    Map,
    Reduce,
    Relation,
    TemporalFilter,
    Threshold,
    count_all,
)
from foreshore.expr.ir import Case as CaseWhen
from foreshore.expr.traversal import sources_of
from foreshore.expr.watermarks import final_rows
from foreshore.ids import GlobalId
from foreshore.types import (
    BOOL,
    FLOAT8,
    INT4,
    MZ_TIMESTAMP,
    TIME_OF_DAY,
    TIMESTAMPTZ,
    ColumnType,
)
from tests.compute.cases import (
    START,
    Case,
    check_maintained,
    initial,
    random_history,
    rows_of,
    schema_of,
    updates,
)
from tests.compute.flow.test_auto_cdc import CLAUSES, changing, planned
from tests.compute.flow.test_closing import COLUMNS as STREAM
from tests.compute.flow.test_closing import PLANS as WINDOWED
from tests.compute.flow.test_closing import history as growing_streams
from tests.compute.flow.test_closing import stream
from tests.compute.flow.test_loop import DISTANCES, graphs
from tests.compute.packing import check_packed
from tests.compute.physical import (
    COLUMNS,
    ROWS,
    check_comparisons,
    check_every_type,
    check_paths,
)
from tests.compute.plans import PLANS, U1, column
from tests.compute.spark.restarting import RestartingSpark
from tests.harness import java
from tests.model import evaluate
from tests.relations import lowered_relations

pytestmark = pytest.mark.full

CASES = 25
TAKES = LocalSteps.takes


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkEngine]:
    """Yield one Spark for all cases; skip if there is no Java.

    Its dataflows have buckets, write their tails to files, and are saved and loaded now and then.
    Jobs hydrate them and are half of the statements of steps; DuckDB computes the others.
    """
    java()
    options = SparkOptions(tmp_path_factory.mktemp("spark"), "local[2]", 1024)
    random = Random(2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalSteps, "hydrates", lambda *of: False)
        patch.setattr(LocalSteps, "takes", lambda *of: TAKES(*of) and random.random() < 0.5)
        patch.setattr(spark_contents, "LEAST_BYTES", 0)
        patch.setattr(spark_contents, "BUCKET_BYTES", 1)
        patch.setattr(spark_contents, "MOST_BUCKETS", 4)
        patch.setattr(spark_store, "TAIL_ENTRIES", 40)
        patch.setattr(spark_store, "TAIL_FILES", 2)
        engine = RestartingSpark(options, tmp_path_factory.mktemp("saved"), Random(1))
        yield engine
    engine.close()
    stop_spark()


# Spark takes seconds for each, so the quick suite has one plan of each operator and random plans.
# The slow suite has all plans; the quick suite runs them on the embedded engine.
QUICK = {
    "all of a table",
    "map",
    "filter",
    "join",
    "join in which null equals null",
    "self-join",
    "distinct",
    "count and sum by key",
    "sums of numerics by key",
    "floats as keys",
    "minimum and maximum by key",
    "lists by key",
    "top two by key",
    "running sums",
    "sums of floats by key",
    "the rows before and after",
    "except",
    "negative multiplicities",
    "a left join",
}
assert PLANS.keys() >= QUICK


@pytest.mark.parametrize(
    "name",
    [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in PLANS],
)
def test_each_operator_is_exact_at_every_time(engine: SparkEngine, name: str) -> None:
    check_packed(engine, PLANS[name], Random(name), CASES)


def test_a_dataflow_is_taken_over_with_its_contents(
    engine: RestartingSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Always(Random):
        def random(self) -> float:
            return 0.0

    before = engine.restarts
    monkeypatch.setattr(engine, "random", Always())
    check_packed(engine, PLANS["count and sum by key"], Random(8), 3)
    assert engine.restarts > before


def test_rows_are_there_once_their_window_has_closed(engine: SparkEngine) -> None:
    random, final = Random(1), final_rows(WINDOWED["all aggregates"])
    assert final is not None
    for _ in range(2):
        check_maintained(engine, Case(final, growing_streams(random, 6), frozenset((3,))))


@pytest.mark.parametrize("clauses", ["IGNORE NULL UPDATES ON", "SNAPSHOTS", "TRACK HISTORY ON (b)"])
def test_rows_and_versions_of_changes_are_exact(engine: SparkEngine, clauses: str) -> None:
    query = next(each for each in reversed(CLAUSES) if clauses in each)
    relation = planned(f"SELECT * FROM AUTO_CDC({query})")
    check_maintained(engine, Case(relation, changing(Random(5))[:4], frozenset((3,))))


def test_rows_of_closed_windows_are_dropped(engine: RestartingSpark) -> None:
    final = final_rows(WINDOWED["all aggregates"])
    assert final is not None
    (id,) = sources_of(final)
    description = DataflowDescription(GlobalId("t1"), final, (id,), (), 1)
    dataflow = engine.plain(description, {id: schema_of(STREAM)})
    dataflow.hydrate({id: Input(schema_of(STREAM), (), (stream(0, 1),))})
    kept = []
    for time in range(2, 12):
        dataflow.step(time, time + 1, {id: stream(1000 * time, time)})
        while dataflow.maintain():
            pass
        kept.append(sum(each.records for each in dataflow.sizes()))
    assert max(kept) <= 100, kept  # of 1,000 new rows in each step
    dataflow.close()


def test_values_of_every_type_round_trip(engine: SparkEngine, tmp_path: Path) -> None:
    check_every_type(engine, tmp_path)


def test_contents_of_every_type_are_read_beside_spark(
    engine: RestartingSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files that Spark wrote are read by DuckDB, except where it has values in another form."""
    monkeypatch.setattr(engine, "random", Random(1))
    places = [i for i, column in enumerate(COLUMNS) if column.type != TIME_OF_DAY]
    for columns, most_jobs in ((places, 0), (range(len(COLUMNS)), 1)):
        monkeypatch.setattr(LocalSteps, "takes", TAKES)
        table = Get(U1.id, tuple(COLUMNS[i] for i in columns))
        rows = [tuple(row[i] for i in columns) for row in ROWS]
        before = updates(table.columns, [(row, START, 1) for row in rows])
        description = DataflowDescription(GlobalId("t1"), Threshold(table), (table.id,), (), START)
        schema = schema_of(table.columns)
        dataflow = engine.plain(description, {table.id: schema})
        dataflow.hydrate({table.id: Input(schema, (), (before,))})
        after = updates(table.columns, [(row, START + 1, -2) for row in rows])
        output = dataflow.step(START + 1, START + 2, {table.id: after})
        assert rows_of(output.rows, table.columns) == Counter(dict.fromkeys(rows, -1))
        assert dataflow.jobs == most_jobs
        dataflow.close()


def test_values_in_files_are_found(engine: SparkEngine, tmp_path: Path) -> None:
    check_comparisons(engine, tmp_path, (FLOAT8, TIMESTAMPTZ))


def test_path_pattern_matches_only_itself(engine: SparkEngine, tmp_path: Path) -> None:
    check_paths(engine, tmp_path)


def test_an_evaluation_can_be_cancelled(engine: SparkEngine) -> None:
    column = (ColumnType(INT4, False),)
    numbers = FlatMap(
        Join(()), "generate_series(int4,int4)", (Literal(1, INT4), Literal(100_000, INT4)), column
    )
    endless = Reduce(Join((numbers, numbers, numbers)), (), (count_all(),))
    cancellation = Cancellation()
    Timer(3, cancellation.cancel).start()
    with pytest.raises(QueryCanceled):
        engine.evaluate(endless, {}, START, cancellation)


@settings(max_examples=2, phases=[Phase.generate], derandomize=True)
@given(lowered_relations(size=5), st.randoms(use_true_random=False))
def test_a_random_plan_is_exact_at_every_time(
    engine: SparkEngine, relation: Relation, random: Random
) -> None:
    check_packed(engine, relation, random, CASES)


@settings(max_examples=10, phases=[Phase.generate], derandomize=True)
@given(lowered_relations(size=4, failing=True), st.randoms(use_true_random=False))
def test_evaluation_matches_model(engine: SparkEngine, relation: Relation, random: Random) -> None:
    case = Case(relation, random_history(random, 1))
    rows, errors = evaluate(relation, case.history[0])
    if errors:
        with pytest.raises(DataError) as raised:
            engine.evaluate(relation, initial(case), START)
        assert f"{raised.value.sqlstate} {raised.value.message}" == min(errors)
    elif min(rows.values(), default=1) > 0:
        result = engine.evaluate(relation, initial(case), START)
        assert rows_of(result, columns_of(relation)) == rows


@pytest.mark.slow
def test_rows_of_a_temporal_filter_leave_at_their_times(engine: SparkEngine) -> None:
    ends = CaseWhen(
        ((Call("eq", (column(1), Literal(1, INT4)), BOOL), Literal(START + 2, MZ_TIMESTAMP)),),
        Literal(START + 4, MZ_TIMESTAMP),
        MZ_TIMESTAMP,
    )
    current = TemporalFilter(Map(U1, (ends,)), (("lt", len(U1.columns)),))
    counted = Reduce(current, (column(0),), (count_all(),))
    history = random_history(Random(5), times=5)
    check_maintained(engine, Case(counted, history, frozenset({3})), counts_errors=False)


@pytest.mark.slow
def test_recursion_is_computed_anew(engine: SparkEngine) -> None:
    history = graphs(Random(6), 4, 4, 6)
    check_maintained(engine, Case(DISTANCES, history, frozenset({2})), counts_errors=False)
