"""After a large query the process is as small as before it."""

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.expr.ir import Aggregate, Call, Column, FlatMap, Join, Literal, Map, Reduce, Relation
from foreshore.memory import giving_back, resident_bytes
from foreshore.types import INT4, INT8, TEXT, ColumnType
from tests.harness import until

MUCH = 80 << 20


def distinct_texts(count: int) -> Relation:
    """Return the number of different texts of 100 characters."""
    args = (Literal(1, INT4), Literal(count, INT4))
    series = FlatMap(Join((), ()), "generate_series(int4,int4)", args, (ColumnType(INT4, False),))
    number = Call("cast(int4,text)", (Column(0, INT4),), TEXT)
    padded = Call("lpad(text,int4)", (number, Literal(100, INT4)), TEXT)
    groups = Reduce(Map(series, (padded,)), (Column(1, TEXT),), ())
    return Reduce(groups, (), (Aggregate("count", (), INT8),))


def test_memory_of_a_large_query_is_given_back() -> None:
    engine = DuckDbEngine()
    try:
        engine.evaluate(distinct_texts(10), {}, 0)
        before = resident_bytes()
        grown: list[int] = []

        def evaluate() -> None:
            rows = engine.evaluate(distinct_texts(1_000_000), {}, 0)
            assert rows["c0"].to_pylist() == [1_000_000]
            grown.append(resident_bytes() - before)

        giving_back(evaluate)()
        assert grown[0] > MUCH
        until(lambda: resident_bytes() < before + MUCH, "the memory is given back")
    finally:
        engine.close()
