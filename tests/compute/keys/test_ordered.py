"""Rows of a key index in the order of other columns against a plain model, at each time."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.compute.arrange import arrangement as arrangement_module
from foreshore.compute.keys import layout as layout_module
from foreshore.compute.keys import ordered as ordered_module
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.layout import KeyedRows
from foreshore.compute.keys.own_rows import OwnRows
from foreshore.compute.span import Span, Values
from foreshore.constraint import Unique
from foreshore.expr.ir import Literal
from foreshore.types import INT4, TEXT
from tests.compute.keys.test_secondary import DESC, Row, T, changes_of, groups, rows, table
from tests.effort import examples

COLUMNS = (1, 2, 0)  # with NULLs, and a key at last, so that the order is that of all rows
ends = st.one_of(
    st.just(()),
    st.tuples(st.integers(0, 4)),
    st.tuples(st.none()),
    st.tuples(st.integers(0, 4), st.sampled_from(["", "x", None])),
)
spans = st.builds(
    lambda low, high, low_in, high_in, descending: Span(
        _literals(low), low_in, _literals(high), high_in, descending, True
    ),
    ends,
    ends,
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


def _literals(end: tuple[object, ...]) -> Values:
    return tuple([Literal(value, type) for value, type in zip(end, (INT4, TEXT), strict=False)])


def _ordered(row: tuple[object, ...]) -> tuple[tuple[bool, object], ...]:
    """Return what compares as rows do: NULL comes last."""
    return tuple([(value is None, 0 if value is None else value) for value in row])


def _within(span: Span, row: Row) -> bool:
    key = _ordered((row[1], row[2], row[0]))
    low, high = (_ordered(tuple([each.value for each in end])) for end in (span.low, span.high))
    first, last = key[: len(low)], key[: len(high)]
    above = first > low or (span.low_inclusive and first == low) or not low
    below = last < high or (span.high_inclusive and last == high) or not high
    return above and below


def _wanted(span: Span, now: dict[int, Row]) -> list[Row]:
    found = [row for row in now.values() if _within(span, row)]
    return sorted(found, key=lambda r: _ordered((r[1], r[2], r[0])), reverse=span.descending)


@settings(max_examples=examples(150), deadline=None)
@given(
    groups,
    st.lists(rows, max_size=4),
    st.lists(spans, min_size=1, max_size=4),
    st.sampled_from([1, 3, 2048]),
    st.sampled_from([1, 4, 64]),
)
def test_rows_in_order_are_those_of_model(
    steps: list[list[Row] | str], staged: list[Row], asked: list[Span], tail: int, few: int
) -> None:
    """Rows that were deleted are passed by, one by one and then in slices."""

    async def check() -> None:
        index, now = KeyIndex(T, Unique("k", (0,)), DESC, 0), dict[int, Row]()
        index.insert([], 0)
        history: list[dict[int, Row]] = [{}]
        with ThreadPoolExecutor(1) as executor:
            for step in steps:
                if step == "merge":
                    merge = index.arrangement.next_merge()
                    if merge is not None:
                        await index._merge(executor, merge)
                elif isinstance(step, list):
                    changes = changes_of(now, step)
                    index.insert(
                        [KeyedRows(index.layout, table(changes))] if changes else [], len(history)
                    )
                    history.append(dict(now))
                elif len(history) > 1:
                    index.arrangement.compact(len(history) - 2)
            await index.prepare_order(COLUMNS, executor)
        view = index.in_order(COLUMNS, None)
        assert view is not None
        for span in asked:
            for time in range(index.arrangement.since, len(history)):
                assert [*view.rows(span, {0, 1, 2}, time)] == _wanted(span, history[time])
        own = OwnRows(index.layout)
        written = table(changes_of(now, staged))
        own.add(KeyedRows(index.layout, written), written)
        view = index.in_order(COLUMNS, own)
        assert view is not None
        for span in asked:
            found = [*view.rows(span, {0, 2}, len(history) - 1)]
            assert [(row[0], row[2]) for row in found] == [
                (row[0], row[2]) for row in _wanted(span, now)
            ]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrangement_module, "TAIL_ROWS", tail)
        patch.setattr(layout_module, "TAIL_ROWS", tail)
        patch.setattr(ordered_module, "FEW_MERGED", few)
        patch.setattr(ordered_module, "SLICE", few)
        asyncio.run(check())
