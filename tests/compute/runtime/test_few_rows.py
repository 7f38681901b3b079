"""A peek over indexes with few rows is answered without an engine, and as an engine would."""

from dataclasses import dataclass
from typing import Any, cast

import pyarrow as pa
import pytest

from foreshore.compute import peek as peeks
from foreshore.compute.arrange.arrangement import Arrangement
from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Cancellation
from foreshore.compute.output import IndexRows
from foreshore.compute.peek import LocalIndex, answer_by_engine
from foreshore.compute.protocol import Peek
from foreshore.errors import DataError
from foreshore.expr.ir import Aggregate, Call, Column, Get, Join, Literal, Map, Reduce, count_all
from foreshore.ids import GlobalId
from foreshore.types import INT4, TEXT, ColumnType, numeric_of_scale

ROWS = pa.RecordBatch.from_pydict(
    {"k": pa.array([1, 2, 2, None], pa.int32()), "v": pa.array(["a", "b", None, "a"])}
)
GET = Get(GlobalId("u1"), (ColumnType(INT4), ColumnType(TEXT)))
K = Column(0, INT4)
QUOTIENT = Call("divide(int4,int4)", (Literal(6, INT4), K), INT4)
SUM = Aggregate("sum", (K,), numeric_of_scale(0))
PLANS = {
    "count": Reduce(GET, (), (count_all(),)),
    "groups": Reduce(GET, (Column(1, TEXT),), (count_all(), SUM)),
    "join": Join((GET, GET), ((K, Column(2, INT4)),)),
    "quotients": Map(GET, (QUOTIENT,)),
}


@dataclass
class Rows:
    """The rows of an index at any time."""

    batch: pa.RecordBatch

    @property
    def size(self) -> tuple[int, int, int]:
        return self.batch.num_rows, 1, self.batch.nbytes

    def scan(self, time: int) -> pa.RecordBatch:
        return self.batch


class NoErrors:
    size = (0, 0, 0)


class NoEngine:
    """Fails when it is used."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(name)


def answer(plan: Any, engine: Any, rows: pa.RecordBatch = ROWS) -> list[Any]:
    index = LocalIndex(cast(IndexRows, Rows(rows)), cast(Arrangement, NoErrors()))
    peek = Peek(1, 5, plan, None, indexes={GET.id: GlobalId("u2")})
    parts = answer_by_engine(peek, engine, {}, {GET.id: index}, Cancellation())
    return sorted(([*row.values()] for part in parts for row in part.to_pylist()), key=repr)


@pytest.fixture(scope="module")
def duckdb() -> DuckDbEngine:
    return DuckDbEngine(threads=1)


@pytest.mark.parametrize("name", PLANS)
def test_few_rows_are_evaluated_without_an_engine(
    name: str, duckdb: DuckDbEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = answer(PLANS[name], NoEngine())
    monkeypatch.setattr(peeks, "FEW_INDEXED", -1)
    assert found == answer(PLANS[name], duckdb)


def test_error_in_few_rows_is_the_engines(duckdb: DuckDbEngine) -> None:
    zeros = pa.RecordBatch.from_pydict({"k": pa.array([0], pa.int32()), "v": pa.array(["a"])})
    with pytest.raises(DataError, match="division by zero"):
        answer(PLANS["quotients"], duckdb, zeros)
