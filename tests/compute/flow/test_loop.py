"""Recursions, maintained by iterations, are at every time what computing them anew gives."""

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from random import Random

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Input
from foreshore.compute.flow import ranks
from foreshore.compute.flow.batch import Batch
from foreshore.compute.flow.dataflow import FlowDataflow
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.flow.operators import fixpoint, loop
from foreshore.compute.flow.operators.fixpoint import Fixpoint
from foreshore.compute.flow.operators.loop import Loop
from foreshore.compute.flow.operators.operator import Window
from foreshore.compute.flow.ranks import Ranks
from foreshore.compute.flow.spine import Spine
from foreshore.compute.flow.unsupported import Unsupported
from foreshore.compute.memory_limit import MemoryBudget, MemoryLimitExceeded
from foreshore.compute.protocol import DataflowDescription
from foreshore.errors import QueryCanceled
from foreshore.expr.ir import (
    Aggregate,
    Call,
    Constant,
    Filter,
    Get,
    Join,
    Let,
    LetRec,
    Literal,
    LocalGet,
    Map,
    Negate,
    OrderKey,
    Project,
    Reduce,
    Relation,
    Scalar,
    Threshold,
    TopK,
    Union,
    count_all,
)
from foreshore.expr.recursion import has_recursion
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from foreshore.types import BOOL, INT4, INT8, TEXT, ColumnType
from tests.compute.cases import (
    START,
    Case,
    Contents,
    check_maintained,
    rows_of,
    run,
    schema_of,
    updates,
)
from tests.compute.plans import column
from tests.compute.without_bulk import WithoutBulk
from tests.effort import examples
from tests.model import Rows, evaluate
from tests.processor_time import seconds_of
from tests.relations import histories, lowered_relations

INT = ColumnType(INT4)
EDGES = Get(GlobalId("u7"), (ColumnType(INT4, False), INT))
ROOTS = Get(GlobalId("u8"), (ColumnType(INT4, False),))
PAIRS = LocalGet(1, (INT, INT))
NODES = LocalGet(2, (INT,))


def add(a: Scalar, b: Scalar) -> Scalar:
    """Return a sum."""
    return Call("add(int4,int4)", (a, b), INT4)


def one(value: int) -> Literal:
    """Return a constant."""
    return Literal(value, INT4)


def distinct(relation: Relation, width: int) -> Relation:
    """Return the distinct rows of columns of integers."""
    return Reduce(relation, tuple(map(column, range(width))), ())


def minimum(relation: Relation) -> Relation:
    """Return the least second column for each first one."""
    return Reduce(relation, (column(0),), (Aggregate("min", (column(1),), INT4),))


def rec(value: Relation, body: Relation | None = None, **options: object) -> LetRec:
    """Return a recursion of one value of pairs."""
    return LetRec((1,), ((INT, INT),), (value,), body or PAIRS, **options)  # type: ignore[arg-type]


