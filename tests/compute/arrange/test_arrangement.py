"""An arrangement holds the sum of its updates at each readable time."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.compute.arrange import arrangement as module
from foreshore.compute.arrange.arrangement import Arrangement, consolidate
from foreshore.compute.arrange.key import hash_columns, hash_words, key_words
from foreshore.compute.arrange.merge import Merge
from foreshore.compute.arrange.run import Run, sort_and_consolidate
from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.datum import to_array
from foreshore.errors import InternalError, ObjectNotInPrerequisiteState
from foreshore.types import (
    DATE,
    FLOAT8,
    INT4,
    INTERVAL,
    JSONB,
    TEXT,
    TIMESTAMP,
    UUID,
    SqlType,
    array_of,
    arrow_type,
    numeric,
)
from foreshore.update import update_schema
from tests.effort import examples

SCHEMA = pa.schema([("k", pa.int32()), ("v", pa.string())])


def arrangement(since: int = 0) -> Arrangement:
    return Arrangement("u1", SCHEMA, (INT4,), lambda rows: [rows.column(0)], since)


def table(updates: Sequence[tuple[int | None, str | None, int, int]]) -> pa.Table:
    columns = list(zip(*updates, strict=True)) or [(), (), (), ()]
    schema = update_schema(SCHEMA)
    return pa.Table.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )


Row = tuple[int | None, str | None]
rows = st.tuples(st.one_of(st.none(), st.integers(0, 3)), st.sampled_from([None, "", "a", "bb"]))


@settings(max_examples=examples(100))
@given(st.data())
def test_arrangement_matches_model_at_every_time(data: st.DataObject) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TAIL_ROWS", 6)
        patch.setattr(module, "TAIL_PARTS", 3)
        subject = arrangement()
        model: list[tuple[Row, int, int]] = []
        now: Counter[Row] = Counter()
        for _ in range(data.draw(st.integers(1, 12))):
            lower = subject.upper
            upper = lower + data.draw(st.integers(1, 3))
            window: list[tuple[Row, int, int]] = []
            for time in range(lower, upper):
                for row in data.draw(st.lists(rows, max_size=4)):
                    diff = data.draw(st.sampled_from([1, 1, 2, -1]))
                    if now[row] + diff >= 0:
                        now[row] += diff
                        window.append((row, time, diff))
            shuffled = data.draw(st.permutations(window))
            subject.insert(table([(*row, time, diff) for row, time, diff in shuffled]), upper)
            model += window
            match data.draw(st.sampled_from(["nothing", "compact", "maintain", "maintain"])):
                case "compact":
                    subject.compact(data.draw(st.integers(subject.since, subject.upper - 1)))
                case "maintain":
                    subject.maintain(data.draw(st.integers(1, 5)))
            subject.check()
            for time in range(subject.since, subject.upper):
                assert_reads(subject, time, model)


def assert_reads(subject: Arrangement, time: int, model: list[tuple[Row, int, int]]) -> None:
    expected: Counter[Row] = Counter()
    for row, at, diff in model:
        if at <= time:
            expected[row] += diff
    expected = +expected
    assert contents(subject.scan(time)) == expected
    for key in range(4):
        found = contents(subject.look_up([(key,)], time))
        assert found == {r: n for r, n in expected.items() if r[0] == key}
    two = contents(subject.look_up([(1,), (2,), (1,), (None,)], time))
    assert two == {r: n for r, n in expected.items() if r[0] in (1, 2)}
    many = [(1,), (None,), *((key,) for key in range(-6, 3)), (1 << 40,)]  # no int4 is the last
    assert len(many) > module.FEW_KEYS
    some = contents(subject.look_up(many, time))
    assert some == {r: n for r, n in expected.items() if r[0] is not None and r[0] < 3}


def contents(batch: pa.RecordBatch) -> Counter[Any]:
    return Counter(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def test_a_negative_multiplicity_is_an_error_that_names_the_collection() -> None:
    subject = arrangement()
    subject.insert(table([(1, "a", 0, 1), (1, "b", 0, -1)]), 1)
    with pytest.raises(InternalError, match="u1"):
        subject.scan(0)
    with pytest.raises(InternalError, match="u1"):
        subject.look_up([(1,)], 0)


def test_reads_outside_since_and_upper_fail() -> None:
    subject = arrangement(5)
    subject.insert(table([(1, "a", 5, 1)]), 8)
    subject.compact(6)
    for time in (5, 8):
        with pytest.raises(ObjectNotInPrerequisiteState):
            subject.scan(time)
    assert contents(subject.scan(7)) == {(1, "a"): 1}


def test_an_arrangement_behind_its_since_is_saved_and_goes_on() -> None:
    subject, loaded = arrangement(), arrangement()
    subject.insert(table([(1, "a", 1, 1), (2, "b", 3, 1)]), 5)
    subject.compact(8)
    to = Writer()
    subject.save(to)
    loaded.load(Reader(to.captured))
    assert (loaded.since, loaded.upper) == (8, 5)
    loaded.insert(table([(1, "a", 6, -1), (3, "c", 9, 1)]), 10)
    assert contents(loaded.scan(8)) == Counter({(2, "b"): 1})
    assert contents(loaded.scan(9)) == Counter({(2, "b"): 1, (3, "c"): 1})
    with pytest.raises(ObjectNotInPrerequisiteState):
        loaded.scan(7)


def test_compacted_arrangement_has_size_of_live_rows() -> None:
    subject = arrangement()
    for time in range(1000):
        updates = [(time, "x", time, 1)]
        updates.append((time - 1, "x", time, -1) if time else (1, "a", time, 1))
        subject.insert(table(updates), time + 1)
        subject.compact(time)
        while subject.maintain():
            pass
    assert subject.size[0] < 200
    assert contents(subject.scan(999)) == {(1, "a"): 1, (999, "x"): 1}


EQUAL_KEYS: list[tuple[SqlType, Any, Any]] = [
    (FLOAT8, -0.0, 0.0),
    (FLOAT8, float("nan"), -float("nan")),
    (INTERVAL, (1, 0, 0), (0, 30, 0)),
    (INTERVAL, (0, 1, 0), (0, 0, 86_400_000_000)),
    (JSONB, '{"a": 1.0}', '{"a": 1.00}'),
    (JSONB, "[100]", "[100.0]"),
    (numeric(10, 2), "1", "1.00"),
    (TEXT, "hello", "hello"),
    (TEXT, "a longer text than a word", "a longer text than a word"),
    (TEXT, "", ""),
    (DATE, 17, 17),
    (DATE, 2**31 - 1, 2**31 - 1),
    (TIMESTAMP, 2**63 - 1, 2**63 - 1),
    (UUID, b"0123456789abcdef", b"0123456789abcdef"),
    (array_of(INT4), (1, None, 3), (1, None, 3)),
    (array_of(FLOAT8), (0.0,), (-0.0,)),
]


@pytest.mark.parametrize(("type", "x", "y"), EQUAL_KEYS)
def test_key_lookup_uses_sql_equality(type: SqlType, x: Any, y: Any) -> None:
    schema = pa.schema([("k", arrow_type(type))])
    subject = Arrangement("u1", schema, (type,), lambda rows: [rows.column(0)], 0)
    for time, datum in enumerate((x, y, None)):
        column = to_array([datum], type)
        updates = [column, pa.array([time]), pa.array([1])]
        subject.insert(pa.Table.from_arrays(updates, schema=update_schema(schema)), time + 1)
    assert len(subject.look_up([(x,)], 2)) == 2
    assert len(subject.look_up([(y,)], 2)) == 2
    assert len(subject.look_up([(x,), (y,)], 2)) == 2
    assert len(subject.look_up([(None,)], 2)) == 0


@pytest.mark.parametrize("type", [FLOAT8, array_of(FLOAT8)])
def test_row_identity_keeps_sign_of_zero_but_not_nan_bits(
    type: SqlType,
) -> None:
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)
    schema = pa.schema([("k", arrow_type(type))])
    subject = Arrangement("u1", schema, (type,), lambda rows: [rows.column(0)], 0)
    for time, (value, diff) in enumerate(
        [(-0.0, 1), (0.0, 1), (nans[0], 1), (-0.0, -1), (nans[1], -1)]
    ):
        values = pa.array([value])
        column = values if type == FLOAT8 else pa.ListArray.from_arrays([0, 1], values)
        updates = [column, pa.array([time]), pa.array([diff])]
        subject.insert(pa.Table.from_arrays(updates, schema=update_schema(schema)), time + 1)
    assert "-0.0" not in repr(subject.scan(4).column(0).to_pylist())
    assert len(subject.scan(4)) == 1
    subject.compact(4)
    subject._spill()
    assert repr(subject.scan(4).column(0).to_pylist()) in ("[0.0]", "[[0.0]]")


def test_impossible_key_value_is_not_found() -> None:
    schema = pa.schema([("k", arrow_type(numeric(10, 2)))])
    subject = Arrangement("u1", schema, (numeric(10, 2),), lambda rows: [rows.column(0)], 0)
    column = to_array(["1.00"], numeric(10, 2))
    subject.insert(
        pa.Table.from_arrays([column, pa.array([0]), pa.array([1])], schema=update_schema(schema)),
        1,
    )
    assert len(subject.look_up([("1.005",)], 0)) == 0


@given(st.lists(st.text(max_size=20), min_size=1, max_size=30))
def test_the_hash_of_a_key_is_the_same_alone_and_in_a_column(texts: list[str]) -> None:
    column = pa.array(["x", *texts], pa.string()).slice(1)
    hashes = hash_columns([column], [TEXT], len(texts))
    words = [key_words((text,), (TEXT,)) for text in texts]
    assert [hash_words(word) for word in words if word is not None] == hashes.tolist()
    assert len(set(hashes.tolist())) == len(set(texts))


def test_hashes_of_different_rows_differ() -> None:
    columns = [
        [pa.array([[1], [1, 1], [], None, [None]], pa.list_(pa.int32()))],
        [pa.array(["", None, "\0", "\0\0", "a" * 8, "a" * 9, "a" * 16])],
        [pa.array([0, None, 1, -1], pa.int64())],
        [pa.array(["a", "ab", None, ""]), pa.array(["bc", "c", "", None])],
    ]
    for column in columns:
        assert len(set(hash_columns(column, None, len(column[0])).tolist())) == len(column[0])


@settings(max_examples=examples(50))
@given(st.data())
def test_sliced_merge_equals_whole_merge(data: st.DataObject) -> None:
    update = st.tuples(st.integers(0, 9), st.just("v"), st.integers(0, 5), st.sampled_from([1, -1]))
    subject = arrangement()
    parts = [subject._updates_of(table(data.draw(st.lists(update, min_size=1)))) for _ in range(2)]
    older, newer = (
        Run.of(sort_and_consolidate(part, 0), i, i + 1, 0) for i, part in enumerate(parts)
    )
    since = data.draw(st.integers(0, 6))
    whole = Merge(newer, older, since).work(1000)
    merge = Merge(newer, older, since)
    sliced = None
    for _ in range(100):
        sliced = merge.work(data.draw(st.integers(1, 3)))
        if sliced is not None:
            break
    assert whole is not None
    assert sliced is not None
    assert sliced.updates.rows.equals(whole.updates.rows)
    assert np.array_equal(sliced.updates.diffs, whole.updates.diffs)
    assert np.array_equal(sliced.updates.times, whole.updates.times)


def test_consolidate_adds_equal_updates_up() -> None:
    updates = table([(1, "a", 1, 1), (1, "a", 2, -1), (2, "b", 1, 2), (2, "b", 3, 1)])
    assert consolidate(updates, SCHEMA, 2).to_pylist() == [
        {"k": 2, "v": "b", "__time": 2, "__diff": 2},
        {"k": 2, "v": "b", "__time": 3, "__diff": 1},
    ]
