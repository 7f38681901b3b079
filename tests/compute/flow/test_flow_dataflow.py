"""A random plan over random changes, maintained by the arrangement engine, is exact at every time."""

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, reject, settings
from hypothesis import strategies as st

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.flow import hydration, ordered, spine
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.flow.operators import reduce
from foreshore.compute.flow.unsupported import Unsupported
from foreshore.expr.ir import Constant, Join, LetRec, Reduce, count_all
from foreshore.types import INT8
from tests.compute.cases import Case, check_maintained, random_history, reads_all
from tests.compute.plans import PLANS, U2, column
from tests.compute.without_bulk import WithoutBulk
from tests.effort import examples
from tests.relations import histories, lowered_relations


@pytest.fixture(scope="module")
def engine() -> Iterator[FlowEngine]:
    """Yield one engine for all cases."""
    bulk = DuckDbEngine(threads=1)
    yield WithoutBulk(bulk)
    bulk.close()


@st.composite
def cases(draw: st.DrawFn, failing: bool = False) -> Case:
    """Draw a plan, five versions of the tables, and cuts."""
    relation = draw(lowered_relations(size=draw(st.integers(1, 6)), failing=failing))
    return Case(relation, draw(histories(5)), frozenset(draw(st.sets(st.integers(2, 4)))))


@pytest.fixture(params=["by operators", "in bulk"])
def hydrated(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hydrate by operators only, or in bulk whatever can be."""
    monkeypatch.setattr(hydration, "BULK_ROWS", 0 if request.param == "in bulk" else 1 << 60)
    if request.param == "in bulk":
        monkeypatch.setattr(spine, "SORTED_BY_BLOCKS", 0)
        monkeypatch.setattr(reduce, "SORTED_GROUPS", 0)


@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
@given(cases())
def test_a_dataflow_is_exact_at_every_time(hydrated: None, engine: FlowEngine, case: Case) -> None:
    try:
        check_maintained(engine, case)
    except Unsupported:
        reject()


@settings(max_examples=examples(150), suppress_health_check=list(HealthCheck))
@given(cases(failing=True))
def test_errors_follow_failing_rows(hydrated: None, engine: FlowEngine, case: Case) -> None:
    assume(reads_all(case.relation))  # else errors of what nobody reads count or do not
    try:
        check_maintained(engine, case)
    except Unsupported:
        reject()


@pytest.mark.parametrize("name", PLANS)
def test_each_operator_is_exact_at_every_time(
    hydrated: None, engine: FlowEngine, name: str
) -> None:
    random = Random(name)
    for _ in range(15):
        cuts = frozenset(random.sample(range(2, 5), random.randint(0, 3)))
        try:
            check_maintained(engine, Case(PLANS[name], random_history(random), cuts))
        except Unsupported as error:
            pytest.skip(str(error))


@pytest.mark.parametrize("name", PLANS)
def test_flickering_rows_are_exact(
    engine: FlowEngine, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spine, "TAIL_ROWS", 3)
    monkeypatch.setattr(ordered, "EAGER", 4)
    random = Random(name)
    versions = random_history(random, times=3)
    history = [{id: random.choice(versions)[id] for id in versions[0]} for _ in range(24)]
    cuts = frozenset(random.sample(range(2, 24), random.randint(1, 8)))
    try:
        check_maintained(engine, Case(PLANS[name], history, cuts))
    except Unsupported as error:
        pytest.skip(str(error))


def test_counts_over_a_recursion_that_is_not_read(hydrated: None, engine: FlowEngine) -> None:
    none = Constant((), U2.columns)
    unread = LetRec((0,), (U2.columns,), (none,), U2, limit=1, fails=False)
    counted = Reduce(unread, (), (count_all(),))
    check_maintained(engine, Case(counted, random_history(Random(1))))


def test_groups_of_groups_hydrated_in_bulk_follow_changes(
    monkeypatch: pytest.MonkeyPatch, engine: FlowEngine
) -> None:
    monkeypatch.setattr(hydration, "BULK_ROWS", 0)
    rows = [(1, 1), (2, 2), (3, 1)]
    history = [{U2.id: Counter(some)} for some in (rows[:2], rows, rows[2:], rows[:1])]
    groups = Reduce(U2, (column(1),), (count_all(),))
    check_maintained(engine, Case(Reduce(groups, (column(1, INT8),), (count_all(),)), history))


def test_often_changed_row_joins_once(engine: FlowEngine) -> None:
    """Joining all former versions of five rows with each other would take 10^9 and more."""
    many = 120
    history = [
        {U2.id: Counter({(1, i): 1, **{(key, key): 1 for key in range(2, 4)}})} for i in range(many)
    ]
    join = Join((U2,) * 5, (tuple(column(2 * i) for i in range(5)),))
    check_maintained(engine, Case(Reduce(join, (column(0),), (count_all(),)), history))
