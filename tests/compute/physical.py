"""A table with a column of each type, and rows at the ends of their ranges."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pyarrow.parquet as pq

from foreshore.compute.engine import Engine, Input
from foreshore.compute.protocol import DataflowDescription
from foreshore.expr.columns import columns_of
from foreshore.expr.evaluate import evaluate
from foreshore.expr.ir import Call, Column, Filter, Get, Literal, Map, Project, Union
from foreshore.ids import GlobalId
from foreshore.types import (
    BOOL,
    BYTEA,
    DATE,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    INTERVAL,
    JSONB,
    NUMERIC,
    TEXT,
    TIME_OF_DAY,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    ColumnType,
    SqlType,
    array_of,
    numeric,
)
from tests.compute.cases import START, rows_of, schema_of, updates
from tests.model import Row

_INFINITY = float("inf")
_MOST = 2**63 - 1

# For each type its least, greatest and an ordinary value.
VALUES = {
    BOOL: (False, True, True),
    BYTEA: (b"", b"\xff\x00", b"abc"),
    INT2: (-(2**15), 2**15 - 1, 7),
    INT4: (-(2**31), 2**31 - 1, 7),
    INT8: (-(2**63), _MOST, 7),
    FLOAT4: (-_INFINITY, _INFINITY, 1.5),
    FLOAT8: (-_INFINITY, 1.7976931348623157e308, 0.1),
    numeric(10, 2): ("-99999999.99", "99999999.99", "0.10"),
    NUMERIC: ("-999999999999999999", "999999999999999999.99999999999999999999", "0.1"),
    TEXT: ("", "\U0010ffff'\\$\n", "äß"),
    DATE: (-(2**31), 2**31 - 1, -719_162),
    TIME_OF_DAY: (0, 86_400_000_000, 3_600_000_000),
    TIMESTAMP: (-(2**63), _MOST, -62_135_596_800_000_000),
    TIMESTAMPTZ: (-(2**63), _MOST, 1_700_000_000_000_001),
    INTERVAL: ((-(2**31), -1, -(2**62)), (2**31 - 1, 1, 2**62), (1, -2, 3)),
    UUID: (bytes(16), b"\xff" * 16, bytes(range(16))),
    JSONB: ("null", '{"a": [1.0, "\\u00e4"]}', "1"),
    array_of(INT4): ((), (1, None, 2), (0,)),
    array_of(TEXT): ((None,), ("", "b"), ("a",)),
}
COLUMNS = tuple(ColumnType(type) for type in VALUES)
TABLE = Get(GlobalId("u1"), COLUMNS)
ROWS: list[Row] = [
    *(tuple(values[i] for values in VALUES.values()) for i in range(3)),
    (None,) * len(VALUES),
]


def check_every_type(engine: Engine, directory: Path) -> None:
    """Assert that values of all types round-trip through files, tables and contents."""
    file = str(directory / "batch.parquet")
    pq.write_table(updates(COLUMNS, [(row, START, 2) for row in ROWS]), file)
    entries = [(row, START, -1) for row in ROWS] + [(ROWS[0], START + 5, 1)]
    input = Input(schema_of(COLUMNS), (file,), (updates(COLUMNS, entries),))
    wanted = Counter(dict.fromkeys(ROWS, 1))
    result = engine.evaluate(TABLE, {TABLE.id: input}, START)
    assert rows_of(result, columns_of(TABLE)) == wanted
    description = DataflowDescription(GlobalId("t1"), TABLE, (TABLE.id,), (), START)
    dataflow = engine.create(description, {TABLE.id: schema_of(COLUMNS)})
    assert rows_of(dataflow.hydrate({TABLE.id: input}).rows, COLUMNS) == wanted
    delta = updates(COLUMNS, [(row, START + 1, -1) for row in ROWS])
    output = dataflow.step(START + 1, START + 2, {TABLE.id: delta})
    assert rows_of(output.rows, COLUMNS) == Counter(dict.fromkeys(ROWS, -1))
    dataflow.close()


# Looks like a partition and a pattern; the other names match the pattern in DuckDB and Spark.
PLACES = tuple(f'Col "0"=7/{name}' for name in ("x[1]{2}*?", "x1{2}ab", "x12a"))


def check_paths(engine: Engine, directory: Path) -> None:
    """Assert that reading a file in one of the PLACES returns only its own contents."""
    files = [directory / place / "batch.parquet" for place in PLACES]
    for file, row in zip(files, ROWS, strict=False):
        file.parent.mkdir(parents=True)
        pq.write_table(updates(COLUMNS, [(row, START, 1)]), file)
    for file, row in zip(files, ROWS, strict=False):
        input = Input(schema_of(COLUMNS), (str(file),))
        result = engine.evaluate(TABLE, {TABLE.id: input}, START)
        assert rows_of(result, columns_of(TABLE)) == {row: 1}


# Statistics of a file's column do not include it.
_NAN = float("nan")
_MORE = {FLOAT4: (_NAN, -0.0, 0.0), FLOAT8: (_NAN, -0.0, 0.0)}


def check_comparisons(engine: Engine, directory: Path, types: Iterable[SqlType]) -> None:
    """Assert that comparisons of values in files with constants follow SQL."""
    for number, type in enumerate(types):
        values = [*VALUES[type], *_MORE.get(type, ())]
        table = Get(GlobalId("u1"), (ColumnType(INT4), ColumnType(type)))
        column = Column(1, type)
        files = []
        for i, value in enumerate([*values, None]):  # each with statistics of its own
            other = None if value is None else values[2]  # nothing extreme
            rows = updates(
                table.columns, [((2 * i, value), START, 1), ((2 * i + 1, other), START, 1)]
            )
            files.append(str(directory / f"{number}-{i}.parquet"))
            pq.write_table(rows, files[-1])
        held = pq.read_table(files, schema=rows.schema).combine_chunks().columns
        predicates = [
            Call(operator, (column, Literal(value, type)), BOOL)
            for operator in ("eq", "lt", "le", "gt", "ge")
            for value in values
        ]
        marked = Union(
            tuple(
                Project(Map(Filter(table, (predicate,)), (Literal(i, INT4),)), (0, 2))
                for i, predicate in enumerate(predicates)
            )
        )
        arrays = [array.combine_chunks() for array in held[:-2]]
        wanted: Counter[Row] = Counter()
        for i, predicate in enumerate(predicates):
            holds = evaluate(predicate, arrays, len(arrays[0])).to_pylist()
            wanted.update((n, i) for n, h in zip(arrays[0].to_pylist(), holds, strict=True) if h)
        input = Input(schema_of(table.columns), tuple(files))
        result = engine.evaluate(marked, {table.id: input}, START)
        assert rows_of(result, columns_of(marked)) == wanted, type