STEP = Project(Join((PAIRS, EDGES), ((column(1), column(2)),)), (0, 3))
BOTH_WAYS = Union((EDGES, Project(EDGES, (1, 0))))
CLOSURE = rec(distinct(Union((EDGES, STEP)), 2))
DISTANCES = rec(
    minimum(
        Union(
            (
                Project(Map(ROOTS, (one(0),)), (0, 1)),
                Project(
                    Map(Join((PAIRS, EDGES), ((column(0), column(2)),)), (add(column(1), one(1)),)),
                    (3, 4),
                ),
            )
        )
    )
)
COMPONENTS = rec(
    minimum(
        Union(
            (
                Project(EDGES, (0, 0)),
                Project(EDGES, (1, 1)),
                Project(Join((PAIRS, BOTH_WAYS), ((column(0), column(2)),)), (3, 1)),
            )
        )
    )
)
REACHED = LetRec(  # a value that reads another of the same round
    (1, 2),
    ((INT, INT), (INT,)),
    (
        distinct(Union((Project(Map(NODES, (one(0),)), (0, 1)), EDGES)), 2),
        distinct(Union((ROOTS, Project(Join((NODES, PAIRS), ((column(0), column(1)),)), (2,)))), 1),
    ),
    Union((NODES, Project(Filter(PAIRS, (Call("eq", (column(1), one(0)), BOOL),)), (0,)))),
)
UNREACHED = Let(
    9,
    distinct(Union((Project(EDGES, (0,)), Project(EDGES, (1,)))), 1),
    LetRec(
        (2,),
        ((INT,),),
        (
            distinct(
                Union((ROOTS, Project(Join((NODES, EDGES), ((column(0), column(1)),)), (2,)))), 1
            ),
        ),
        Threshold(Union((LocalGet(9, (INT,)), Negate(NODES)))),
    ),
)
OSCILLATING = rec(  # what is there in one round is not in the next
    Threshold(Union((Project(EDGES, (0, 0)), Negate(Project(PAIRS, (0, 1)))))), limit=5
)
COUNTED = rec(
    Union(
        (Project(EDGES, (0, 1)), Project(Join((PAIRS, EDGES), ((column(1), column(2)),)), (0, 3)))
    ),
    limit=3,
    fails=False,
)
BOUNDED = rec(
    TopK(
        distinct(Union((EDGES, STEP)), 2),
        (0,),
        (OrderKey(column(1)),),
        Literal(2, INT8),
    ),
    limit=20,
    fails=False,
)
FAILING = rec(
    distinct(
        Union(
            (
                EDGES,
                Project(
                    Map(
                        Filter(STEP, (Call("ne", (column(0), column(1)), BOOL),)),
                        (Call("divide(int4,int4)", (one(6), column(1)), INT4),),
                    ),
                    (0, 2),
                ),
            )
        ),
        2,
    ),
    limit=12,
    fails=False,
)
CONSTANT = rec(
    distinct(
        Union(
            (
                Constant((((1, 0), 1),), (INT, INT)),
                Filter(
                    Project(Map(PAIRS, (add(column(1), one(1)),)), (0, 2)),
                    (Call("lt", (column(1), one(4)), BOOL),),
                ),
            )
        ),
        2,
    ),
    Reduce(Union((PAIRS, EDGES)), (column(0),), (count_all(),)),
)
RANKED = ("closure", "beside the rest", "failing", "constant")
LOOPS: dict[str, Relation] = {
    "closure": CLOSURE,
    "distances": DISTANCES,
    "components": COMPONENTS,
    "two values": REACHED,
    "beside the rest": UNREACHED,
    "counted to a limit": COUNTED,
    "top of each round": BOUNDED,
    "failing": FAILING,
    "constant": CONSTANT,
}


@pytest.fixture(scope="module")
def engine() -> Iterator[FlowEngine]:
    """Yield one engine for all cases."""
    bulk = DuckDbEngine(threads=1)
    yield WithoutBulk(bulk)
    bulk.close()


@pytest.fixture(scope="module")
def duckdb() -> Iterator[DuckDbEngine]:
    """Yield an engine that computes recursions anew."""
    engine = DuckDbEngine(threads=1)
    yield engine
    engine.close()


@pytest.fixture
def own_engine(duckdb: DuckDbEngine) -> FlowEngine:
    """Return an engine whose collections no other test shares."""
    return WithoutBulk(duckdb)


def graphs(random: Random, nodes: int, times: int, edges: int) -> list[Contents]:
    """Return graphs at successive times, each with a few changes of the one before."""
    found: Rows = Counter()
    roots: Rows = Counter({(0,): 1})
    history: list[Contents] = []
    for _ in range(times):
        for _ in range(random.randint(0, 3)):
            edge = (random.randrange(nodes), random.randrange(nodes))
            if found[edge] or (sum(found.values()) > edges and found):
                gone = edge if found[edge] else random.choice(sorted(found))
                found[gone] -= 1
            else:
                found[edge] += 1
            found = +found
        if random.random() < 0.2:
            roots = Counter({(random.randrange(nodes),): 1})
        history.append({EDGES.id: Counter(found), ROOTS.id: Counter(roots)})
    return history


