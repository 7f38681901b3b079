"""Maintained by DuckDB, a random plan over random changes is exact at every time."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.compute.bulk.duckdb import DuckDbEngine
from tests.compute.cases import Case, check_maintained
from tests.relations import histories, lowered_relations


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDbEngine]:
    """One engine for all cases."""
    engine = DuckDbEngine(threads=1)
    yield engine
    engine.close()


@st.composite
def cases(draw: st.DrawFn, failing: bool = False) -> Case:
    """Draw a plan, five versions of the tables, and cuts."""
    relation = draw(lowered_relations(size=draw(st.integers(1, 6)), failing=failing))
    return Case(relation, draw(histories(5)), frozenset(draw(st.sets(st.integers(2, 4)))))


@settings(deadline=None, max_examples=200)
@given(cases())
def test_a_dataflow_is_exact_at_every_time(engine: DuckDbEngine, case: Case) -> None:
    check_maintained(engine, case)


@settings(deadline=None, max_examples=200)
@given(cases(failing=True))
def test_errors_come_and_go_with_the_rows_that_fail(engine: DuckDbEngine, case: Case) -> None:
    check_maintained(engine, case)
