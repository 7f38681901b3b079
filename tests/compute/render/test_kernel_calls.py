"""Kernels are called for slices of rows, between which a query is stopped and counted."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from foreshore.compute.bulk.duckdb import DuckDbEngine, DuckDbSession, faults
from foreshore.compute.engine import Cancellation
from foreshore.compute.render.duckdb_dialect import DuckDbDialect
from foreshore.compute.render.kernel_calls import NUMBER, QUERIES, SLICE_BYTES, sliced
from foreshore.errors import DatabaseError, OutOfMemory, QueryCanceled
from foreshore.expr.functions.function import Signature
from foreshore.query_memory import QUERY_MEMORY, room
from foreshore.types import FLOAT8, INT4, JSONB, TEXT, SqlType, array_of

ROWS = 500
LONG = 2_000  # elements of a value
KINDS: dict[str, pa.Array] = {
    "int4[]": pa.array([list(range(LONG))] * ROWS, pa.list_(pa.int32())),
    "text[]": pa.array([["abcde"] * LONG] * ROWS, pa.list_(pa.string())),
    "text": pa.array(["x" * 4 * LONG] * ROWS),
    "bytea": pa.array([b"x" * 4 * LONG] * ROWS),
    "lists of floats": pa.array([[{"x": 1.0, "d": 1}] * LONG] * ROWS),
    "one long value of many": pa.array(["x"] * (ROWS - 1) + ["y" * (SLICE_BYTES * 4)]),
    "NULLs": pa.array([None, "x" * LONG] * ROWS),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kernels_get_slices_of_rows(kind: str) -> None:
    rows, seen = KINDS[kind], []

    def kernel(part: pa.Array, numbers: pa.Array) -> pa.Array:
        assert len(part) == len(numbers)
        seen.append(part)
        return part

    numbers = pa.array(range(len(rows)))
    assert sliced(kernel, (rows, numbers)).equals(rows)
    assert len(seen) > 1
    assert all(each.nbytes <= SLICE_BYTES or len(each) == 1 for each in seen)


def test_rows_without_long_values_are_one_slice() -> None:
    seen: list[int] = []

    def kernel(part: pa.Array) -> pa.Array:
        seen.append(len(part))
        return part

    sliced(kernel, (pa.array(range(2048)),))
    sliced(kernel, (KINDS["text"].slice(0, 0),))
    assert seen == [2048, 0]


def test_query_is_stopped_between_slices() -> None:
    cancellation = Cancellation()
    done: list[int] = []

    def kernel(part: pa.Array) -> pa.Array:
        done.append(len(part))
        cancellation.cancel()
        return part

    with QUERIES.running(cancellation.check) as number, pytest.raises(QueryCanceled):
        sliced(kernel, (KINDS["text"],), number)
    assert len(done) == 1
    sliced(kernel, (KINDS["text"],), number)  # of a query that is over: nobody stops it
    assert sum(done[1:]) == ROWS


@pytest.mark.parametrize("times", [0, 50])
def test_rows_and_what_is_made_of_them_count(times: int, own_budget: None) -> None:
    def kernel(part: pa.Array) -> pa.Array:
        made.append(len(part))
        return pa.array([value.as_py() * times for value in part])

    made: list[int] = []
    rows = KINDS["text"] if times else pa.array(["x" * 40 * LONG] * ROWS)
    with QUERIES.running(lambda: None) as number, room(QUERY_MEMORY.share):
        with pytest.raises(OutOfMemory):
            sliced(kernel, (rows,), number)
        assert sum(made) < ROWS / 2  # at once, or as soon as it is too much
        assert QUERY_MEMORY.used == 0
        sliced(kernel, (rows.slice(0, 10),), number)
    assert QUERY_MEMORY.used == 0


@pytest.fixture
def own_budget() -> Iterator[None]:
    before = QUERY_MEMORY.limit
    QUERY_MEMORY.configure(QUERY_MEMORY.used + (32 << 20))
    yield
    QUERY_MEMORY.configure(before)


CALLS: dict[str, tuple[str, tuple[SqlType, ...], SqlType, str]] = {
    "an array": (
        "array_remove(anycompatiblearray,anycompatible)",
        (array_of(INT4), INT4),
        array_of(INT4),
        "SELECT list(g::int) AS a FROM range(20000) AS t(g)",
    ),
    "a text": (
        "array_to_string(anyarray,text)",
        (array_of(TEXT), TEXT),
        TEXT,
        "SELECT list(g::text) AS a FROM range(20000) AS t(g)",
    ),
    "a document": (
        "jsonb_array_length(jsonb)",
        (JSONB,),
        INT4,
        "SELECT to_json(list(g))::text AS a FROM range(20000) AS t(g)",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_threads_of_duckdb_know_the_query_that_calls(name: str) -> None:
    key, types, result, rows = CALLS[name]
    engine = DuckDbEngine(memory_limit="1GB")
    asked: list[str] = []

    def stop_at_third() -> None:
        asked.append(name)
        if len(asked) == 3:
            raise QueryCanceled

    try:
        with QUERIES.running(stop_at_third) as number:
            session = engine.session()
            stopped = DuckDbSession(session._cursor, session._functions, number)
            given = ["a", "CAST(b AS INTEGER)" if types[-1] == INT4 else "CAST(b AS VARCHAR)"]
            call = stopped.dialect.arrow_call(key, Signature(types, result), given[: len(types)])
            with pytest.raises(DatabaseError) as failed, faults():
                stopped.execute(f"SELECT count({call}) FROM ({rows}), range(40) AS u(b)")
            assert failed.value.sqlstate == "57014"
            assert len(asked) >= 3
            stopped.close()
    finally:
        engine.close()


def test_only_kernels_of_long_values_are_told_the_query() -> None:
    dialect = DuckDbDialect()
    short = dialect.arrow_call(
        "atan2(float8,float8)", Signature((FLOAT8, FLOAT8), FLOAT8), ["a", "b"]
    )
    assert short.endswith("(a, b)")
    long = dialect.arrow_call("upper(text)", Signature((TEXT,), TEXT), ["a"])
    assert long.endswith(f"(a, {NUMBER})")