@pytest.mark.parametrize("name", LOOPS)
def test_recursion_is_exact_at_every_time(engine: FlowEngine, name: str) -> None:
    random = Random(name)
    for _ in range(examples(60)):
        nodes = random.randint(2, 6)
        history = graphs(random, nodes, times := random.randint(2, 14), nodes + 2)
        cuts = frozenset(random.sample(range(2, times + 1), random.randint(0, times - 1)))
        check_maintained(engine, Case(LOOPS[name], history, cuts))


@pytest.mark.parametrize("name", LOOPS)
def test_recursion_computed_anew_at_some_times_is_exact(
    own_engine: FlowEngine, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Ranks are given up at once, or after some rounds."""
    random = Random(name)
    anew: list[bool] = []

    def again(ranks: Ranks) -> None:
        anew.append(True)
        begin_anew(ranks)

    begin_anew = Ranks.begin_anew
    monkeypatch.setattr(Ranks, "begin_anew", again)
    monkeypatch.setattr(Fixpoint, "_most", lambda *_: random.choice((None, 0, 2, 5, 10, 20)))

    def rounds(loop: Loop, inputs: Sequence[Batch]) -> list[Batch] | None:
        found = compute(loop, inputs)
        anew.append(found is not None)
        return found

    compute = Loop._anew
    monkeypatch.setattr(Loop, "_anew", rounds)
    monkeypatch.setattr(Loop, "_pays", lambda loop, changed: random.random() < 0.5)
    for _ in range(examples(20)):
        nodes = random.randint(2, 6)
        history = graphs(random, nodes, times := random.randint(4, 14), nodes + 2)
        spared = random.randint(2, times)  # a window of two times, which is not computed anew
        cuts = frozenset(range(2, times + 1)) - {spared}
        check_maintained(own_engine, Case(LOOPS[name], history, cuts))
    assert any(anew) == (name not in ("counted to a limit", "constant"))  # without inputs
    assert name in RANKED or not all(anew)


@pytest.mark.parametrize("name", LOOPS)
def test_recursions_that_only_add_rows_go_by_their_ranks(own_engine: FlowEngine, name: str) -> None:
    dataflow = dataflow_of(own_engine, LOOPS[name], Counter())
    assert any(isinstance(each, Fixpoint) for each in dataflow._operators) == (name in RANKED)


@pytest.mark.parametrize("limit", [None, 4])
def test_ranks_are_restored_when_a_step_fails(
    own_engine: FlowEngine, monkeypatch: pytest.MonkeyPatch, limit: int | None
) -> None:
    """Each step is made, taken back and made again, at times anew."""
    random = Random(5)
    step = Fixpoint.step

    def twice(self: Fixpoint, window: Window, inputs: Sequence[Batch]) -> Batch:
        made = step(self, window, inputs), self.values
        self.restore()
        again = step(self, window, inputs), self.values
        assert [len(each) for each in made[1]] == [len(each) for each in again[1]]
        return again[0]

    monkeypatch.setattr(Fixpoint, "step", twice)
    monkeypatch.setattr(Fixpoint, "_most", lambda *_: random.choice((None, 0, 5)))
    monkeypatch.setattr(ranks, "LEAST_DEAD", 4)
    for number in range(examples(30)):
        history = graphs(random, 5, 12, 7)
        cuts = frozenset(random.sample(range(2, 12), random.randint(6, 10)))
        closure = rec(CLOSURE.values[0], limit=limit, fails=number % 2 == 0)
        check_maintained(own_engine, Case(closure, history, cuts), counts_errors=False)


@pytest.mark.parametrize("anew", [False, True])
def test_many_changes_make_a_recursion_anew(
    own_engine: FlowEngine, monkeypatch: pytest.MonkeyPatch, anew: bool
) -> None:
    """The numbers of changes and of rows decide; a step that fails changes nothing."""
    monkeypatch.setattr(loop, "ANEW_LEAST", 8 if anew else 9)
    edges: Rows = Counter({(node, node + 1): 1 for node in range(20)})
    moved: Rows = Counter({(node, node + 2 if node < 4 else node + 1): 1 for node in range(20)})
    versions = [{EDGES.id: each, ROOTS.id: Counter({(0,): 1})} for each in (edges, moved)]
    case = Case(REACHED, [versions[0], versions[1], versions[0], versions[0]], frozenset({2, 3}))
    ages = []
    step = Loop.step

    def noted(self: Loop, window: Window, inputs: Sequence[Batch]) -> Batch:
        before = list(self._iterations)
        first = step(self, window, inputs)
        if before and any(map(len, inputs)):
            ages.append(self._iterations[0] is before[0])
            self.restore()
            assert self._iterations == before
            first = step(self, window, inputs)
        return first

    monkeypatch.setattr(Loop, "step", noted)
    check_maintained(own_engine, case)
    assert ages == [not anew] * 2


@st.composite
def cases(draw: st.DrawFn, failing: bool = False) -> Case:
    """Draw a plan with recursions, five versions of the tables, and cuts."""
    size = draw(st.integers(2, 7))
    relation = draw(lowered_relations(size, failing, rounds=3).filter(has_recursion))
    return Case(relation, draw(histories(5, 2)), frozenset(draw(st.sets(st.integers(2, 4)))))


@settings(max_examples=examples(150))
@given(cases())
def test_any_operators_in_a_recursion_are_exact(engine: FlowEngine, case: Case) -> None:
    try:
        check_maintained(engine, case)
    except Unsupported:
        reject()


@settings(max_examples=examples(100), suppress_health_check=list(HealthCheck))
@given(cases(failing=True))
def test_errors_in_a_recursion_are_those_of_its_last_round(engine: FlowEngine, case: Case) -> None:
    try:
        check_maintained(engine, case, counts_errors=False)
    except Unsupported:
        reject()


@pytest.mark.parametrize("name", LOOPS)
def test_recursion_on_duckdb_is_exact_at_every_time(duckdb: DuckDbEngine, name: str) -> None:
    random = Random(name)
    for _ in range(examples(10)):
        nodes = random.randint(2, 4)
        history = graphs(random, nodes, 4, nodes + 1)
        cuts = frozenset(random.sample(range(2, 4), random.randint(0, 2)))
        case = Case(LOOPS[name], history, cuts)
        if name == "failing":
            check_failing(duckdb, case)
        else:
            check_maintained(duckdb, case)


def check_failing(engine: DuckDbEngine, case: Case) -> None:
    """Assert that there is an error exactly when there should be, and that rows are right if not.

    An engine that computes all anew has no rows beside an error, and only one error.
    """
    outputs = run(engine, case)
    rows = pa.concat_tables([output.rows for output in outputs])
    errors = pa.concat_tables([output.errors for output in outputs])
    for i, contents in enumerate(case.history):
        wanted, failures = evaluate(case.relation, contents)
        found = rows_of(errors, (ColumnType(TEXT),), START + i)
        assert found.total() == bool(failures)
        assert {text for (text,) in found} <= set(failures)
        assert failures or rows_of(rows, (INT, INT), START + i) == wanted


def test_recursion_that_does_not_converge_is_an_error(engine: FlowEngine) -> None:
    random = Random(4)
    for _ in range(20):
        history = graphs(random, 3, 6, 2)
        cuts = frozenset(random.sample(range(2, 6), random.randint(0, 4)))
        check_maintained(engine, Case(OSCILLATING, history, cuts), counts_errors=False)


def test_iterations_share_what_does_not_vary(own_engine: FlowEngine) -> None:
    """Both directions of the edges are arranged once, however many iterations read them."""
    edges = Counter({(i, i + 1): 1 for i in range(12)})
    dataflow = dataflow_of(own_engine, COMPONENTS, edges)
    (loop,) = (each for each in dataflow._operators if isinstance(each, Loop))
    assert len(loop._iterations) > 12
    assert loop._contents is not None
    kept = loop._contents._spines
    spines = [each for each in dataflow._context.kept if isinstance(each, Spine)]
    shared = [each for each in spines if each not in kept]
    assert [len(spine) for spine in shared] == [24]
    own = sum(size.bytes for each in loop._iterations for size in each.sizes())
    own += sum(size.bytes for size in loop._contents.sizes())
    assert sum(size.bytes for size in loop.sizes()) == own + shared[0].nbytes


def test_rows_too_many_to_be_counted_are_an_error_while_they_are(own_engine: FlowEngine) -> None:
    """The number of paths doubles in each round, and would wrap around to the same number."""
    paths = rec(Union((EDGES, STEP)))
    cycle, path = Counter({(1, 1): 2, (5, 6): 1}), Counter({(i, i + 1): 1 for i in range(90)})
    contents = [Counter(), path, cycle, cycle, path, cycle, Counter()]
    history = [{EDGES.id: each} for each in contents]
    text = "54000 a recursive query has too many rows"
    for cuts in (frozenset(range(2, 7)), frozenset({3, 5}), frozenset[int]()):
        outputs = run(own_engine, Case(paths, history, cuts))
        errors = pa.concat_tables([output.errors for output in outputs])
        rows = pa.concat_tables([output.rows for output in outputs])
        for i, each in enumerate(contents):
            failed = rows_of(errors, (ColumnType(TEXT),), START + i)
            assert failed == (Counter({(text,): 1}) if each is cycle else Counter()), (cuts, i)
            if each is path:
                found = rows_of(rows, (INT, INT), START + i)
                assert found == Counter({(a, b): 1 for b in range(91) for a in range(b)})


@pytest.mark.parametrize("base", [PAIRS, EDGES], ids=["varying", "fixed"])
def test_time_to_build_a_chain_of_lets_is_linear(own_engine: FlowEngine, base: Relation) -> None:
    """Each part reads the one before twice: the last reads the first a million times."""

    def twice(part: Relation) -> Relation:
        pairs = Join((part, part), ((column(1), column(2)),))
        divided = Map(pairs, (Call("divide(int4,int4)", (column(0), column(3)), INT4),))
        return distinct(Project(divided, (0, 4)), 2)

    numbers = range(10, 30)
    parts = [LocalGet(number, (INT, INT)) for number in numbers]
    value: Relation = distinct(Union((EDGES, parts[-1])), 2)
    for number, part in reversed([*zip(numbers, [base, *parts[:-1]], strict=True)]):
        value = Let(number, twice(part), value)
    assert seconds_of(lambda: dataflow_of(own_engine, rec(value), Counter())) < 2


@pytest.mark.parametrize(
    ("first", "second"),
    [(PAIRS, EDGES), (EDGES, PAIRS), (EDGES, Project(EDGES, (1, 0)))],
    ids=["varying and fixed", "fixed and varying", "fixed"],
)
def test_values_may_use_one_number_for_different_lets(
    own_engine: FlowEngine, first: Relation, second: Relation
) -> None:
    def twice(part: Relation) -> Relation:
        return distinct(Project(Join((part, part), ((column(1), column(2)),)), (0, 3)), 2)

    read, others = LocalGet(5, (INT, INT)), LocalGet(2, (INT, INT))
    values = [
        distinct(Union((EDGES, Let(5, twice(part), twice(read)))), 2) for part in (first, second)
    ]
    loop = LetRec((1, 2), ((INT, INT),) * 2, tuple(values), Union((PAIRS, others)))
    check_maintained(own_engine, Case(loop, graphs(Random(1), 4, 6, 5)))


def test_step_of_a_recursion_is_never_small(own_engine: FlowEngine) -> None:
    """It would hold up the replica's event loop, as one row may add any number of rounds."""
    assert dataflow_of(own_engine, DISTANCES, Counter()).small_window([]) == 0
    assert dataflow_of(own_engine, distinct(EDGES, 2), Counter()).small_window([]) > 0


def test_iterations_that_are_not_needed_any_more_are_dropped(own_engine: FlowEngine) -> None:
    edges = Counter({(i, i + 1): 1 for i in range(30)})
    dataflow = dataflow_of(own_engine, DISTANCES, edges)
    (loop,) = (each for each in dataflow._operators if isinstance(each, Loop))
    many = len(loop._iterations)
    gone = updates(EDGES.columns, [((2, 3), START + 1, -1)])
    dataflow.step(START + 1, START + 2, {EDGES.id: gone})
    assert many > 30
    assert len(loop._iterations) < 8


def test_failed_step_of_a_recursion_changes_nothing(
    own_engine: FlowEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataflow = dataflow_of(own_engine, DISTANCES, Counter({(i, i + 1): 1 for i in range(3)}))
    longer = updates(EDGES.columns, [((3 + i, 4 + i), START + 1, 1) for i in range(5)])
    with monkeypatch.context() as patch:
        patch.setattr(FlowDataflow, "_consolidated", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            dataflow.step(START + 1, START + 2, {EDGES.id: longer})
    output = dataflow.step(START + 1, START + 2, {EDGES.id: longer})
    assert rows_of(output.rows, (INT, INT)) == Counter({(i, i): 1 for i in range(4, 9)})


def test_dropped_dataflow_ends_a_recursion_that_does_not(own_engine: FlowEngine) -> None:
    endless = rec(
        distinct(Union((EDGES, Project(Map(PAIRS, (add(column(1), one(1)),)), (0, 2)))), 2),
        limit=1 << 30,
    )
    description = DataflowDescription(GlobalId("t1"), endless, (EDGES.id,), (), START)
    dataflow = own_engine.create(description, {EDGES.id: schema_of(EDGES.columns)})
    inputs = inputs_of(Counter({(1, 1): 1}))
    with ThreadPoolExecutor(1) as executor:
        running = executor.submit(dataflow.hydrate, inputs)
        dataflow.cancel()
        with pytest.raises(QueryCanceled):
            running.result()


def test_recursion_ends_where_it_takes_more_memory_than_it_may(
    own_engine: FlowEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fixpoint, "CHECKED_BYTES", 1000)
    endless = rec(
        distinct(Union((EDGES, Project(Map(PAIRS, (add(column(1), one(1)),)), (0, 2)))), 2),
        limit=1 << 30,
    )
    description = DataflowDescription(GlobalId("t1"), endless, (EDGES.id,), (), START)
    dataflow = own_engine.create(description, {EDGES.id: schema_of(EDGES.columns)})
    dataflow.limit_memory(MemoryBudget(1_000_000))
    with pytest.raises(MemoryLimitExceeded):
        dataflow.hydrate(inputs_of(Counter({(1, 1): 1})))


def inputs_of(edges: Rows) -> dict[GlobalId, Input]:
    """Return a graph as inputs; the root is 0."""
    graph = updates(EDGES.columns, [(edge, START, n) for edge, n in edges.items()])
    roots = updates(ROOTS.columns, [((0,), START, 1)])
    return {
        EDGES.id: Input(schema_of(EDGES.columns), (), (graph,)),
        ROOTS.id: Input(schema_of(ROOTS.columns), (), (roots,)),
    }


def dataflow_of(engine: FlowEngine, relation: Relation, edges: Rows) -> FlowDataflow:
    """Return a dataflow over a graph, hydrated."""
    ids = tuple(sorted(sources_of(relation)))
    description = DataflowDescription(GlobalId("t1"), relation, ids, (), START)
    inputs = inputs_of(edges)
    dataflow = engine.create(description, {id: inputs[id].schema for id in ids})
    assert isinstance(dataflow, FlowDataflow)
    dataflow.hydrate(inputs)
    return dataflow
