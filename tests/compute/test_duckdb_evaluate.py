"""A random plan evaluated by DuckDB has the model's result, or the least of its errors."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Thread, Timer
from time import sleep

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Cancellation, Input
from foreshore.errors import DataError, InternalError, QueryCanceled, Unavailable
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Column, FlatMap, Get, Join, Literal, Reduce, Relation, count_all
from foreshore.ids import GlobalId
from foreshore.types import INT4, ColumnType
from tests.compute.cases import START, Case, Contents, initial, rows_of, schema_of, updates
from tests.compute.physical import PLACES, VALUES, check_comparisons, check_every_type, check_paths
from tests.effort import examples
from tests.model import evaluate
from tests.relations import histories, lowered_relations


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDbEngine]:
    """Yield one engine for all cases."""
    engine = DuckDbEngine(threads=1)
    yield engine
    engine.close()


@settings(max_examples=examples(200))
@given(lowered_relations(size=5, failing=True), histories(1))
def test_evaluation_matches_model(
    engine: DuckDbEngine, relation: Relation, history: list[Contents]
) -> None:
    case = Case(relation, history)
    rows, errors = evaluate(case.relation, case.history[0])
    if errors:
        with pytest.raises(DataError) as raised:
            engine.evaluate(case.relation, initial(case), START)
        assert f"{raised.value.sqlstate} {raised.value.message}" == min(errors)
    elif any(count < 0 for count in rows.values()):
        with pytest.raises(InternalError, match="negative multiplicity"):
            engine.evaluate(case.relation, initial(case), START)
    else:
        result = engine.evaluate(case.relation, initial(case), START)
        assert rows_of(result, columns_of(case.relation)) == rows
        parts = engine.evaluate_parts(case.relation, initial(case), START, Cancellation())
        assert rows_of(pa.concat_tables(parts), columns_of(case.relation)) == rows


def test_parts_of_what_was_only_added_to_are_streamed_and_deleted_rows_stay_out(
    engine: DuckDbEngine, tmp_path: Path
) -> None:
    table = Get(GlobalId("u1"), (ColumnType(INT4),))
    added = updates(table.columns, [((1,), START, 1), ((1,), START, 1), ((2,), START, 1)])
    deleted = updates(table.columns, [((2,), START, -1)])
    names = {name: str(tmp_path / name) for name in ("added", "deleted")}
    pq.write_table(added, names["added"])
    pq.write_table(deleted, names["deleted"])
    schema = schema_of(table.columns)
    files = DuckDbEngine(threads=1, directories=[str(tmp_path)])
    for input, streamed, rows in (
        (Input(schema, (), (added,)), 3, [1, 1, 2]),
        (Input(schema, (names["added"],), ()), 3, [1, 1, 2]),
        (Input(schema, (), (added, deleted)), 1, [1, 1]),
        (Input(schema, (names["added"], names["deleted"]), ()), 2, [1, 1]),
        (Input(schema, (names["added"],), (deleted,)), 2, [1, 1]),
    ):
        parts = list(files.evaluate_parts(table, {table.id: input}, START, Cancellation()))
        found = pa.concat_tables(parts)
        assert found.num_rows == streamed
        assert rows_of(found, table.columns) == Counter((row,) for row in rows)
    files.close()


def test_often_changed_row_joins_once(engine: DuckDbEngine) -> None:
    """Joining all former versions of five rows with each other would take 10^15 and more."""
    table = Get(GlobalId("u1"), (ColumnType(INT4), ColumnType(INT4)))
    many = 1000
    entries = [((1, i), START, 1) for i in range(many)]
    entries += [((1, i), START, -1) for i in range(1, many)]
    inputs = {table.id: Input(schema_of(table.columns), (), (updates(table.columns, entries),))}
    keys = tuple(Column(2 * i, INT4) for i in range(5))
    total = Reduce(Join((table,) * 5, (keys,)), (), (count_all(),))
    assert rows_of(engine.evaluate(total, inputs, START), columns_of(total)) == {(1,): 1}


def test_values_of_every_type_round_trip(tmp_path: Path) -> None:
    engine = DuckDbEngine(directories=[str(tmp_path)])
    check_every_type(engine, tmp_path)
    engine.close()


def test_values_in_files_are_found(tmp_path: Path) -> None:
    engine = DuckDbEngine(directories=[str(tmp_path)])
    check_comparisons(engine, tmp_path, VALUES)
    engine.close()


def test_path_pattern_matches_only_itself(tmp_path: Path) -> None:
    engine = DuckDbEngine(directories=[str(tmp_path / place) for place in PLACES])
    check_paths(engine, tmp_path)
    engine.close()


def test_engine_cannot_read_other_files(tmp_path: Path) -> None:
    table = Get(GlobalId("u1"), (ColumnType(INT4),))
    file = tmp_path / "secret.parquet"
    pq.write_table(updates(table.columns, [((1,), 0, 1)]), file)
    engine = DuckDbEngine(directories=[str(tmp_path / "blob")])
    with pytest.raises(duckdb.PermissionException):
        engine.evaluate(table, {table.id: Input(schema_of(table.columns), (str(file),))}, START)
    engine.close()


def test_an_evaluation_can_be_cancelled(engine: DuckDbEngine) -> None:
    numbers = FlatMap(
        Join(()), "generate_series(int4,int4)", (Literal(1, INT4), Literal(100_000, INT4)), _NUMBER
    )
    endless = Reduce(Join((numbers, numbers, numbers)), (), (count_all(),))
    cancellation = Cancellation()
    Timer(0.2, cancellation.cancel).start()
    with pytest.raises(QueryCanceled):
        engine.evaluate(endless, {}, START, cancellation)
    with pytest.raises(QueryCanceled):  # and an evaluation cancelled before it starts does not run
        engine.evaluate(endless, {}, START, cancellation)


_NUMBER = (ColumnType(INT4, False),)


def test_data_exceeding_memory_is_spilled(tmp_path: Path) -> None:
    numbers = FlatMap(
        Join(()), "generate_series(int4,int4)", (Literal(1, INT4), Literal(900, INT4)), _NUMBER
    )
    pairs = Reduce(
        Join((numbers, numbers)), (Column(0, INT4, False), Column(1, INT4, False)), (count_all(),)
    )
    groups = Reduce(pairs, (), (count_all(),))
    tight = DuckDbEngine(memory_limit="20MB", threads=1)
    with pytest.raises(Unavailable, match="out of memory"):
        tight.evaluate(groups, {}, START)
    roomy = DuckDbEngine(memory_limit="20MB", threads=1, scratch=str(tmp_path / "scratch"))
    assert roomy.evaluate(groups, {}, START)["c0"].to_pylist() == [900 * 900]


def test_engine_in_use_is_closed() -> None:
    engine = DuckDbEngine()
    using = Thread(
        target=lambda: engine._connection.execute("SELECT sum(i) FROM range(400_000_000) t(i)")
    )
    using.start()
    sleep(0.1)
    engine.close()
    using.join()
