"""Evaluation in a separate process gives the same answers and can always be stopped."""

import re
from collections.abc import Iterator
from pathlib import Path
from threading import Timer

import pyarrow as pa
import pytest

from foreshore.compute.engine import Cancellation, Extent, Input
from foreshore.compute.isolated.engine import IDLE_BYTES, IsolatedEngine
from foreshore.deep_trees import FRAMES
from foreshore.errors import DatabaseError, DataError, QueryCanceled, Unavailable
from foreshore.expr.ir import (
    Call,
    Column,
    FlatMap,
    Get,
    Join,
    Literal,
    Map,
    Negate,
    OrderKey,
    Project,
    Relation,
    Scalar,
    Threshold,
)
from foreshore.expr.lowered import decode_relation, encode_relation
from foreshore.ids import GlobalId
from foreshore.types import INT4, TEXT, ColumnType
from foreshore.update import DIFF, update_schema

ONE_ROW = Join((), ())
ENDLESS = Call(
    "regexp_replace(text,text,text,text)",
    (
        Call("repeat(text,int4)", (Literal("a", TEXT), Literal(1_000_000, INT4)), TEXT),
        *(Literal(each, TEXT) for each in ("a.*b|a", "c", "g")),
    ),
    TEXT,
)


@pytest.fixture
def engine() -> Iterator[IsolatedEngine]:
    engine = IsolatedEngine()
    yield engine
    engine.close()


def value(
    engine: IsolatedEngine, scalar: Scalar, cancellation: Cancellation | None = None
) -> object:
    with engine.evaluations(cancellation or Cancellation()) as evaluations:
        return evaluations.rows(Map(ONE_ROW, (scalar,)), {}, 0)["c0"][0].as_py()


def test_relation_over_given_rows_is_evaluated(engine: IsolatedEngine) -> None:
    table = GlobalId("u1")
    rows = pa.schema([pa.field("a", pa.string())])
    tail = pa.table([["x", "y"], [1, 5], [1, 1]], schema=update_schema(rows))
    relation: Relation = Get(table, (ColumnType(TEXT),))
    longer = Call("repeat(text,int4)", (Column(0, TEXT), Literal(3, INT4)), TEXT)
    relation = Project(Map(relation, (longer,)), (1,))
    with engine.evaluations(Cancellation()) as evaluations:
        found = evaluations.rows(relation, {table: Input(rows, (), (tail,))}, 2)
    assert found.to_pylist() == [{"c0": "xxx", DIFF: 1}]


def test_error_of_a_row_is_raised_and_the_process_goes_on(engine: IsolatedEngine) -> None:
    with pytest.raises(DataError, match="null character not permitted") as caught:
        value(engine, Call("chr(int4)", (Literal(0, INT4),), TEXT))
    assert caught.value.sqlstate == "54000"
    assert value(engine, Call("chr(int4)", (Literal(97, INT4),), TEXT)) == "a"


def test_plan_of_any_depth_does_not_end_the_process(engine: IsolatedEngine) -> None:
    with engine.evaluations(Cancellation()) as evaluations:  # as SQL, so the limit is raised
        assert len(evaluations.rows(Threshold(Map(ONE_ROW, (Literal(1, INT4),))), {}, 0)) == 1
    leaf: Relation = Get(GlobalId("u1"), (ColumnType(TEXT),))
    inner, outer = encode_relation(leaf), encode_relation(Negate(leaf))
    level = outer.removesuffix(inner)
    with engine.evaluations(Cancellation()) as evaluations:
        deep = level * FRAMES + inner
        with pytest.raises(DatabaseError, match="stack depth limit exceeded") as caught:
            list(evaluations.batches(map, decode_relation, [deep]))
    assert caught.value.sqlstate == "54001"
    assert value(engine, Call("chr(int4)", (Literal(98, INT4),), TEXT)) == "b"


def test_cancelled_evaluation_ends_and_the_next_one_has_another_process(
    engine: IsolatedEngine,
) -> None:
    assert value(engine, Call("chr(int4)", (Literal(97, INT4),), TEXT)) == "a"
    cancellation = Cancellation()
    timer = Timer(0.2, cancellation.cancel)
    timer.start()
    with pytest.raises(QueryCanceled):
        value(engine, ENDLESS, cancellation)
    timer.join()
    assert value(engine, Call("chr(int4)", (Literal(98, INT4),), TEXT)) == "b"


def test_evaluation_without_a_limit_does_not_take_all_memory() -> None:
    engine = IsolatedEngine(memory=100 << 20)
    text = Call("repeat(text,int4)", (Literal("a", TEXT), Literal(1000, INT4)), TEXT)
    many = Call("repeat(text,int4)", (text, Literal(400_000, INT4)), TEXT)
    long = Call("length(text)", (many,), INT4)
    with pytest.raises(DatabaseError, match="out of memory") as caught:
        value(engine, long)
    assert caught.value.sqlstate == "53200"
    assert value(engine, Call("length(text)", (text,), INT4)) == 1000
    engine.close()


def test_process_that_ends_by_itself_fails_its_evaluation() -> None:
    engine = IsolatedEngine(command=("/bin/false",))
    with pytest.raises(Unavailable, match="has ended"):
        value(engine, Literal("a", TEXT))
    engine.close()


def test_closed_engine_ends_what_it_evaluates(engine: IsolatedEngine) -> None:
    timer = Timer(0.5, engine.close)
    timer.start()
    with pytest.raises(Unavailable):
        value(engine, ENDLESS)
    timer.join()
    with pytest.raises(QueryCanceled):
        value(engine, Literal("a", TEXT))


def series(last: int) -> Relation:
    args = (Literal(1, INT4), Literal(last, INT4))
    return FlatMap(ONE_ROW, "generate_series(int4,int4)", args, (ColumnType(INT4, False),))


def resident_megabytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) >> 10


def test_parts_are_computed_as_they_are_taken(engine: IsolatedEngine) -> None:
    product = Join((series(10_000), series(10_000)), ())
    with engine.evaluations(Cancellation()) as worker:
        parts = worker.parts(product, {}, 0)
        rows = next(parts).num_rows
        before = resident_megabytes(worker.pid)
        while rows < 5_000_000:
            rows += next(parts).num_rows
        assert resident_megabytes(worker.pid) < before + 100
    with engine.evaluations(Cancellation()) as again:  # the rest of the answer is forgotten
        assert again.pid == worker.pid
        assert again.rows(series(3), {}, 0)["c0"].to_pylist() == [1, 2, 3]


def test_parts_in_order(engine: IsolatedEngine) -> None:
    product = Join((series(300), series(500)), ())
    keys = (OrderKey(Column(1, INT4), True, False), OrderKey(Column(0, INT4), False, False))
    with engine.evaluations(Cancellation()) as worker:
        found = pa.concat_tables(worker.parts(product, {}, 0, extent=Extent(keys)))
    rows = list(zip(found["c0"].to_pylist(), found["c1"].to_pylist(), strict=True))
    assert rows == [(a, b) for b in range(500, 0, -1) for a in range(1, 301)]


def test_process_that_has_grown_is_not_kept(
    engine: IsolatedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = iter((IDLE_BYTES, IDLE_BYTES + 1, 0))
    monkeypatch.setattr("foreshore.compute.isolated.engine.own_bytes", lambda _: next(sizes))
    pids = []
    for _ in range(3):
        with engine.evaluations(Cancellation()) as worker:
            pids.append(worker.pid)
            assert worker.rows(series(3), {}, 0).num_rows == 3
    assert pids[0] == pids[1] != pids[2]
