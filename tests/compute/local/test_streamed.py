"""Streams: the rows of linear plans, made as they are taken, are those of the whole plan."""

from collections.abc import Iterator
from itertools import islice

import pyarrow as pa
import pytest

from foreshore.compute.linear import applied
from foreshore.compute.local import streamed as module
from foreshore.compute.local.linear import evaluate_linear
from foreshore.compute.local.streamed import Pace, can_stream, comes_in_order, streamed
from foreshore.errors import DataError, OutOfMemory, QueryCanceled
from foreshore.expr.ir import (
    Call,
    Column,
    Constant,
    Filter,
    FlatMap,
    Join,
    Let,
    Literal,
    LocalGet,
    Map,
    OrderKey,
    Project,
    Relation,
    Scalar,
    Union,
)
from foreshore.types import BOOL, INT4, INT8, TEXT, ColumnType


def series(first: int, last: int, step: int = 1, *, numbered: bool = False) -> Relation:
    columns = (ColumnType(INT4, True), *((ColumnType(INT8, False),) if numbered else ()))
    args = tuple(Literal(each, INT4) for each in (first, last, step))
    return FlatMap(Join(()), "generate_series(int4,int4,int4)", args, columns)


def repeated(relation: Relation, text: Scalar, count: Scalar) -> Relation:
    return Map(relation, (Call("repeat(text,int4)", (text, count), TEXT),))


FIRST = Column(0, INT4)
X, THOUSAND = Literal("x", TEXT), Literal(1000, INT4)
VALUES = Constant(tuple(((i, "t" * (i % 7)), 1) for i in range(3000)),
                  (ColumnType(INT4, True), ColumnType(TEXT, True)))  # fmt: skip
ODD = Call("eq", (Call("modulo(int4,int4)", (FIRST, Literal(2, INT4)), INT4),
                            Literal(1, INT4)), BOOL)  # fmt: skip
PLANS = {
    "series": series(1, 50_000),
    "down": series(50_000, -3, -7),
    "nothing": series(2, 1),
    "numbered": series(5, 20_000, 3, numbered=True),
    "wide": repeated(series(1, 3_000), X, THOUSAND),
    "values": VALUES,
    "series of each": FlatMap(
        series(1, 60), "generate_series(int4,int4)", (Literal(1, INT4), FIRST),
        (ColumnType(INT4, True),)),
    "projected": Project(repeated(series(1, 900), X, THOUSAND), (1, 0, 0)),
    "let": Let(0, series(1, 40), Union((
        LocalGet(0, (ColumnType(INT4, True),)), series(7, 9_000)))),
}  # fmt: skip


def rows_of(parts: Iterator[pa.Table]) -> list[dict[str, object]]:
    return [row for part in parts for row in part.to_pylist()]


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("size", [1 << 10, 1 << 16, 1 << 26])
def test_a_stream_has_the_rows_of_the_whole_in_order(plan: str, size: int) -> None:
    relation = PLANS[plan]
    assert can_stream(relation)
    found = rows_of(streamed(relation, {}, Pace(size)))
    assert found == evaluate_linear(relation).to_pylist()


def test_a_filter_over_a_stream_has_the_rows_that_pass() -> None:
    relation = Filter(series(1, 10_000), (ODD,))
    assert can_stream(relation)
    assert len(rows_of(streamed(relation, {}, Pace(1 << 10)))) == 5_000


def test_widths_that_are_unknown_before_are_left_to_a_process_of_their_own() -> None:
    assert not can_stream(repeated(series(1, 700), X, FIRST))


def test_evaluation_does_not_run_ahead_of_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    made = 0

    def counted(*args: object) -> object:
        nonlocal made
        rows = applied(*args)  # type: ignore[arg-type]
        made += rows.count
        return rows

    monkeypatch.setattr(module, "applied", counted)
    relation = repeated(series(1, 2_000_000_000), X, THOUSAND)
    parts = streamed(relation, {}, Pace(1 << 16))
    read = sum(part.num_rows for part in islice(parts, 5))
    assert 0 < read == made < 10_000


def test_batches_have_about_the_size_that_was_asked_for() -> None:
    pace = Pace(1 << 14)
    parts = streamed(repeated(series(1, 2_000_000_000), X, THOUSAND), {}, pace)
    assert max(part.nbytes for part in islice(parts, 10)) < 2 << 14
    pace.size = 1 << 18
    next(parts)  # made for the old size
    assert 1 << 17 < max(part.nbytes for part in islice(parts, 10)) < 2 << 18


def test_rows_that_are_too_wide_together_come_in_smaller_pieces() -> None:
    relation = repeated(series(1, 64), Literal("x" * 1000, TEXT), FIRST)
    parts = list(streamed(relation, {}, Pace(1 << 30, most=100_000)))
    assert len(parts) > 1
    assert sum(part.num_rows for part in parts) == 64
    with pytest.raises(OutOfMemory):
        list(streamed(relation, {}, Pace(1 << 30, most=50_000)))


def test_a_stream_without_rows_observes_a_cancellation() -> None:
    checks = 0

    def check() -> None:
        nonlocal checks
        checks += 1
        if checks > 3:
            raise QueryCanceled

    never = Filter(series(1, 2_000_000_000), (Literal(False, BOOL),))
    with pytest.raises(QueryCanceled):
        list(streamed(never, {}, Pace(), check))


def test_an_error_comes_after_the_batches_before_it() -> None:
    ten = Literal(1000, INT4)
    divided = Call(
        "divide(int4,int4)", (ten, Call("subtract(int4,int4)", (FIRST, ten), INT4)), INT4
    )
    parts = streamed(Map(series(1, 100_000), (divided,)), {}, Pace(1 << 10))
    assert next(parts).num_rows
    with pytest.raises(DataError, match="division by zero"):
        list(parts)


def test_numbers_of_a_series_are_the_order_of_a_stream() -> None:
    numbered = series(1, 10, numbered=True)
    key = OrderKey(Column(1, INT8))
    assert comes_in_order(Project(numbered, (0, 1)), (key,))
    assert not comes_in_order(Project(numbered, (1, 0)), (key,))
    assert not comes_in_order(numbered, (OrderKey(Column(1, INT8), descending=True),))
    assert comes_in_order(series(1, 10), ())
    assert not comes_in_order(Union((numbered, numbered)), (key,))
