"""Random scalars over random columns: kernels and DuckDB's SQL agree in values and errors.

Kernels also agree with themselves for whole columns and single rows, and a folded scalar agrees
with the original.
"""

import math
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from foreshore.compute.render.duckdb_dialect import DuckDbDialect, register_duckdb
from foreshore.datum import from_array, to_array
from foreshore.errors import DataError
from foreshore.expr.columns import type_of
from foreshore.expr.evaluate import fallible, fold, outcome
from foreshore.expr.functions.decimals import rescale
from foreshore.expr.functions.jsontext import dumps, json_key_text, json_order_bytes
from foreshore.expr.ir import And, Call, Case, Column, ErrorOf, Literal, Or, Scalar
from foreshore.expr.pointwise import compiled
from foreshore.types import (
    BOOL,
    DATE,
    FLOAT8,
    INT4,
    INT8,
    INTERVAL,
    JSONB,
    TEXT,
    TIMESTAMP,
    SqlType,
    numeric,
)
from tests.effort import examples
from tests.functions.parity import scalar_of
from tests.model import ordinal

MONEY = numeric(10, 2)
TYPES = (BOOL, INT4, INT8, FLOAT8, MONEY, TEXT, DATE, TIMESTAMP, INTERVAL)
DATA: dict[SqlType, st.SearchStrategy[Any]] = {
    BOOL: st.booleans(),
    INT4: st.sampled_from([0, 1, -1, 2, 7, 2**31 - 1, -(2**31)]),
    INT8: st.sampled_from([0, 1, -1, 3, 2**63 - 1, -(2**63)]),
    FLOAT8: st.sampled_from([0.0, -0.0, 1.5, -2.0, 1e300, -1e-300, math.nan, math.inf]),
    MONEY: st.sampled_from(["0", "1.50", "-1.50", "99999999.99", "0.01"]),
    TEXT: st.sampled_from(["", "a", "A%", "12", "é\\", "x'y"]),
    DATE: st.sampled_from([0, 19_000, -1, 2**31 - 1, -(2**31)]),
    TIMESTAMP: st.sampled_from([0, 1_700_000_000_123_456, -1, 2**63 - 1, -(2**63)]),
    INTERVAL: st.sampled_from(
        [(0, 0, 0), (1, 0, 0), (0, 30, 0), (-13, 5, 7), (0, 0, 86_400_000_000)]
    ),
}
COMPARED = ("=", "<>", "<", "<=", ">", ">=")
ROWS = 5


def columns_of(data: st.DataObject) -> list[pa.Array]:
    return [
        to_array(data.draw(st.lists(st.none() | DATA[t], min_size=ROWS, max_size=ROWS)), t)
        for t in TYPES
    ]


