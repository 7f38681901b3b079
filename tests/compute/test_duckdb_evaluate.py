"""Evaluated once by DuckDB, a random plan gives what it means, or the least of its errors."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.errors import DataError, InternalError
from foreshore.expr.ir import Relation, columns_of
from tests.compute.cases import START, Case, Contents, initial, rows_of
from tests.model import evaluate
from tests.relations import histories, lowered_relations


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDbEngine]:
    """One engine for all cases."""
    engine = DuckDbEngine(threads=1)
    yield engine
    engine.close()


@settings(deadline=None, max_examples=200)
@given(lowered_relations(size=5, failing=True), histories(1))
def test_an_evaluation_is_what_the_plan_means(
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
