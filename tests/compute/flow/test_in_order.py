"""Rows of an index between two ends, in the order of its key, are those of the model."""

from collections import Counter
from collections.abc import Callable
from datetime import date
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.compute.arrange.arrangement import TooManyRows
from foreshore.compute.flow import spine
from foreshore.compute.flow.batch import Words
from foreshore.compute.flow.index import FlowIndex
from foreshore.compute.flow.key_order import KeyOrder
from foreshore.compute.span import Span
from foreshore.expr.ir import Literal
from foreshore.types import BOOL, DATE, INT4, TEXT, UUID, ColumnType, SqlType, numeric
from tests.compute.flow.test_index import Subject, contents
from tests.effort import examples

VALUES: dict[SqlType, list[Any]] = {
    INT4: [-(2**31), -3, 0, 1, 2, 7, 2**31 - 1],
    TEXT: ["", "a", "aa", "b", "é", "z"],
    DATE: [-10, 0, 20454],
    BOOL: [False, True],
    UUID: [bytes(16), b"\x00" * 15 + b"\x01", b"\xff" * 16, b"\x01" * 16],
    numeric(9, 2): ["-1.50", "0.00", "0.05", "12.30"],
}


def part_of(value: Any, type: SqlType) -> Any:
    """Return a value as one that compares as SQL does, NULL last."""
    if value is None:
        return (1,)
    if type == numeric(9, 2):
        return (0, float(value))
    return (0, value.encode() if isinstance(value, str) else value)


def is_between(key: tuple[Any, ...], span: Span, parts: Callable[[Any], tuple[Any, ...]]) -> bool:
    """Whether a key is in a span, in the model."""
    low, high = parts(span.low), parts(span.high)
    if low and (key[: len(low)] < low or (key[: len(low)] == low and not span.low_inclusive)):
        return False
    end = key[: len(high)]
    return not high or end < high or (end == high and span.high_inclusive)


def insert_changes(subject: Subject, rows: st.SearchStrategy[Any], data: st.DataObject) -> int:
    """Insert random rows and take some back; return the index's upper."""
    there: Counter[tuple[Any, ...]] = Counter()
    for time in range(data.draw(st.integers(1, 5))):
        changes = Counter(data.draw(st.lists(rows, max_size=6)))
        for row in data.draw(st.lists(st.sampled_from(list(there)), max_size=3)) if there else ():
            if there[row] + changes[row] > 0:
                changes[row] -= 1
        for row, diff in changes.items():
            there[row] += diff
        subject.insert([(*row, time, diff) for row, diff in changes.items() if diff], time + 1)
        while subject.index.maintain():
            continue
    return subject.index.upper


def spans(types: list[SqlType]) -> st.SearchStrategy[Span]:
    """Return a strategy for spans of a key of `types`."""
    parts = [st.sampled_from([*VALUES[type], None]).map(partial(literal, type)) for type in types]
    ends = st.integers(0, len(types)).flatmap(lambda n: st.tuples(*parts[:n]))
    flags = st.booleans()
    return st.builds(Span, ends, flags, ends, flags, flags, flags)


def literal(type: SqlType, value: Any) -> Literal:
    """Return a value as a literal."""
    return Literal(value, type)


@settings(max_examples=examples(200))
@given(st.data())
def test_ranges_hold_rows_of_model_in_order(data: st.DataObject) -> None:
    types = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=2))
    columns = [ColumnType(type, data.draw(st.booleans())) for type in types]
    values = [st.sampled_from([*VALUES[c.type], *([None] * c.nullable)]) for c in columns]
    subject = Subject((*columns, ColumnType(INT4)), range(len(columns)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spine, "TAIL_ROWS", 4)
        upper = insert_changes(subject, st.tuples(*values, st.integers(0, 1)), data)
    span, time = data.draw(spans(types)), data.draw(st.integers(0, upper - 1))

    def key(row: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(part_of(shown(v, t), t) for v, t in zip(row, types, strict=False))

    def parts(literals: Any) -> tuple[Any, ...]:
        return tuple(part_of(v.value, t) for v, t in zip(literals, types, strict=False))

    slices = [contents(e) for e in subject.index.in_range(span, time, data.draw(st.integers(1, 4)))]
    rows = contents(subject.index.scan(time))
    expected = Counter({r: n for r, n in rows.items() if is_between(key(r), span, parts)})
    assert sum(slices, Counter()) == expected
    assert span.is_ordered or len(slices) <= 1
    for earlier, later in pairwise(each for each in slices if each):
        ends = [key(row) for row in earlier], [key(row) for row in later]
        assert min(ends[0]) > max(ends[1]) if span.descending else max(ends[0]) < min(ends[1])


def shown(value: Any, type: SqlType) -> Any:
    """Return a value of Arrow as a datum."""
    if value is None:
        return None
    if type == DATE:
        return (value - date(1970, 1, 1)).days
    return str(value) if type == numeric(9, 2) else value


def test_first_rows_are_found_without_reading_all() -> None:
    subject = Subject()
    subject.insert([(i, "a", 0, 1) for i in range(20_000)], 1)
    span = Span(is_ordered=True)
    with pytest.raises(TooManyRows):  # the order is to be computed first
        next(subject.index.in_range(span, 0, 10, 100))
    assert next(subject.index.in_range(span, 0, 10)).num_rows == 10
    first = next(subject.index.in_range(span, 0, 10, 100))
    assert first.column(0).to_pylist() == list(range(10))
    last = next(subject.index.in_range(Span(is_ordered=True, descending=True), 0, 10, 100))
    assert sorted(last.column(0).to_pylist()) == list(range(19_990, 20_000))


def test_rows_between_values_are_found_without_reading_all() -> None:
    subject = Subject()
    subject.insert([(i, "a", 0, 1) for i in range(20_000)], 1)
    next(subject.index.in_range(Span(is_ordered=True), 0, 1))
    span = Span((Literal(100, INT4),), False, (Literal("105.5", numeric(9, 1)),), True)
    (found,) = subject.index.in_range(span, 0, 1, 100)
    assert found.column(0).to_pylist() == [101, 102, 103, 104, 105]


def test_updates_are_sorted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sorted_rows: list[int] = []
    order_of = FlowIndex._order_of

    def counted(self: FlowIndex, words: Words) -> KeyOrder:
        sorted_rows.append(len(words))
        return order_of(self, words)

    monkeypatch.setattr(FlowIndex, "_order_of", counted)
    subject = Subject()
    for time in range(3):
        subject.insert([(time, "a", time, 1), (9, "b", time, 1)], time + 1)
        for _ in range(2):
            found = next(subject.index.in_range(Span(is_ordered=True), time, 100))
            assert found.num_rows == 2 * (time + 1)
    assert sorted_rows == [2, 4, 6]