@cache
def scalars(type: SqlType, depth: int) -> st.SearchStrategy[Scalar]:
    """Return a strategy for scalars of `type` with calls to a depth of `depth`."""
    leaves: list[st.SearchStrategy[Scalar]] = [
        st.just(Column(TYPES.index(type), type)),
        (st.none() | DATA[type]).map(lambda d: Literal(d, type)),
    ]
    if depth == 0:
        return st.one_of(leaves)

    def make(name: str, *types: SqlType) -> st.SearchStrategy[Scalar]:
        parts = [scalars(t, depth - 1) for t in types]
        return st.tuples(*parts).map(lambda args: typed(scalar_of(name, list(args)), type))

    calls: list[st.SearchStrategy[Scalar]] = [
        st.tuples(scalars(BOOL, depth - 1), scalars(type, depth - 1), scalars(type, depth - 1)).map(
            lambda p: Case(((p[0], p[1]),), p[2], type)
        ),
        make("coalesce", type, type),
        make("nullif", type, type),
    ]
    if type in (INT4, INT8, FLOAT8):
        calls += [make(op, type, type) for op in "+-*/"]
        calls += [make("-", type), make("abs", type)]
    if type in (INT4, INT8):
        calls.append(make("%", type, type))
    if type == BOOL:
        calls += [make(op, t, t) for t in TYPES for op in COMPARED]
        calls += [make("is distinct from", t, t) for t in TYPES]
        calls += [make("<", MONEY, INT4), make("=", INT4, INT8), make("=", DATE, TIMESTAMP)]
        pair = st.tuples(scalars(BOOL, depth - 1), scalars(BOOL, depth - 1))
        calls += [pair.map(And), pair.map(Or), pair.map(lambda p: And((p[0], Or(p))))]
        calls += [scalars(t, depth - 1).map(lambda s: Call("is_null", (s,), BOOL)) for t in TYPES]
        calls.append(scalars(BOOL, depth - 1).map(lambda s: Call("not", (s,), BOOL)))
        calls.append(make("~~", TEXT, TEXT))
    if type == INT4:
        calls += [make("cast int4", TEXT), make("cast int4", INT8), make("cast int4", FLOAT8)]
        calls += [make("length", TEXT), make("cast int4", MONEY)]
    if type == INT8:
        calls += [make("cast int8", INT4), make("cast int8", FLOAT8)]
    if type == FLOAT8:
        calls += [make("cast float8", INT4), make("cast float8", MONEY), make("sqrt", FLOAT8)]
    if type == MONEY:
        calls += [
            st.tuples(scalars(MONEY, depth - 1), scalars(MONEY, depth - 1)).map(_rounded(op))
            for op in "+-*/"
        ]
    if type == TEXT:
        calls += [make("||", TEXT, TEXT), make("upper", TEXT), make("cast text", INT4)]
        calls += [make("cast text", FLOAT8), make("substring", TEXT, INT4, INT4)]
    if type == DATE:
        calls += [make("+", DATE, INT4), make("cast date", TIMESTAMP)]
    if type == TIMESTAMP:
        calls += [make("+", TIMESTAMP, INTERVAL), make("cast timestamp", DATE)]
        unit = st.sampled_from(["year", "month", "week", "day", "hour"])
        calls.append(
            st.tuples(unit, scalars(TIMESTAMP, depth - 1)).map(
                lambda p: scalar_of("date_trunc", [Literal(p[0], TEXT), p[1]])
            )
        )
    if type == INTERVAL:
        calls += [make("+", INTERVAL, INTERVAL), make("-", TIMESTAMP, TIMESTAMP)]
    return st.one_of([*leaves, *calls])


def _rounded(operator: str) -> Callable[[tuple[Scalar, Scalar]], Scalar]:
    return lambda pair: scalar_of("cast numeric(10,2)", [scalar_of(operator, list(pair))])


def typed(scalar: Scalar, type: SqlType) -> Scalar:
    """Return `scalar` as a `type`, with a cast if its numeric type is less exact."""
    if type_of(scalar) == type:
        return scalar
    return scalar_of("cast numeric(10,2)", [scalar])


def texts(array: pa.Array | None, rows: int) -> list[str | None]:
    return [None] * rows if array is None else list(array.to_pylist())


def shown(array: pa.Array | pa.ChunkedArray, type: SqlType) -> list[str]:
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    return [repr(d) for d in from_array(array, type)]


