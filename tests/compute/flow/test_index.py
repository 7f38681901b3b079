"""An index of a dataflow's output holds the sum of its updates at each readable time."""

from collections import Counter
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.compute.arrange.arrangement import TooManyRows
from foreshore.compute.engine import rows_schema
from foreshore.compute.flow import spine
from foreshore.compute.flow.batch import empty
from foreshore.compute.flow.convert import batch_of
from foreshore.compute.flow.index import FlowIndex, index_key
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.layout import layout_of
from foreshore.compute.flow.output import FlowOutput
from foreshore.datum import to_array
from foreshore.errors import InternalError, ObjectNotInPrerequisiteState
from foreshore.expr.ir import Column
from foreshore.types import (
    BOOL,
    DATE,
    FLOAT8,
    INT4,
    INT8,
    JSONB,
    TEXT,
    UUID,
    ColumnType,
    SqlType,
    numeric,
)
from foreshore.update import update_schema
from tests.effort import examples

COLUMNS = (ColumnType(INT4), ColumnType(TEXT))
Row = tuple[int | None, str | None]
rows = st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.sampled_from([None, "", "a", "bb"]))


class Subject:
    """An index of rows of `columns`, and what has numbers for their strings."""

    def __init__(
        self, columns: tuple[ColumnType, ...] = COLUMNS, key: Sequence[int] = (0,), since: int = 0
    ) -> None:
        self.interner = Interner()
        self.columns = columns
        self.layout = layout_of(columns)
        places = index_key([Column(i, columns[i].type) for i in key], self.layout)
        assert places is not None
        self.index = FlowIndex("u1", self.layout, places, self.interner, 1, since, since)

    def insert(self, updates: Sequence[tuple[Any, ...]], upper: int) -> None:
        schema = update_schema(rows_schema(self.columns))
        values = list(zip(*updates, strict=True)) or [() for _ in schema]
        arrays = [to_array(v, c.type) for v, c in zip(values, self.columns, strict=False)]
        arrays += [pa.array(each, pa.int64()) for each in values[-2:]]
        table = pa.Table.from_arrays(arrays, schema=schema)
        picked = range(len(self.columns))
        batch = batch_of(table, picked, self.layout, self.interner)
        errors = empty(1)
        self.index.insert_output(
            FlowOutput(batch, self.layout, self.columns, errors, self.interner), upper
        )


def contents(batch: pa.RecordBatch) -> Counter[Any]:
    return Counter(zip(*(column.to_pylist() for column in batch.columns), strict=True))


@settings(max_examples=examples(60))
@given(st.data())
def test_index_matches_model_at_every_time(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spine, "TAIL_ROWS", 8)
        patch.setattr(spine, "CROWDED", 4)
        patch.setattr(spine, "MERGE_BUDGET", data.draw(st.integers(1, 5)))
        subject = Subject(key=data.draw(st.sampled_from([(0,), (1,), (0, 1)])))
        index = subject.index
        model: list[tuple[Row, int, int]] = []
        now: Counter[Row] = Counter()
        for _ in range(data.draw(st.integers(1, 12))):
            lower = index.upper
            upper = lower + data.draw(st.integers(1, 3))
            window: list[tuple[Row, int, int]] = []
            for time in range(lower, upper):
                for row in data.draw(st.lists(rows, max_size=4)):
                    diff = data.draw(st.sampled_from([1, 1, 2, -1]))
                    if now[row] + diff >= 0:
                        now[row] += diff
                        window.append((row, time, diff))
            shuffled = data.draw(st.permutations(window))
            subject.insert([(*row, time, diff) for row, time, diff in shuffled], upper)
            model += window
            match data.draw(st.sampled_from(["nothing", "compact", "maintain", "maintain"])):
                case "compact":
                    index.compact(data.draw(st.integers(index.since, index.upper - 1)))
                case "maintain" if index.maintenance_due:
                    index.maintain()
            for time in range(index.since, index.upper):
                assert_reads(subject, time, model)


