"""Stored forms and texts of records, lists and maps."""

from functools import cmp_to_key
from math import prod
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.errors import DatabaseError
from foreshore.expr.equality import python_key
from foreshore.shaped import EMPTY, Shaped, shaped_of, stored_shaped
from foreshore.structured import pairs_of, stored, stored_map, values_of
from foreshore.text import format_text, parse_text
from foreshore.types import (
    BOOL,
    BYTEA,
    FLOAT8,
    INT4,
    INT8,
    INTERVAL,
    TEXT,
    Datum,
    SqlType,
    array_of,
    list_of,
    map_of,
    numeric,
    record_of,
    shaped_array,
)
from tests.effort import examples

_SCALARS: list[tuple[SqlType, st.SearchStrategy[Any]]] = [
    (INT4, st.integers(-(2**31), 2**31 - 1)),
    (INT8, st.integers(-(2**63), 2**63 - 1)),
    (BOOL, st.booleans()),
    (TEXT, st.text(st.sampled_from('ab\x01,{}"\\ =>é'), max_size=4)),
    (BYTEA, st.binary(max_size=4)),
    (FLOAT8, st.floats(allow_nan=False).map(lambda v: v + 0.0)),
    (numeric(9, 2), st.decimals(-99999, 99999, places=2).map(lambda v: format(v + 0, "f"))),
    (array_of(INT4), st.lists(st.none() | st.integers(-9, 9), max_size=3).map(tuple)),
]


@st.composite
def typed(draw: st.DrawFn, depth: int = 2) -> tuple[SqlType, st.SearchStrategy[Any]]:
    """Return a type and a strategy of its data."""
    kind = draw(st.sampled_from(["scalar", "list", "map", "record"] if depth else ["scalar"]))
    if kind == "scalar":
        of, values = draw(st.sampled_from(_SCALARS))
        return of, values
    if kind == "record":
        parts = draw(st.lists(typed(depth - 1), min_size=1, max_size=3))
        type = record_of([f"f{i}" for i in range(len(parts))], [of for of, _ in parts])
        columns = st.tuples(*(st.none() | data for _, data in parts))
        return type, columns.map(lambda values: stored(values, type))
    item, data = draw(typed(depth - 1))
    if kind == "list":
        listed = list_of(item)
        return listed, st.lists(st.none() | data, max_size=3).map(lambda v: stored(v, listed))
    mapped = map_of(item)
    keys = st.text(st.sampled_from('ab=> "'), max_size=3)
    pairs = st.dictionaries(keys, st.none() | data, max_size=3)
    return mapped, pairs.map(lambda each: stored_map(each, mapped))


def _compare(a: Any, b: Any, type: SqlType) -> int:
    """Return the order of two data by their parts; NULL is last."""
    if a is None or b is None:
        return (a is None) - (b is None)
    if type.name in ("record", "list"):
        parts = [values_of(each, type) for each in (a, b)]
        types = [m.type for m in type.members] * (1 if type.name == "record" else 9)
        for x, y, of in zip(*parts, types, strict=False):
            if found := _compare(x, y, of):
                return found
        return (len(parts[0]) > len(parts[1])) - (len(parts[0]) < len(parts[1]))
    if type.name == "map":
        for (k, x), (m, y) in zip(
            pairs_of(a, type).items(), pairs_of(b, type).items(), strict=False
        ):
            if k != m:
                return (k.encode() > m.encode()) - (k.encode() < m.encode())
            if found := _compare(x, y, type.members[0].type):
                return found
        sizes = [len(pairs_of(each, type)) for each in (a, b)]
        return (sizes[0] > sizes[1]) - (sizes[0] < sizes[1])
    x, y = python_key(a, type), python_key(b, type)
    return int(x > y) - int(x < y)


@settings(max_examples=examples(150))
@given(st.data())
def test_stored_forms_sort_as_values_do(data: st.DataObject) -> None:
    type, values = data.draw(typed())
    whole = list_of(type)
    found = data.draw(st.lists(values, min_size=2, max_size=6))
    by_bytes = sorted(stored((v,), whole) for v in found)
    by_value = sorted(found, key=cmp_to_key(lambda a, b: _compare(a, b, type)))
    assert by_bytes == [stored((v,), whole) for v in by_value]


@settings(max_examples=examples(150))
@given(st.data())
def test_values_and_texts_read_back(data: st.DataObject) -> None:
    type, values = data.draw(typed())
    items = tuple(data.draw(st.lists(st.none() | values, max_size=4)))
    whole = list_of(type)
    datum = stored(items, whole)
    assert values_of(datum, whole) == items
    assert parse_text(format_text(datum, whole), whole) == datum


def test_intervals_of_one_length_sort_alike() -> None:
    whole = list_of(INTERVAL)
    data = [(1, 0, 0), (0, 30, 0), (0, 29, 0), (-1, 0, 0)]
    forms = sorted((stored((each,), whole), each) for each in data)
    assert [each for _, each in forms][:2] == [(-1, 0, 0), (0, 29, 0)]


@pytest.mark.parametrize(
    ("type", "text", "error"),
    [
        (list_of(INT4), "1", "expected '{', found 1"),
        (list_of(INT4), "{{1}}", "unescaped '{' at beginning of element"),
        (list_of(TEXT), '{a"b"}', "must escape special character"),
        (list_of(TEXT), "{a,  }", "missing element"),
        (list_of(TEXT), "{a}b", "contains 'b' after terminal"),
        (list_of(list_of(INT4)), "{{1}", "unexpected end of input"),
        (map_of(INT4), "{a}", "expected =>"),
        (map_of(INT4), "{a=>x}", "invalid input syntax for type integer"),
        (record_of(["a", "b"], [INT4, TEXT]), "(1)", "malformed record literal"),
        (record_of(["a"], [INT4]), "(1", "malformed record literal"),
    ],
)
def test_malformed_texts_are_errors(type: SqlType, text: str, error: str) -> None:
    with pytest.raises(DatabaseError, match=error):
        parse_text(text, type)


@settings(max_examples=examples(100))
@given(
    st.lists(st.integers(1, 3), max_size=3),
    st.lists(st.integers(-3, 3), min_size=3, max_size=3),
    st.data(),
)
def test_arrays_of_any_shape_read_back(
    lengths: list[int], lowest: list[int], data: st.DataObject
) -> None:
    type = shaped_array(TEXT)
    count = prod(lengths) if lengths else 0
    values = st.none() | st.text(st.sampled_from('ab,{}"\\ '), max_size=3)
    items = tuple(data.draw(st.lists(values, min_size=count, max_size=count)))
    array = Shaped(items, tuple(lengths), tuple(lowest[: len(lengths)])) if count else EMPTY
    datum = stored_shaped(array, type)
    assert shaped_of(datum, type) == array
    assert parse_text(format_text(datum, type), type) == datum
    whole = list_of(type)
    assert values_of(stored((datum, None), whole), whole) == (datum, None)


@pytest.mark.parametrize("item", [INT4, TEXT, list_of(TEXT)])
def test_items_that_are_cut_off_are_refused(item: SqlType) -> None:
    data = (stored(("a", "b"), item), None) if item.name == "list" else parse_items(item)
    whole = stored(data, list_of(item))
    for end in range(len(whole)):
        with pytest.raises((IndexError, ValueError)):
            values_of(whole[:end], list_of(item))


def parse_items(item: SqlType) -> tuple[Datum, ...]:
    """Return two items of a scalar type."""
    return tuple(parse_text(text, item) for text in ("1", "2"))
