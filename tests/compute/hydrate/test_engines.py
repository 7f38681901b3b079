"""Dataflows are exact whichever engine hydrates them, and whatever becomes of Spark."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, reject, settings

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Cancellation, Engine, Input
from foreshore.compute.flow import hydration, spine
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.flow.operators import reduce
from foreshore.compute.flow.unsupported import Unsupported
from foreshore.compute.hydrate.engines import BulkEngines, Lender
from foreshore.compute.hydrate.policy import Machines
from foreshore.compute.protocol import BulkChoice
from foreshore.errors import DataError, QueryCanceled
from foreshore.expr.ir import Call, Filter, Get, Join, Literal, Map, Negate, Reduce, count_all
from foreshore.hydrate_mode import HydrateMode
from foreshore.ids import GlobalId
from foreshore.types import BOOL, INT4, INT8, ColumnType
from tests.compute.cases import (
    START,
    Case,
    check_maintained,
    random_history,
    rows_of,
    schema_of,
    updates,
)
from tests.compute.flow.test_flow_dataflow import cases
from tests.compute.hydrate.lenders import Absent, FailingAfter, Lent
from tests.compute.hydrate.refreshes import check_refreshes
from tests.compute.plans import PLANS, U2, column
from tests.effort import examples

ID = GlobalId("t1")  # of the dataflow that `check_maintained` makes
JOINED = Reduce(Join((U2, U2), ((column(0), column(2)),)), (column(1),), (count_all(),))
SOME = Random(4)


@pytest.fixture(scope="module")
def duckdb() -> Iterator[Engine]:
    engine = DuckDbEngine(threads=1)
    yield engine
    engine.close()


@pytest.fixture(autouse=True)
def in_bulk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hydrate in bulk whatever can be, however few rows there are."""
    monkeypatch.setattr(hydration, "BULK_ROWS", 0)
    monkeypatch.setattr(spine, "SORTED_BY_BLOCKS", 0)
    monkeypatch.setattr(reduce, "SORTED_GROUPS", 0)


def hydrated(duckdb: Engine, spark: Lender, mode: HydrateMode = "spark") -> FlowEngine:
    return FlowEngine(duckdb, BulkEngines(duckdb, spark, mode, Machines()))


