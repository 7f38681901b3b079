"""Sums of floats are those of `exact.sum_float`, bit for bit, however rows come and go."""

import struct
from collections import Counter
from collections.abc import Callable
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.bulk.exact import sum_float
from foreshore.compute.engine import Input
from foreshore.compute.flow.collection import Collections
from foreshore.compute.flow.dataflow import FlowDataflow
from foreshore.compute.flow.intern import Interner
from foreshore.compute.protocol import DataflowDescription
from foreshore.expr.ir import Aggregate, Column, Get, Reduce
from foreshore.ids import GlobalId
from foreshore.types import FLOAT8, INT4, ColumnType
from foreshore.update import update_schema

TABLE = Get(GlobalId("u1"), (ColumnType(INT4, False), ColumnType(FLOAT8)))
SCHEMA = pa.schema({"k": pa.int32(), "x": pa.float64()})
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


def table(rows: list[tuple[int, float | None, int, int]]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    types = (pa.int32(), pa.float64(), pa.int64(), pa.int64())
    arrays = [pa.array(c, t, from_pandas=False) for c, t in zip(columns, types, strict=True)]
    return pa.Table.from_arrays(arrays, schema=update_schema(SCHEMA))


@pytest.mark.parametrize("distinct", [False, True])
@pytest.mark.parametrize("draw", [ordinary, any_float])
def test_sums_are_exact_when_rows_come_and_go(
    draw: Callable[[Random], float], distinct: bool
) -> None:
    bulk = DuckDbEngine(threads=1)
    aggregate = Aggregate("sum_float", (Column(1, FLOAT8),), FLOAT8, distinct)
    view = Reduce(TABLE, (Column(0, INT4, False),), (aggregate,))
    random = Random(str(distinct))
    many = 1 << 40 if draw is ordinary else 1 << 5
    for _ in range(4):
        description = DataflowDescription(GlobalId("t1"), view, (TABLE.id,), (), 1)
        flow = FlowDataflow(description, bulk, Collections(Interner(), 1))
        rows: Counter[tuple[int, int]] = Counter()  # group, number of the value
        values = [None, *(draw(random) for _ in range(40))]
        shown: dict[int, bytes | None] = {}
        for time in range(1, 40):
            updates = []
            for _ in range(random.randint(0, 12)):
                row = random.randrange(3), random.randrange(len(values))
                diff = random.choice((1, 1, 2, many, -rows[row], -rows[row]))
                rows[row] += diff
                if diff:
                    updates.append((row[0], values[row[1]], time, diff))
            if time == 1:
                inputs = {TABLE.id: Input(SCHEMA, (), (table(updates),))}
                out = flow.hydrate(inputs)
            else:
                out = flow.step(time, time + 1, {TABLE.id: table(updates)})
            for diff in (-1, 1):
                for group, total, _, found in zip(
                    *(c.to_pylist() for c in out.rows.columns), strict=True
                ):
                    if found == diff < 0:
                        assert shown.pop(group) == bits_of(total)
                    elif found == diff:
                        shown[group] = bits_of(total)
            assert shown == expected(rows, values, distinct)
    bulk.close()


def expected(
    rows: Counter[tuple[int, int]], values: list[float | None], distinct: bool
) -> dict[int, bytes | None]:
    groups: dict[int, list[tuple[float, int]]] = {}
    for (group, number), count in rows.items():
        if count > 0:
            value, entries = values[number], groups.setdefault(group, [])
            if value is not None:
                entries.append((value, count))
    if distinct:
        groups = {
            group: [
                (np.frombuffer(bits)[0], 1) for bits in {struct.pack("d", x + 0.0) for x, _ in g}
            ]
            for group, g in groups.items()
        }
    return {g: bits_of(sum_float(entries) if entries else None) for g, entries in groups.items()}
