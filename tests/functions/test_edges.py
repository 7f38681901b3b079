"""Each declared signature, over the edges of its types, raises nothing but errors of its rows.

All of them are called, with few rows in `make test`, with more in `make test-full`, with many in
`make test-slow`; a sample of them by the other engines, which give what the kernels give.
"""

from collections.abc import Callable, Iterator
from itertools import islice

import duckdb
import pyarrow as pa
import pytest

from foreshore.compute.render.duckdb_dialect import DuckDbDialect, register_duckdb
from foreshore.datum import from_array, to_array
from foreshore.errors import UserError
from foreshore.expr.functions.apply import apply
from foreshore.expr.functions.function import SCALARS
from foreshore.expr.functions.rows import OF_A_ROW, Failure, text_of
from foreshore.expr.ir import ErrorOf
from foreshore.query_memory import room
from foreshore.types import Datum, arrow_type
from tests.compute.flow.test_scalars import compiled
from tests.functions.walk import (
    OF_PLANS,
    ROOM,
    calls,
    different,
    findings,
    rows_of,
    sampled,
    wanted,
)

PARTS = 8
FEW = [pytest.param(0, 23, 5, id="sample")]
MORE = [pytest.param(0, 1, 8, id="all", marks=pytest.mark.full)]
MANY = [
    pytest.param(
        part, PARTS, 80, id=f"all-rows-{part}", marks=[pytest.mark.slow, pytest.mark.timeout(1800)]
    )
    for part in range(PARTS)
]


@pytest.mark.parametrize(("first", "every", "rows"), FEW + MORE + MANY)
def test_functions_raise_nothing_but_errors_of_rows(first: int, every: int, rows: int) -> None:
    found: list[str] = []
    for call in islice(calls(), first, None, every):
        found += findings(call, rows_of(call, rows))
    assert not found, "\n".join(found)


def test_column_of_no_rows_has_type_of_result() -> None:
    differing: list[str] = []
    for call in calls():
        arrays = [to_array([], type) for type in call.types.args]
        values, _ = apply(call.function, call.types, arrays)
        if arrays and (values.type != arrow_type(call.types.result) or len(values)):
            differing.append(f"{call.id}: {values.type}")
    assert not differing, "\n".join(differing)


def test_functions_of_plans_have_no_name() -> None:
    public = {each.function.key for overloads in SCALARS.values() for each in overloads}
    assert not OF_PLANS & public


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as opened:
        opened.execute("SET TimeZone = 'UTC'").fetchall()
        yield opened


@pytest.mark.parametrize("every", [193, pytest.param(11, marks=pytest.mark.full)])
def test_duckdb_gives_what_kernels_give(every: int, connection: duckdb.DuckDBPyConnection) -> None:
    differing: list[str] = []
    for call, scalar, rows in sampled(every):
        names = [f"c{i}" for i in range(len(call.types.args))]
        arrays = [to_array([row[i] for row in rows], t) for i, t in enumerate(call.types.args)]
        dialect = DuckDbDialect()
        sql = f"SELECT {dialect.scalar(scalar, names)}, {dialect.scalar(ErrorOf(scalar), names)}"
        register_duckdb(connection, list(dialect.used.values()))
        connection.register("t", pa.table(arrays, names=names))
        try:
            got = connection.sql(f"{sql} FROM t").to_arrow_table()
        except duckdb.Error as error:
            differing.append(f"{call.id}: {error}")
            continue
        values = got.column(0).combine_chunks()
        found = from_array(values, call.types.result), got.column(1).to_pylist()
        differing += different(call, found, wanted(call, scalar, rows), rows)
    assert not differing, "\n".join(differing)


@pytest.mark.parametrize("every", [193, pytest.param(13, marks=pytest.mark.full)])
def test_programs_give_what_kernels_give(every: int) -> None:
    differing: list[str] = []
    for call, scalar, rows in sampled(every):
        try:
            found = compiled(scalar, call.types.args, rows, native=None)
        except Exception as error:
            differing.append(f"{call.id}: {error!r}")
            continue
        differing += different(call, found, wanted(call, scalar, rows), rows)
    assert not differing, "\n".join(differing)


@pytest.mark.parametrize("every", [19, pytest.param(1, marks=pytest.mark.full)])
def test_single_values_give_what_kernels_give(every: int) -> None:
    differing, count = list[str](), 0
    for call, scalar, rows in sampled(every):
        one = None if call.function.one is None else call.function.one(call.types)
        if one is None:
            continue
        count += 1
        whole = [row for row in rows if None not in row or not call.function.strict]
        found = [_value_or_error(one, row, call.function.only_error(call.types)) for row in whole]
        values, errors = [value for value, _ in found], [error for _, error in found]
        differing += different(call, (values, errors), wanted(call, scalar, whole), whole)
    assert not differing, "\n".join(differing)
    assert count >= 5


def _value_or_error(
    one: Callable[..., Datum], row: tuple[Datum, ...], only: str | None
) -> tuple[Datum, str | None]:
    with room(16 * ROOM):
        try:
            return one(*row), None
        except (*OF_A_ROW, Failure, UserError) as fault:
            return None, only or text_of(fault)
