"""After a large query the process is as small as before it."""

import subprocess
import sys
from pathlib import Path

import pytest

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.local.linear import evaluate_linear
from foreshore.compute.render.render import FEW_NUMBERS
from foreshore.expr.ir import Aggregate, Call, Column, FlatMap, Join, Literal, Map, Reduce, Relation
from foreshore.memory import giving_back, resident_bytes
from foreshore.types import INT4, INT8, TEXT, ColumnType
from tests.harness import until

MUCH = 80 << 20


def peak(*, reset: bool = False) -> int:
    """Return the most bytes that this process has had since the last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    (size,) = (int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
    return size


def distinct_texts(count: int) -> Relation:
    """Return the number of different texts of 100 characters."""
    args = (Literal(1, INT4), Literal(count, INT4))
    series = FlatMap(Join((), ()), "generate_series(int4,int4)", args, (ColumnType(INT4, False),))
    number = Call("cast(int4,text)", (Column(0, INT4),), TEXT)
    padded = Call("lpad(text,int4)", (number, Literal(100, INT4)), TEXT)
    groups = Reduce(Map(series, (padded,)), (Column(1, TEXT),), ())
    return Reduce(groups, (), (Aggregate("count", (), INT8),))


def test_memory_of_a_large_query_is_given_back() -> None:
    """In a process of its own: what other tests have left there would be used again."""
    check = f"from {__name__} import {check_given_back.__name__} as check; check()"
    subprocess.run([sys.executable, "-c", check], cwd=Path(__file__).parents[3], check=True)


def check_given_back() -> None:
    engine = DuckDbEngine()
    try:
        engine.evaluate(distinct_texts(10), {}, 0)
        before, _ = resident_bytes(), peak(reset=True)

        def evaluate() -> None:
            rows = engine.evaluate(distinct_texts(1_000_000), {}, 0)
            assert rows["c0"].to_pylist() == [1_000_000]

        giving_back(evaluate)()
        assert peak() - before > MUCH
        until(lambda: resident_bytes() < before + MUCH, "the memory is given back")
    finally:
        engine.close()


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("bounds", [(1, 3000), (-5, 8000, 3), (7000, -7, -4), (5, 2**62, 2**50)])
def test_long_series_has_rows_of_list(bounds: tuple[int, ...], numbered: bool) -> None:
    args = tuple(Literal(each, INT8) for each in bounds)
    columns = (ColumnType(INT8, False),) * (1 + numbered)
    types = ",".join(["int8"] * len(args))
    series = FlatMap(Join(()), f"generate_series({types})", args, columns)
    rows = evaluate_linear(series).to_pylist()
    assert len(rows) > FEW_NUMBERS
    engine = DuckDbEngine()
    try:
        found = engine.evaluate(series, {}, 0).to_pylist()
    finally:
        engine.close()
    assert sorted(map(str, found)) == sorted(map(str, rows))


def test_series_of_ten_million_takes_no_memory_for_its_numbers() -> None:
    args = (Literal(1, INT4), Literal(10_000_000, INT4))
    series = FlatMap(Join(()), "generate_series(int4,int4)", args, (ColumnType(INT4, False),))
    engine = DuckDbEngine(memory_limit="64MB")
    try:
        engine.evaluate(distinct_texts(10), {}, 0)
        before = peak(reset=True)
        rows = engine.evaluate(Reduce(series, (), (Aggregate("count", (), INT8),)), {}, 0)
        grown = peak() - before
    finally:
        engine.close()
    assert rows["c0"].to_pylist() == [10_000_000]
    assert grown < MUCH  # a list of them has 80 MB
