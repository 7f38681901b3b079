"""Envelopes over random histories: replaying their rows gives the collection."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.compute.engine import output_schema
from foreshore.compute.envelope import Form
from foreshore.datum import from_array, to_array
from foreshore.expr.envelope import Debezium, Diffs, Envelope, Upsert
from foreshore.expr.ir import Column, OrderKey
from foreshore.types import (
    BOOL,
    FLOAT8,
    INT4,
    INT8,
    MZ_TIMESTAMP,
    TEXT,
    ColumnType,
    Datum,
    RelationDesc,
)
from tests.adapter.subscribe.replay import Replay, Row
from tests.effort import examples

COLUMNS = (ColumnType(INT4), ColumnType(TEXT), ColumnType(FLOAT8))
Change = tuple[Row, int, int]


def table(changes: list[Change]) -> pa.Table:
    """Return changes as updates of rows with `COLUMNS`."""
    columns: list[list[Datum]] = [[row[i] for row, _, _ in changes] for i in range(3)]
    arrays = [to_array(values, c.type) for values, c in zip(columns, COLUMNS, strict=True)]
    times = pa.array([time for _, time, _ in changes], pa.int64())
    diffs = pa.array([diff for _, _, diff in changes], pa.int64())
    return pa.Table.from_arrays([*arrays, times, diffs], schema=output_schema(COLUMNS))


def form_of(envelope: Envelope) -> Form:
    """Return the shape of SUBSCRIBE ... WITH (PROGRESS) over `COLUMNS`."""
    types = [MZ_TIMESTAMP, BOOL]
    if isinstance(envelope, Diffs):
        types += [INT8, *(c.type for c in COLUMNS)]
    else:
        key = envelope.key
        values = [c.type for i, c in enumerate(COLUMNS) if i not in key]
        types += [TEXT, *(COLUMNS[i].type for i in key)]
        types += values * (2 if isinstance(envelope, Debezium) else 1)
    names = tuple(f"c{i}" for i in range(len(types)))
    return Form(envelope, True, COLUMNS, RelationDesc(names, tuple(map(ColumnType, types))))


def told(form: Form, changes: list[Change]) -> list[Row]:
    """Return the rows of a window's changes."""
    rows = form.rows(table(changes))
    columns = [from_array(c, d.type) for c, d in zip(rows.columns, form.desc.columns, strict=True)]
    return list(zip(*columns, strict=True))


KEYS = st.sampled_from([None, 1, 2, 3])
VALUES = st.tuples(st.sampled_from(["a", "b", None]), st.sampled_from([0.5, float("inf"), None]))
STATES = st.lists(st.dictionaries(KEYS, VALUES, max_size=4), min_size=1, max_size=8)


@settings(max_examples=examples(200))
@given(states=STATES, noise=st.booleans(), cuts=st.sets(st.integers(0, 8)))
@pytest.mark.parametrize(
    ("name", "envelope"),
    [(None, Diffs()), ("UPSERT", Upsert((0,))), ("DEBEZIUM", Debezium((0,)))],
)
def test_replay_of_rows_equals_collection_at_every_time(
    name: str | None, envelope: Envelope, states: list[dict[int, Row]], noise: bool, cuts: set[int]
) -> None:
    form, replay = form_of(envelope), Replay(name, 3)
    before: Counter[Row] = Counter()
    window: list[Change] = []
    for time, state in enumerate(states, 1):
        now = Counter((key, *values) for key, values in state.items())
        rows = sorted(before.keys() | now.keys(), key=repr)
        changes = [(row, time, now[row] - before[row]) for row in rows if now[row] != before[row]]
        if noise:  # what goes and comes at once is no change
            changes = [((9, "x", None), time, 1), *changes, ((9, "x", None), time, -1)]
        window += changes
        before = now
        if time in cuts or time == len(states):
            replay.take(told(form, window) if window else [])
            window = []
            assert replay.rows == now
    assert not replay.violations


def test_two_rows_of_one_key_give_key_violation() -> None:
    changes = [((1, "a", 0.5), 5, 1), ((1, "b", 0.5), 5, 1), ((2, "a", 0.5), 5, 2)]
    changes += [((3, "a", 0.5), 5, 1), ((4, "a", 0.5), 5, -2), ((4, "b", 0.5), 5, 1)]
    assert told(form_of(Upsert((0,))), changes) == [
        (5, False, "key_violation", 1, None, None),
        (5, False, "key_violation", 2, None, None),
        (5, False, "upsert", 3, "a", 0.5),
        (5, False, "key_violation", 4, None, None),
    ]
    assert told(form_of(Debezium((1, 0))), changes)[-1] == (5, False, "insert", "b", 4, None, 0.5)


def test_within_timestamp_order_by_orders_rows_of_one_time() -> None:
    by_value = OrderKey(Column(2, TEXT), descending=True, nulls_first=False)
    by_diff = OrderKey(Column(0, INT8, False))
    changes = [((k, v, None), 7, d) for k, v, d in [(1, "a", 1), (2, None, 1), (3, "b", 1)]]
    changes += [((4, "a", None), 7, -1), ((5, "z", None), 6, 1), ((6, "", None), 8, 1)]
    rows = told(form_of(Diffs((by_value, by_diff))), changes)
    assert [row[3] for row in rows] == [5, 3, 4, 1, 2, 6]


def test_progress_row_is_null_after_its_time() -> None:
    mark = form_of(Upsert((0,))).progress_row(12)
    assert [column[0].as_py() for column in mark.columns] == [12, True, None, None, None, None]
