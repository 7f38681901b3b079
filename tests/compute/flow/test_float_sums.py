"""Sums and comoments of floats are those of `exact`, bit for bit, however rows come and go."""

import struct
from collections import Counter
from collections.abc import Callable
from random import Random

import pyarrow as pa
import pytest

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Input
from foreshore.compute.flow.collection import Collections
from foreshore.compute.flow.dataflow import FlowDataflow
from foreshore.compute.flow.intern import Interner
from foreshore.compute.protocol import DataflowDescription
from foreshore.compute.render.exact import comoment_float, sum_float
from foreshore.expr.ir import Aggregate, Column, Get, Reduce
from foreshore.ids import GlobalId
from foreshore.types import FLOAT8, INT4, ColumnType
from foreshore.update import update_schema

TABLE = Get(GlobalId("u1"), (ColumnType(INT4, False), ColumnType(FLOAT8), ColumnType(FLOAT8)))
SCHEMA = pa.schema({"k": pa.int32(), "x": pa.float64(), "y": pa.float64()})
SUM = Aggregate("sum_float", (Column(1, FLOAT8),), FLOAT8)
COMOMENT = Aggregate("comoment_float", (Column(1, FLOAT8), Column(2, FLOAT8)), FLOAT8)
Entry = tuple[float | None, float | None, int]  # x, y, multiplicity
LIMITS = (2.0**-107, 2.0**-108, 2.0**159, 2.0**160 - 2.0**107, 2.0**160, 1.7976931348623157e308)
SPECIAL = (0.0, -0.0, float("inf"), float("-inf"), float("nan"), 5e-324, 2.2250738585072014e-308)


def ordinary(random: Random) -> float:
    return random.choice((random.gauss(0, 1), random.gauss(0, 1e9), 0.1, -0.1, 1e20, 2.0**-60))


def any_float(random: Random) -> float:
    sign = random.choice((1.0, -1.0))
    special = random.choice((*SPECIAL[:2], *SPECIAL[5:], *LIMITS))
    infinite = random.choice(SPECIAL[2:5]) if random.random() < 0.1 else special
    bits = random.getrandbits(64) & ~(1 << 62 if random.random() < 0.5 else 0)
    (noise,) = struct.unpack("d", struct.pack("Q", bits))
    return random.choice((ordinary(random), sign * infinite, noise if noise == noise else 1.0))


def bits_of(value: float | None) -> bytes | None:
    """Return the bits; all NaNs have the same."""
    return None if value is None else b"nan" if value != value else struct.pack("d", value)


def table(rows: list[tuple[int, float | None, float | None, int, int]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), (), (), ()]
    types = (pa.int32(), pa.float64(), pa.float64(), pa.int64(), pa.int64())
    arrays = [pa.array(c, t, from_pandas=False) for c, t in zip(columns, types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=update_schema(SCHEMA))


AGGREGATES = {
    "sum": SUM,
    "distinct sum": Aggregate("sum_float", (Column(1, FLOAT8),), FLOAT8, True),
    "comoment": COMOMENT,
    "variance": Aggregate("comoment_float", (Column(1, FLOAT8),) * 2, FLOAT8),
}


@pytest.mark.parametrize("name", AGGREGATES)
@pytest.mark.parametrize("draw", [ordinary, any_float])
def test_results_are_exact_when_rows_come_and_go(
    draw: Callable[[Random], float], name: str
) -> None:
    bulk = DuckDbEngine(threads=1)
    aggregate = AGGREGATES[name]
    view = Reduce(TABLE, (Column(0, INT4, False),), (aggregate,))
    random = Random(name)
    many = 1 << 40 if draw is ordinary else 1 << 5
    for _ in range(4):
        description = DataflowDescription(GlobalId("t1"), view, (TABLE.id,), (), 1)
        flow = FlowDataflow(description, bulk, Collections(Interner(), 1))
        rows: Counter[tuple[int, int, int]] = Counter()  # group, numbers of the values
        values = [None, *(draw(random) for _ in range(40))]
        shown: dict[int, bytes | None] = {}
        for time in range(1, 40):
            updates = []
            for _ in range(random.randint(0, 12)):
                x = random.randrange(len(values))
                row = random.randrange(3), x, (x * 7 + random.randrange(3)) % len(values)
                diff = random.choice((1, 1, 2, many, -rows[row], -rows[row]))
                rows[row] += diff
                if diff:
                    updates.append((row[0], values[row[1]], values[row[2]], time, diff))
            if time == 1:
                out = flow.hydrate({TABLE.id: Input(SCHEMA, (), (table(updates),))})
            else:
                out = flow.step(time, time + 1, {TABLE.id: table(updates)})
            follow(shown, out.rows)
            groups: dict[int, list[Entry]] = {}
            for (group, i, j), count in rows.items():
                if count:
                    groups.setdefault(group, []).append((values[i], values[j], count))
            assert shown == {g: bits_of(expected(aggregate, of)) for g, of in groups.items()}
    bulk.close()


def follow(shown: dict[int, bytes | None], updates: pa.Table) -> None:
    """Apply updates: retractions of what is shown first, then insertions."""
    changes = list(zip(*(column.to_pylist() for column in updates.columns), strict=True))
    for group, value, _, diff in sorted(changes, key=lambda each: each[-1]):
        if diff < 0:
            assert shown.pop(group) == bits_of(value)
        else:
            assert group not in shown
            shown[group] = bits_of(value)


def expected(aggregate: Aggregate, entries: list[Entry]) -> float | None:
    """Return what the exact functions give for a group."""
    if aggregate.function == "sum_float":
        found = [(x, d) for x, _, d in entries if x is not None]
        if aggregate.distinct:
            found = [(x, 1) for x in {struct.pack("d", x + 0.0): x for x, _ in found}.values()]
        return sum_float(found) if found else None
    same = aggregate.args[0] == aggregate.args[1]
    pairs = [(x, x if same else y, d) for x, y, d in entries]
    both = [(x, y, d) for x, y, d in pairs if x is not None and y is not None]
    return comoment_float(both) if both else None
