"""Orders and groups of documents, intervals and arrays: equal values may look different."""

from collections import Counter
from collections.abc import Iterator
from random import Random

import pytest

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.flow import hydration, ordered
from foreshore.compute.flow.engine import FlowEngine
from foreshore.expr.ir import (
    Aggregate,
    Column,
    Get,
    Join,
    OrderKey,
    Reduce,
    Relation,
    TopK,
    Window,
    WindowFunction,
    count_all,
)
from foreshore.expr.ir import Literal as Constant
from foreshore.ids import GlobalId
from foreshore.types import (
    FLOAT8,
    INT4,
    INT8,
    INTERVAL,
    JSONB,
    TEXT,
    ColumnType,
    SqlType,
    array_of,
)
from tests.compute.cases import Case, check_maintained
from tests.compute.without_bulk import WithoutBulk
from tests.model import NAN, NEGATIVE_ZERO

INTS, FLOATS, TEXTS = array_of(INT4), array_of(FLOAT8), array_of(TEXT)
DAY = 86_400_000_000
VALUES = {
    INT4: (0, 1),
    JSONB: (
        "1", "1.0", "1.00", '"1"', "[1]", "[1.0, null]", "[]", "{}", '{"a": 1}', '{"a": 1.0}',
        '{"b": [true]}', "null", "false",
    ),
    INTERVAL: (
        (0, 1, 0), (0, 0, DAY), (0, 2, -DAY), (0, -1, 2 * DAY), (1, 0, 0), (0, 30, 0), (0, 0, 0),
        (1, -30, 0), (0, -1, DAY), (-1, 0, 0),
    ),
    INTS: ((), (1,), (1, 2), (1, None), (2,), (-3, 1), (None,)),
    FLOATS: ((0.0,), (NEGATIVE_ZERO,), (NAN, None), (0.0, NEGATIVE_ZERO), (-1.5,)),
    TEXTS: (("a",), ("a", "b"), ("ab",), ("",), (), (None, "a")),
}  # fmt: skip
TYPES = tuple(VALUES)
TABLE = Get(GlobalId("u9"), (ColumnType(INT4, False), *map(ColumnType, TYPES[1:])))


def column(type: SqlType) -> Column:
    return Column(TYPES.index(type), type, type != INT4)


def plans() -> dict[str, Relation]:
    found: dict[str, Relation] = {}
    for type in TYPES[1:]:
        value, name = column(type), str(type)
        pair = (column(INT4),)
        order = (OrderKey(value, descending=True, nulls_first=False),)
        found |= {
            f"first of {name}": TopK(TABLE, (0,), order, Constant(2, INT8), Constant(1, INT8)),
            f"distinct {name}": Reduce(TABLE, (value,), ()),
            f"count by {name}": Reduce(TABLE, (value, *pair), (count_all(),)),
            f"list by {name}": Reduce(
                TABLE, pair, (Aggregate("array_agg", (column(INT4),), INTS, order_by=order),)
            ),
            f"number by {name}": Window(
                TABLE, (0,), order, (WindowFunction("row_number", (), INT8),)
            ),
            f"rank by {name}": Window(TABLE, (), order, (WindowFunction("rank", (), INT8),)),
            f"count distinct {name}": Reduce(
                TABLE, pair, (Aggregate("count", (value,), INT8, distinct=True),)
            ),
            f"join by {name}": Reduce(
                Join((TABLE, TABLE), ((value, Column(value.index + len(TYPES), type)),)),
                (value,),
                (count_all(),),
            ),
        }  # fmt: skip
        if type in (JSONB, INTERVAL):
            listed = Aggregate("array_agg", (value,), array_of(type))
            found[f"list of {name}"] = Reduce(TABLE, pair, (listed,))
        if type != JSONB:
            extremes = tuple(Aggregate(name, (value,), type) for name in ("min", "max"))
            found[f"extremes of {name}"] = Reduce(TABLE, pair, extremes)
    return found


PLANS = plans()


@pytest.fixture(scope="module")
def engine() -> Iterator[FlowEngine]:
    """Yield one engine for all cases; what it has no operator for raises Unsupported."""
    bulk = DuckDbEngine(threads=1)
    yield WithoutBulk(bulk)
    bulk.close()


@pytest.mark.parametrize("name", PLANS)
def test_each_plan_is_exact_at_every_time(
    name: str, engine: FlowEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(name)
    monkeypatch.setattr(ordered, "EAGER", 4)
    for number in range(4):
        monkeypatch.setattr(hydration, "BULK_ROWS", 0 if number % 2 else 1 << 60)
        history = [{TABLE.id: _rows(random)} for _ in range(6)]
        cuts = frozenset(random.sample(range(2, 6), random.randint(0, 4)))
        check_maintained(engine, Case(PLANS[name], history, cuts))


def _rows(random: Random) -> Counter[tuple[object, ...]]:
    rows: Counter[tuple[object, ...]] = Counter()
    for _ in range(random.randint(0, 7)):
        columns = zip(TYPES, TABLE.columns, strict=True)
        row = tuple(
            random.choice((*VALUES[t], None) if c.nullable else VALUES[t]) for t, c in columns
        )
        rows[row] += random.randint(1, 2)
    return rows
