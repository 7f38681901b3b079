"""Recursions: the cost of a step, the limits of a result, and row goals."""

import pyarrow as pa
import pytest

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Cancellation, Input, rows_schema
from foreshore.compute.local import recursion
from foreshore.compute.local.recursion import Evaluation
from foreshore.compute.local.row_goal import row_goals
from foreshore.errors import DatabaseError, QueryCanceled
from foreshore.expr.block import Block, Recursion
from foreshore.expr.ir import (
    Call,
    Column,
    Constant,
    Filter,
    Get,
    Join,
    Literal,
    Map,
    OrderKey,
    Project,
    Relation,
    TopK,
    Union,
)
from foreshore.ids import GlobalId
from foreshore.types import BOOL, INT4, INT8, ColumnType
from foreshore.update import DIFF_FIELD, TIME_FIELD
from tests.processor_time import seconds_of

ONE = (ColumnType(INT4),)
WORKING, RESULT, EDGES = GlobalId("r1w"), GlobalId("r1"), GlobalId("u1")
N = Column(0, INT4)
START = Constant((((1,), 1),), ONE)
FOUND = Get(RESULT, ONE)
NEXT = Project(Map(Get(WORKING, ONE), (Call("add(int4,int4)", (N, Literal(1, INT4)), INT4),)), (1,))
ALONG_EDGES = Project(Join((Get(WORKING, ONE), Get(EDGES, ONE * 2)), ((N, Column(1, INT4)),)), (2,))


def block(step: Relation, *, distinct: bool = False, wanted: int | None = None) -> Block:
    """Return the block of all rows of one recursion."""
    return Block(FOUND, (Recursion(WORKING, RESULT, Block(START), Block(step), distinct),), wanted)


def run(
    engine: DuckDbEngine, plan: Block, cancellation: Cancellation | None = None, edges: int = 0
) -> list[int]:
    """Return the rows of `plan`, with as many edges n -> n + 1."""
    numbers = [pa.array(range(i, edges + i), pa.int32()) for i in (0, 1)]
    along = [pa.array([value] * edges, pa.int64()) for value in (5, 1)]
    fields = rows_schema(ONE * 2)
    rows = pa.Table.from_arrays(
        [*numbers, *along], schema=pa.schema([*fields, TIME_FIELD, DIFF_FIELD])
    )
    cancellation = cancellation or Cancellation()
    with engine.evaluations(cancellation) as evaluating:
        inputs = {EDGES: Input(fields, (), (rows,))}
        evaluation = Evaluation(inputs, 5, evaluating, cancellation.check)
        steps = evaluation.parts(plan)
        while True:
            try:
                next(steps)
            except StopIteration as stop:
                found: list[int] = pa.concat_tables(stop.value).column(0).to_pylist()
                return found


@pytest.fixture(scope="module")
def engine() -> DuckDbEngine:
    return DuckDbEngine()


def test_limit_ends_recursion_and_rows_stay_in_order_of_steps(engine: DuckDbEngine) -> None:
    assert run(engine, block(NEXT, wanted=50)) == list(range(1, 51))


def test_linear_step_of_few_rows_costs_less_than_a_millisecond(engine: DuckDbEngine) -> None:
    assert seconds_of(lambda: run(engine, block(NEXT, wanted=1000))) < 1.0


def test_join_step_of_few_rows_costs_few_milliseconds(engine: DuckDbEngine) -> None:
    found: list[int] = []
    assert seconds_of(lambda: found.extend(run(engine, block(ALONG_EDGES), edges=100))) < 3.0
    assert len(found) == 100


def test_distinct_recursion_over_a_cycle_ends(engine: DuckDbEngine) -> None:
    remainder = Call("modulo(int4,int4)", (N, Literal(7, INT4)), INT4)
    cycle = Project(
        Map(Get(WORKING, ONE), (remainder, Call("add(int4,int4)", (Column(1, INT4), Literal(1, INT4)), INT4))),
        (2,),
    )  # fmt: skip
    assert run(engine, block(cycle, distinct=True)) == [1, 2, 3, 4, 5, 6, 7]


def test_recursion_over_limit_of_rows_or_bytes_fails(
    engine: DuckDbEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recursion, "MOST_ROWS", 1000)
    with pytest.raises(DatabaseError, match="too many rows") as raised:
        run(engine, block(NEXT))
    assert raised.value.sqlstate == "54000"
    monkeypatch.setattr(recursion, "MOST_ROWS", 10**9)
    monkeypatch.setattr(recursion, "MOST_BYTES", 10_000)
    with pytest.raises(DatabaseError) as raised:
        run(engine, block(NEXT))
    assert raised.value.sqlstate == "53200"


def test_cancelled_recursion_stops_at_the_next_step(engine: DuckDbEngine) -> None:
    cancellation = Cancellation()
    with engine.evaluations(Cancellation()) as evaluating:
        running = Evaluation({}, 5, evaluating, cancellation.check).parts(block(NEXT))
        next(running)
        cancellation.cancel()
        with pytest.raises(QueryCanceled):
            next(running)


def test_row_goals_of_limits_and_of_readers_that_need_all_rows() -> None:
    odd = Filter(FOUND, (Call("eq", (N, Literal(1, INT4)), BOOL),))
    limited = TopK(odd, (), (), Literal(3, INT8), Literal(2, INT8))
    ordered = TopK(FOUND, (), (OrderKey(N),), Literal(3, INT8))
    (goal,) = list(row_goals(limited, RESULT, None) or ())
    assert (goal.relation, goal.count) == (odd, 5)
    (goal,) = list(row_goals(Union((START, odd)), RESULT, 4) or ())
    assert (goal.relation, goal.count) == (Union((odd,)), 4)
    assert row_goals(FOUND, RESULT, None) is None
    assert row_goals(ordered, RESULT, 4) is None
    assert row_goals(Union((limited, ordered)), RESULT, 4) is None
    assert row_goals(Join((FOUND, FOUND)), RESULT, 4) is None
