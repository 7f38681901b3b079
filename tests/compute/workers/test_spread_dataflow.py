"""A random plan over random changes, maintained by several workers, is exact at every time."""

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from foreshore.compute.flow import hydration
from foreshore.compute.workers.engine import WorkersEngine
from tests.compute.cases import Case, check_maintained, random_history
from tests.compute.plans import PLANS
from tests.compute.workers.in_threads import workers
from tests.effort import examples
from tests.relations import histories, lowered_relations


@pytest.fixture(scope="module", params=[2, 3])
def engine(request: pytest.FixtureRequest) -> Iterator[WorkersEngine]:
    """Yield one engine for all cases, of two or three workers."""
    with workers(request.param) as engine:
        yield engine


@pytest.fixture(params=["by operators", "in bulk"])
def hydrated(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hydrate by operators only, or groups in bulk wherever they can be."""
    monkeypatch.setattr(hydration, "BULK_ROWS", 0 if request.param == "in bulk" else 1 << 60)


@st.composite
def cases(draw: st.DrawFn, failing: bool = False) -> Case:
    """Draw a plan, five versions of the tables, and cuts."""
    relation = draw(lowered_relations(size=draw(st.integers(1, 6)), failing=failing))
    return Case(relation, draw(histories(5)), frozenset(draw(st.sets(st.integers(2, 4)))))


@settings(
    max_examples=examples(60),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(cases())
def test_a_dataflow_is_exact_at_every_time(
    hydrated: None, engine: WorkersEngine, case: Case
) -> None:
    check_maintained(engine, case)


@settings(max_examples=examples(100), deadline=None)
@given(cases(failing=True))
def test_errors_follow_failing_rows(engine: WorkersEngine, case: Case) -> None:
    check_maintained(engine, case)


@pytest.mark.parametrize("name", PLANS)
def test_each_operator_is_exact_at_every_time(
    hydrated: None, engine: WorkersEngine, name: str
) -> None:
    random = Random(name)
    for _ in range(3):
        cuts = frozenset(random.sample(range(2, 5), random.randint(0, 3)))
        check_maintained(engine, Case(PLANS[name], random_history(random), cuts))
