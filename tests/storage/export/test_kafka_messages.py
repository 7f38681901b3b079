"""Updates as messages: for each time and key what was there before, and what is there after."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshore.errors import NotNullViolation, UniqueViolation
from foreshore.sinks.spec import Envelope
from foreshore.storage import consolidate as consolidation
from foreshore.storage.export.formats.columns import Columns
from foreshore.storage.export.formats.encoder import JsonEncoder, SingleEncoder
from foreshore.storage.export.kafka import messages
from foreshore.storage.export.kafka.messages import (
    Layout,
    Messages,
    messages_of_changes,
    messages_of_contents,
)
from foreshore.storage.export.kafka.sorted_messages import SortedMessages
from foreshore.types import INT4, TEXT, ColumnType, RelationDesc
from foreshore.update import DIFF, TIME

DESC = RelationDesc(("k", "v"), (ColumnType(TEXT), ColumnType(INT4)))
Update = tuple[str | None, int, int, int]  # key, value, time, multiplicity
# The value of each key at each time; None: there is no row.
histories = st.dictionaries(
    st.sampled_from("abc"), st.lists(st.none() | st.integers(0, 3), min_size=4, max_size=4)
)


def laid_out(envelope: Envelope, *, has_key: bool = True) -> Layout:
    key = SingleEncoder(Columns(DESC, ("k",)), is_text=True) if has_key else None
    return Layout(envelope, JsonEncoder(Columns(DESC, DESC.names)), key, "k", None)


def table(updates: list[Update]) -> pa.Table:
    names = ("k", "v", TIME, DIFF)
    types = (pa.string(), pa.int32(), pa.int64(), pa.int64())
    columns = list(zip(*updates, strict=True)) or [(), (), (), ()]
    arrays = [pa.array(column, type) for column, type in zip(columns, types, strict=True)]
    return pa.table(arrays, names=list(names))


Written = list[tuple[bytes | None, Any]]
Writes = Callable[[Layout, list[Update]], Written]


def shown(found_messages: Iterable[Messages]) -> Written:
    """Return the keys and the decoded values of messages."""
    found = []
    for keys, values, *_ in found_messages:
        for row, value in enumerate(values):
            found.append((None if keys is None else keys[row], value and json.loads(value)))
    return found


def written(layout: Layout, updates: list[Update]) -> Written:
    return shown(messages_of_changes(layout, table(updates)))


def written_on_disk(layout: Layout, updates: list[Update]) -> Written:
    """Return the same by way of files, from parts of three updates, in batches of few."""
    with tempfile.TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as patch:
        patch.setattr(consolidation, "IN_MEMORY", 0)
        patch.setattr(messages, "ROWS_AT_ONCE", 2)
        ordered = SortedMessages(layout, Path(scratch))
        for start in range(0, len(updates), 3):
            ordered.add(table(updates[start : start + 3]))
        return shown(ordered.messages())


both_ways = pytest.mark.parametrize("writes", [written, written_on_disk])


def row(key: str, value: int | None) -> dict[str, Any] | None:
    return None if value is None else {"k": key, "v": value}


@both_ways
@given(histories, st.randoms(use_true_random=False))
def test_there_is_one_message_for_each_time_and_key(
    writes: Writes, history: dict[str, list[int | None]], drawn: random.Random
) -> None:
    updates: list[Update] = []
    expected: dict[bytes, list[tuple[Any, Any]]] = {}
    for key, values in history.items():
        before = None
        for time, value in enumerate(values):
            if value != before:
                updates += [
                    (key, v, time, d) for v, d in ((before, -1), (value, 1)) if v is not None
                ]
                expected.setdefault(key.encode(), []).append((row(key, before), row(key, value)))
            before = value
    drawn.shuffle(updates)
    changes: dict[Any, list[Any]] = {}
    for key_bytes, value in writes(laid_out("debezium"), updates):
        changes.setdefault(key_bytes, []).append((value["before"], value["after"]))
    assert changes == expected
    rows: dict[Any, list[Any]] = {}
    for key_bytes, value in writes(laid_out("upsert"), updates):
        rows.setdefault(key_bytes, []).append(value)
    assert rows == {key: [after for _, after in each] for key, each in expected.items()}


@both_ways
def test_messages_are_in_the_order_of_their_times(writes: Writes) -> None:
    updates: list[Update] = [(key, time, time, 1) for time in (3, 1, 2) for key in "ba"]
    values = [
        value["v"]
        for _, value in writes(laid_out("debezium", has_key=False), updates)
        for value in [value["after"]]
    ]
    assert values == [1, 1, 2, 2, 3, 3]


@both_ways
def test_without_a_key_each_row_is_a_message_as_often_as_it_is_there(writes: Writes) -> None:
    layout = laid_out("debezium", has_key=False)
    assert writes(layout, [("a", 1, 5, 2), ("b", 2, 5, -1)]) == [
        (None, {"before": {"k": "b", "v": 2}, "after": None}),
        (None, {"before": None, "after": {"k": "a", "v": 1}}),
        (None, {"before": None, "after": {"k": "a", "v": 1}}),
    ]
    (found,) = messages_of_contents(layout, table([("a", 1, 5, 2)]))
    assert [json.loads(each or b"")["after"] for each in found.values] == [{"k": "a", "v": 1}] * 2


@pytest.mark.parametrize(
    "updates",
    [
        [("a", 1, 5, 2)],
        [("a", 1, 5, 1), ("a", 2, 5, 1)],
        [("a", number, 5, 1) for number in range(8)],
        [("a", 1, 5, -1), ("a", 2, 5, -1), ("a", 3, 5, 1)],
    ],
)
@both_ways
def test_several_rows_of_a_key_are_refused(writes: Writes, updates: list[Update]) -> None:
    others = [(f"{number}", 0, 5, 1) for number in range(10)]
    with pytest.raises(UniqueViolation, match="several rows have the same key") as raised:
        writes(laid_out("upsert"), [*updates[:1], *others, *updates[1:]])
    assert raised.value.detail == "Key a."
    with pytest.raises(UniqueViolation, match="several rows have the same key"):
        writes(laid_out("upsert"), updates)


def test_a_key_that_is_null_is_refused() -> None:
    with pytest.raises(NotNullViolation, match="the key"):
        written_on_disk(laid_out("upsert"), [(None, 1, 5, 1)])
    for convert in (messages_of_changes, messages_of_contents):
        with pytest.raises(NotNullViolation, match="the key"):
            list(convert(laid_out("upsert"), table([(None, 1, 5, 1)])))


def test_a_row_after_that_looks_like_the_row_before_is_a_message() -> None:
    key = SingleEncoder(Columns(DESC, ("k",)), is_text=True)
    layout = Layout("upsert", JsonEncoder(Columns(DESC, ("k",))), key, "k", None)
    updates: list[Update] = [("a", 1, 5, -1), ("a", 2, 5, 1)]
    assert written(layout, updates) == written_on_disk(layout, updates) == [(b"a", {"k": "a"})]
