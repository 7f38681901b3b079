"""Each way to make a key agrees with PostgreSQL's order of the values of each type, nested."""

import operator
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from foreshore.compute.arrange.key import hash_columns, keys_equal, pairs_equal
from foreshore.compute.flow.convert import words_of_values
from foreshore.compute.flow.intern import Interner
from foreshore.compute.local.small.rows import NotSmall, canonical, codes_of
from foreshore.compute.render.duckdb_dialect import DuckDbDialect, register_duckdb
from foreshore.datum import from_array, to_array
from foreshore.expr.equality import (
    has_one_form,
    is_plain,
    key_bytes,
    key_column,
    python_key,
    shown_bytes,
)
from foreshore.expr.functions.comparison import compare
from foreshore.shaped import EMPTY, Shaped, stored_shaped
from foreshore.storage.ingest.kafka.upsert import KeyedRows
from foreshore.structured import stored
from foreshore.text import parse_text
from foreshore.types import (
    INT4,
    SqlType,
    array_of,
    numeric,
    record_of,
    shaped_array,
    type_of_oid,
)
from foreshore.types import TYPES as INFO
from tests.equality.cases import VALUES, Case, cases
from tests.equality.record import recorded

RECORDED = recorded()


def sql_type(name: str) -> SqlType:
    """Return the type of a name in VALUES."""
    special = {
        "numeric(10,2)": numeric(10, 2),
        "varchar(5)": SqlType("varchar", 5),
        "char(4)": SqlType("bpchar", 4),
        "bit(3)": SqlType("bit", 3),
    }
    found = special.get(name) or type_of_oid(INFO[name].oid)
    assert found is not None, name
    return found


Nested = tuple[SqlType, list[Any]]


def _plain(type: SqlType, data: Sequence[Any]) -> Nested:
    return type, list(data)


def _array(type: SqlType, data: Sequence[Any]) -> Nested:
    pairs = [(data[0], d) for d in data[:4]]
    return array_of(type), [*((d,) for d in data), *pairs, (), (None, data[0])]


def _matrix(type: SqlType, data: Sequence[Any]) -> Nested:
    shaped = shaped_array(type)

    def made(items: Sequence[Any], *lengths: int) -> Shaped:
        return Shaped(tuple(items), lengths, (1,) * len(lengths))

    found = [made((d,), 1, 1) for d in data]
    found += [made((data[0], d, d, None), 2, 2) for d in data[:4]]
    found += [EMPTY, made(data[:2], 2, 1), made(data[:2], 1, 2)]
    return shaped, [stored_shaped(each, shaped) for each in found]


def _record(type: SqlType, data: Sequence[Any]) -> Nested:
    made = record_of(("v", "n"), (type, INT4))
    rows = [*((d, 1) for d in data), *((d, 2) for d in data[:3]), (None, 1), (data[0], None)]
    return made, [stored(row, made) for row in rows]


def _records(type: SqlType, data: Sequence[Any]) -> Nested:
    made = record_of(("v", "n"), (type, INT4))
    return array_of(made), [
        *((stored((d, 1), made),) for d in data),
        (None,),
        (stored((None, 1), made),),
    ]


def _holder(type: SqlType, data: Sequence[Any]) -> Nested:
    made = record_of(("v", "n"), (array_of(type), INT4))
    rows = [*(((d,), 1) for d in data), ((), 1), (None, 1)]
    return made, [stored(row, made) for row in rows]


NESTED: dict[str, Callable[[SqlType, Sequence[Any]], Nested]] = {
    "plain": _plain,
    "array": _array,
    "matrix": _matrix,
    "record": _record,
    "records": _records,
    "holder": _holder,
}
CASES = [each for each in cases() if each.type != "mood" and each.nesting in NESTED]


def values_of(case: Case) -> tuple[SqlType, list[Any], list[int]]:
    """Return the nested type of a case, its data, and their places in PostgreSQL's order."""
    type = sql_type(case.type)
    nested, data = NESTED[case.nesting](
        type, [parse_text(text, type) for text in VALUES[case.type]]
    )
    ranks = [int(rank) for rank in RECORDED[case.name]["ranks"]]
    assert len(ranks) == len(data), case
    return nested, data, ranks


def dense(keys: Sequence[Any]) -> list[int]:
    """Return the place of each key among the distinct ones."""
    places = {key: place for place, key in enumerate(sorted(set(keys)), 1)}
    return [places[key] for key in keys]


def grouped(keys: Sequence[Any]) -> list[int]:
    """Return for each key the place of the first that equals it."""
    first: dict[Any, int] = {}
    return [first.setdefault(key, place) for place, key in enumerate(keys)]


