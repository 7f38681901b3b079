"""Windows over random rows have the model's result on DuckDB, evaluated and maintained."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.errors import DataError
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Relation
from tests.compute.cases import START, Case, Contents, check_maintained, initial, rows_of
from tests.effort import examples
from tests.model import evaluate
from tests.relations import histories, window_relations


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDbEngine]:
    """Yield one engine for all cases."""
    engine = DuckDbEngine(threads=1)
    yield engine
    engine.close()


@settings(max_examples=examples(300))
@given(window_relations(failing=True), histories(1))
def test_windows_match_the_model(
    engine: DuckDbEngine, relation: Relation, history: list[Contents]
) -> None:
    case = Case(relation, history)
    rows, errors = evaluate(case.relation, case.history[0])
    if errors:
        with pytest.raises(DataError) as raised:
            engine.evaluate(case.relation, initial(case), START)
        assert f"{raised.value.sqlstate} {raised.value.message}" == min(errors)
    else:
        result = engine.evaluate(case.relation, initial(case), START)
        assert rows_of(result, columns_of(case.relation)) == rows


@settings(max_examples=examples(150))
@given(window_relations(failing=True), histories(5), st.sets(st.integers(2, 4)))
def test_maintained_windows_are_exact_at_every_time(
    engine: DuckDbEngine, relation: Relation, history: list[Contents], cuts: set[int]
) -> None:
    check_maintained(engine, Case(relation, history, frozenset(cuts)))