SETTINGS: Callable[..., Any] = settings(
    max_examples=examples(100),
    phases=(Phase.explicit, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


@SETTINGS
@given(st.data())
def test_kernels_and_duckdb_agree(data: st.DataObject) -> None:
    columns = columns_of(data)
    several = [data.draw(st.sampled_from(TYPES).flatmap(lambda t: scalars(t, 3))) for _ in range(4)]
    table = pa.table(columns, names=[f"c{i}" for i in range(len(columns))])
    dialect = DuckDbDialect()
    selects = []
    for i, scalar in enumerate(several):
        selects.append(f"{dialect.scalar(scalar, table.column_names)} AS v{i}")
        selects.append(f"{dialect.scalar(ErrorOf(scalar), table.column_names)} AS e{i}")
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'").fetchall()
        register_duckdb(connection, list(dialect.used.values()))
        connection.register("t", table)
        try:
            got = connection.sql(f"SELECT {', '.join(selects)} FROM t").to_arrow_table()
        except duckdb.Error as error:
            for select in selects:
                try:
                    connection.sql(f"SELECT {select} FROM t").to_arrow_table()
                except duckdb.Error:
                    error.add_note(select)
            raise
    for i, scalar in enumerate(several):
        values, errors = outcome(scalar, columns, ROWS)
        assert texts(got[f"e{i}"], ROWS) == texts(errors, ROWS), scalar
        assert got[f"v{i}"].type == values.type, scalar
        assert shown(got[f"v{i}"], type_of(scalar)) == shown(values, type_of(scalar)), scalar


@SETTINGS
@given(st.data())
def test_rows_are_independent(data: st.DataObject) -> None:
    columns = columns_of(data)
    scalar = data.draw(st.sampled_from(TYPES).flatmap(lambda t: scalars(t, 3)))
    values, errors = outcome(scalar, columns, ROWS)
    failed = texts(errors, ROWS)
    assert fallible(scalar) or errors is None
    for row in range(ROWS):
        one, error = outcome(scalar, [c.slice(row, 1) for c in columns], 1)
        type = type_of(scalar)
        assert shown(one, type) == shown(values.slice(row, 1), type)
        assert texts(error, 1) == failed[row : row + 1]
        assert failed[row] is None or not values[row].is_valid


@SETTINGS
@given(st.data())
def test_compiled_scalar_agrees_with_kernels(data: st.DataObject) -> None:
    columns = columns_of(data)
    scalar = data.draw(st.sampled_from(TYPES).flatmap(lambda t: scalars(t, 3)))
    type = type_of(scalar)
    values, errors = outcome(scalar, columns, ROWS)
    cell = compiled(scalar)
    rows = zip(*(from_array(c, t) for c, t in zip(columns, TYPES, strict=True)), strict=True)
    for place, (row, failed) in enumerate(zip(rows, texts(errors, ROWS), strict=True)):
        if failed is None:
            datum = to_array([cell(row)], type)
            assert shown(datum, type) == shown(values.slice(place, 1), type)
            continue
        with pytest.raises(DataError) as raised:
            cell(row)
        assert failed == f"{raised.value.sqlstate} {raised.value.message}"


@SETTINGS
@given(st.data())
def test_folded_scalar_has_same_value(data: st.DataObject) -> None:
    columns = columns_of(data)
    scalar = data.draw(st.sampled_from(TYPES).flatmap(lambda t: scalars(t, 3)))
    values, errors = outcome(scalar, columns, ROWS)
    folded, folded_errors = outcome(fold(scalar), columns, ROWS)
    assert shown(folded, type_of(scalar)) == shown(values, type_of(scalar))
    assert texts(folded_errors, ROWS) == texts(errors, ROWS)


NUMBERS = st.sampled_from(["0", "1", "1.0", "-1", "-1.5", "10", "9.9", "1e20"]).map(Decimal)
KEYS = st.sampled_from(["", "a", "b", "aa", "é", "a\x01"])
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | NUMBERS | KEYS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)


@given(DOCUMENTS, DOCUMENTS)
def test_documents_compare_like_their_order_bytes(one: Any, other: Any) -> None:
    texts = dumps(one), dumps(other)
    (a, b), (x, y) = (ordinal(t, JSONB) for t in texts), map(json_order_bytes, texts)
    first, second = map(json_key_text, texts)
    assert (first == second) == (x == y), texts
    assert ((a < b), (a == b)) == ((x < y), (x == y))


def test_null_and_zero_fit_any_scale() -> None:
    for values in ([], [0], [0, 0], [7]):
        expected = [each * 10**20 for each in values]
        assert rescale(np.array(values, np.int64), 20).tolist() == expected