def some_pairs(count: int) -> Any:
    """Return pairs of numbers below `count`: all of the first, and those that are neighbours."""
    first = product(range(min(count, 6)), repeat=2)
    return np.array([*first, *((n, n + step) for step in (1, 2) for n in range(count - step))])


@pytest.mark.parametrize("nesting", NESTED)
def test_keys_have_the_order_of_postgresql(nesting: str) -> None:
    for case in (each for each in CASES if each.nesting == nesting):
        type, data, ranks = values_of(case)
        column = to_array(data, type)
        assert dense([key_bytes(d, type) for d in data]) == ranks, case
        assert dense(key_column(column, type).to_pylist()) == ranks, case
        assert dense([python_key(d, type) for d in data]) == ranks, case
        if is_plain(type):
            assert pc.rank(column, tiebreaker="dense").to_pylist() == ranks, case


@pytest.mark.parametrize("nesting", NESTED)
def test_equal_values_have_equal_hashes_words_and_codes(nesting: str) -> None:
    for case in (each for each in CASES if each.nesting == nesting):
        type, data, ranks = values_of(case)
        column = to_array(data, type)
        assert grouped(hash_columns([column], [type], len(data)).tolist()) == grouped(ranks), case
        for place, datum in enumerate(data[:3]):
            found = keys_equal(column, datum, type).tolist()
            assert found == [rank == ranks[place] for rank in ranks], case
        pairs = some_pairs(len(data))
        left, right = (column.take(pa.array(side)) for side in pairs.T)
        same = [ranks[a] == ranks[b] for a, b in pairs]
        assert pairs_equal(left, right, type).tolist() == same, case
        words = words_of_values(column, type, "key", Interner(1))
        keys = list(zip(*(word.tolist() for word in words), strict=True))
        assert grouped(keys) == grouped(ranks), case
        keyed = KeyedRows(pa.schema([("x", column.type)]), [0], [type])
        upserts = keyed.keys_of(pa.table({"x": column}))
        assert grouped(upserts) == grouped(ranks), case
        try:
            codes = codes_of([canonical(column, type)], len(data))
        except NotSmall:
            assert not has_one_form(type), case
        else:
            assert grouped(codes.tolist()) == grouped(ranks), case


@pytest.mark.parametrize("nesting", NESTED)
def test_comparisons_have_the_order_of_postgresql(nesting: str) -> None:
    for case in (each for each in CASES if each.nesting == nesting):
        type, data, ranks = values_of(case)
        column = to_array(data, type)
        pairs = some_pairs(len(data))
        left, right = (column.take(pa.array(side)) for side in pairs.T)
        for kind, of in (("eq", operator.eq), ("lt", operator.lt), ("ge", operator.ge)):
            wanted = [of(ranks[a], ranks[b]) for a, b in pairs]
            assert compare(kind, (type, type), left, right).to_pylist() == wanted, (case, kind)


@pytest.mark.parametrize("type", ["jsonb", "interval", "time"])
def test_keys_of_duckdb_have_the_order_of_postgresql(type: str) -> None:
    with duckdb.connect(config={"threads": 1}) as connection:
        for case in (each for each in CASES if each.type == type):
            nested, data, ranks = values_of(case)
            table = pa.table({"n": list(range(len(data))), "x": to_array(data, nested)})
            dialect = DuckDbDialect()
            key = dialect.key("x", nested)
            register_duckdb(connection, list(dialect.used.values()))
            connection.register("t", table)
            found = connection.sql(
                f"SELECT dense_rank() OVER (ORDER BY {key}) FROM t ORDER BY n"
            ).fetchall()
            assert [rank for (rank,) in found] == ranks, case
            groups = connection.sql(f"SELECT count(*) FROM t GROUP BY {key}").fetchall()
            assert len(groups) == len(set(ranks)), case


@pytest.mark.parametrize("nesting", NESTED)
def test_values_that_look_different_are_told_apart(nesting: str) -> None:
    for case in (each for each in CASES if each.nesting == nesting):
        type, data, ranks = values_of(case)
        column = to_array(data, type)
        stored = [repr(d) for d in from_array(column, type)]  # -0.0 is not 0.0
        rows = hash_columns([column], None, len(data)).tolist()
        assert grouped(rows) == grouped(stored), case
        # What is shown of a group does not depend on the order of its rows.
        if not has_one_form(type):
            keys = [(rank, shown_bytes(d, type)) for rank, d in zip(ranks, data, strict=True)]
            assert grouped(keys) == grouped(stored), case