@settings(max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(cases())
def test_a_dataflow_is_exact_at_every_time(duckdb: Engine, case: Case) -> None:
    try:
        check_maintained(hydrated(duckdb, Lent(duckdb)), case)
    except Unsupported:
        reject()


def test_a_plan_with_negative_multiplicities_is_exact(duckdb: Engine) -> None:
    case = Case(Negate(PLANS["all of a table"]), random_history(Random(1)))
    check_maintained(hydrated(duckdb, Lent(duckdb)), case)


@pytest.mark.parametrize("name", ["all of a table", "join", "count and sum by key"])
def test_spark_is_asked_for_what_is_done_in_bulk(duckdb: Engine, name: str) -> None:
    lent = Lent(duckdb)
    engine = hydrated(duckdb, lent)
    check_maintained(engine, Case(PLANS[name], random_history(Random(name))))
    (status,) = engine.hydrations(ID)
    assert status.engine == "spark"
    assert lent.times >= status.statements > 0


def test_without_spark_duckdb_takes_over_and_says_why(duckdb: Engine) -> None:
    engine = hydrated(duckdb, Absent())
    check_maintained(engine, Case(JOINED, random_history(Random(1))))
    (status,) = engine.hydrations(ID)
    assert (status.engine, status.note) == ("duckdb", "Spark: no Java 17 or later was found")


def test_spark_fails_before_its_answer(duckdb: Engine) -> None:
    engine = hydrated(duckdb, Lent(FailingAfter(duckdb, 0)))
    check_maintained(engine, Case(JOINED, random_history(Random(2))))
    (status,) = engine.hydrations(ID)
    assert (status.engine, status.note) == ("duckdb", "Spark: an executor was lost")


def test_spark_fails_amid_its_answer_and_is_not_asked_again(duckdb: Engine) -> None:
    lent = Lent(FailingAfter(duckdb, 1))
    engine = hydrated(duckdb, lent)
    case = Case(JOINED, random_history(Random(3)))
    with pytest.raises(RuntimeError, match="executor was lost"):
        check_maintained(engine, case)
    asked = lent.times
    check_maintained(engine, case)
    assert lent.times == asked


def test_a_cancelled_statement_is_not_repeated_by_duckdb(duckdb: Engine) -> None:
    hydrator = BulkEngines(duckdb, Lent(duckdb), "spark", Machines()).for_hydration(ID, None)
    cancellation = Cancellation()
    cancellation.cancel()
    inputs = {U2.id: Input(schema_of(U2.columns), (), (updates(U2.columns, []),))}
    with pytest.raises(QueryCanceled):
        list(hydrator.evaluate_parts(U2, inputs, START, cancellation))


@pytest.mark.parametrize(
    ("own", "used"), [("local", "duckdb"), ("spark", "spark"), (None, "spark")]
)
def test_the_mode_of_a_dataflow_goes_first(
    duckdb: Engine, own: HydrateMode | None, used: str
) -> None:
    engines = BulkEngines(duckdb, Lent(duckdb), "spark", Machines())
    inputs = {U2.id: Input(schema_of(U2.columns), (), (updates(U2.columns, []),))}
    engines.for_hydration(ID, own).evaluate(U2, inputs, START)
    assert [status.engine for status in engines.hydrations(ID)] == [used]


def test_files_are_pruned_by_statistics(tmp_path: Path) -> None:
    """Files of later times, and of rows that no filter above the collection lets through."""
    table = Get(GlobalId("u9"), (ColumnType(INT8, False), ColumnType(INT4)))

    def file(name: str, rows: range, time: int) -> str:
        path = str(tmp_path / name)
        pq.write_table(updates(table.columns, [((i, 1), time, 1) for i in rows]), path)
        return path

    duckdb = DuckDbEngine(directories=[str(tmp_path)], threads=1)
    low, high = file("low", range(10), START), file("high", range(100, 110), START)
    later = file("later", range(100, 110), START + 1)
    input = Input(schema_of(table.columns), (low, high, later))
    some = Filter(table, (Call("gt", (column(0, INT8), Literal(50, INT8)), BOOL),))
    hydrator = BulkEngines(duckdb, Lent(duckdb), "local", Machines()).for_hydration(ID, None)
    found = hydrator.evaluate(some, {table.id: input}, START)
    assert rows_of(found, table.columns) == Counter({(i, 1): 1 for i in range(100, 110)})
    assert hydrator.done["duckdb"].updates == 10
    both = Join((some, table), ())
    hydrator.evaluate(both, {table.id: input}, START)
    assert hydrator.done["duckdb"].updates == 10 + 20
    duckdb.close()


@pytest.mark.parametrize(
    ("choice", "by_spark"),
    [
        (BulkChoice("duckdb"), False),
        (BulkChoice("spark"), True),
        (BulkChoice("auto", 1 << 40), False),
        (BulkChoice("auto", 1), True),
    ],
)
def test_a_query_runs_where_the_session_says(
    duckdb: Engine, choice: BulkChoice, *, by_spark: bool
) -> None:
    lent = Lent(duckdb)
    engine = hydrated(duckdb, lent, "local")
    inputs = {U2.id: Input(schema_of(U2.columns), (), (updates(U2.columns, [((1, 2), START, 1)]),))}
    parts = engine.for_query(choice).evaluate_parts(U2, inputs, START, Cancellation())
    assert rows_of(pa.concat_tables(parts), U2.columns) == {(1, 2): 1}
    assert bool(lent.times) == by_spark


def test_an_error_of_the_data_is_the_answer(duckdb: Engine) -> None:
    """It is not a failure of Spark, for which DuckDB would try again."""
    lent = Lent(duckdb)
    failing = Map(U2, (Call("divide(int4,int4)", (column(0), Literal(0, INT4)), INT4),))
    inputs = {U2.id: Input(schema_of(U2.columns), (), (updates(U2.columns, [((1, 2), START, 1)]),))}
    engine = hydrated(duckdb, lent).for_query(BulkChoice("spark"))
    with pytest.raises(DataError):
        list(engine.evaluate_parts(failing, inputs, START, Cancellation()))
    assert lent.times == 1


@pytest.mark.parametrize("name", ["q3", "q18"])
def test_a_view_follows_refreshes(tmp_path: Path, name: str) -> None:
    duckdb = DuckDbEngine(directories=[str(tmp_path)], threads=1)
    engine = hydrated(duckdb, Lent(duckdb))
    check_refreshes(engine, name, tmp_path, 1)
    assert [each.engine for each in engine.hydrations(ID)] == ["spark"]
    duckdb.close()