def assert_reads(subject: Subject, time: int, model: list[tuple[Row, int, int]]) -> None:
    expected: Counter[Row] = Counter()
    for row, at, diff in model:
        if at <= time:
            expected[row] += diff
    expected = +expected
    index = subject.index
    assert contents(index.scan(time)) == expected
    key = [place.type for place in index._key]
    for asked in ((0, "a"), (1, ""), (2, "bb"), (3, "new"), (None, "a"), (0, None)):
        picked = tuple(asked[0 if type == INT4 else 1] for type in key)
        columns = [0 if type == INT4 else 1 for type in key]
        found = contents(index.look_up([picked, picked], time))
        assert found == {
            row: count
            for row, count in expected.items()
            if None not in picked and tuple(row[i] for i in columns) == picked
        }
    updates = index.updates(time)
    later: Counter[Any] = Counter()
    for row, at, diff in model:
        later[(*row, max(at, time))] += diff
    *columns_, diffs = (column.to_pylist() for column in updates.columns)
    assert Counter(dict(zip(zip(*columns_, strict=True), diffs, strict=True))) == {
        row: diff for row, diff in later.items() if diff
    }


@pytest.mark.parametrize(
    ("type", "values", "other"),
    [
        (INT8, (1, -1, 1 << 40), 2),
        (BOOL, (True,), False),
        (DATE, (0, -1), 5),
        (TEXT, ("", "a", "é"), "b"),
        (numeric(10, 2), (Decimal("1.50"), Decimal("-0.01")), Decimal(7)),
        (numeric(38, 2), (Decimal("1.50"), Decimal("-0.01"), Decimal(10) ** 22), Decimal(7)),
        (UUID, (bytes(15) + b"1", b"2" + bytes(15)), bytes(16)),
    ],
)
def test_values_of_each_type_are_found(type: SqlType, values: Any, other: Any) -> None:
    subject = Subject((ColumnType(type), ColumnType(INT4, False)))
    subject.insert([(v, i, 0, 1) for i, v in enumerate(values)] + [(None, 99, 0, 1)], 1)
    for i, value in enumerate(values):
        found = subject.index.look_up([(value,)], 0)
        assert found.column(1).to_pylist() == [i]
    assert not len(subject.index.look_up([(other,), (None,)], 0))
    before = len(subject.interner)
    subject.index.look_up([(other,)], 0)
    assert len(subject.interner) == before  # what is asked for is not kept


def test_keys_whose_equal_values_differ_have_no_places() -> None:
    layout = layout_of((ColumnType(FLOAT8), ColumnType(JSONB), ColumnType(INT4)))
    assert index_key([Column(0, FLOAT8)], layout) is None
    assert index_key([Column(2, INT4), Column(1, JSONB)], layout) is None
    assert index_key([], layout) is None
    assert index_key([Column(2, INT4)], layout) is not None


def test_keys_that_no_row_can_have_are_not_found() -> None:
    subject = Subject()
    subject.insert([(1, "a", 0, 1)], 1)
    assert not len(subject.index.look_up([(1 << 40,), (-1,)], 0))


@pytest.mark.parametrize("merged", [False, True])
def test_rows_are_counted_before_they_are_read(
    merged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if merged:
        monkeypatch.setattr(spine, "TAIL_ROWS", 8)
    subject = Subject()
    subject.insert([(1, text, 0, 5) for text in "abc"] + [(i, "b", 0, 1) for i in range(2, 40)], 1)
    assert subject.index.look_up([(1,)], 0, 3).num_rows == 15
    with pytest.raises(TooManyRows):
        subject.index.look_up([(1,), (2,)], 0, 3)
    with pytest.raises(TooManyRows):
        subject.index.scan(0, 40)
    assert subject.index.scan(0, 41).num_rows == 53


def test_a_negative_multiplicity_is_an_error_that_names_the_collection() -> None:
    subject = Subject()
    subject.insert([(1, "a", 0, 1), (1, "b", 0, -1)], 1)
    with pytest.raises(InternalError, match="u1"):
        subject.index.scan(0)
    with pytest.raises(InternalError, match="u1"):
        subject.index.look_up([(1,)], 0)


def test_reads_outside_since_and_upper_fail() -> None:
    subject = Subject(since=5)
    subject.insert([(1, "a", 5, 1)], 8)
    subject.index.compact(6)
    for time in (5, 8):
        with pytest.raises(ObjectNotInPrerequisiteState):
            subject.index.scan(time)
    assert contents(subject.index.scan(7)) == {(1, "a"): 1}
