"""Maintained by DuckDB, a random plan over random changes is exact at every time."""

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.expr.ir import Relation
from tests.compute.cases import Case, check_maintained, random_history
from tests.compute.packing import check_packed
from tests.compute.plans import PLANS
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


@pytest.mark.parametrize("name", PLANS)
def test_each_operator_is_exact_at_every_time(engine: DuckDbEngine, name: str) -> None:
    random = Random(name)
    for _ in range(15):
        cuts = frozenset(random.sample(range(2, 5), random.randint(0, 3)))
        check_maintained(engine, Case(PLANS[name], random_history(random), cuts))


@settings(deadline=None, max_examples=50)
@given(lowered_relations(size=4), st.randoms(use_true_random=False))
def test_many_cases_in_one_are_each_exact(
    engine: DuckDbEngine, relation: Relation, random: Random
) -> None:
    check_packed(engine, relation, random, cases=4)
