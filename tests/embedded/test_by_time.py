from collections.abc import Iterator

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from foreshore.embedded.subscription import ByTime, Changes, Event, Progress

SCHEMA = pa.schema(
    [
        ("mz_timestamp", pa.int64()),
        ("mz_progressed", pa.bool_()),
        ("mz_diff", pa.int64()),
        ("x", pa.int64()),
    ]
)
Row = tuple[int, bool, int | None, int | None]


def batch(*rows: Row) -> pa.RecordBatch:
    names = SCHEMA.names
    return pa.RecordBatch.from_pylist([dict(zip(names, row, strict=True)) for row in rows], SCHEMA)


def progress(time: int) -> Row:
    return (time, True, None, None)


def events(by_time: ByTime, *batches: pa.RecordBatch) -> Iterator[Event]:
    for each in batches:
        yield from by_time.take(each)


def test_rows_of_one_time_are_given_together_when_it_has_passed() -> None:
    by_time = ByTime(snapshot=True)
    assert list(events(by_time, batch(progress(5)))) == [Progress(5)]
    assert list(events(by_time, batch((5, False, 1, 1)), batch((5, False, 1, 2)))) == []
    first, passed = events(by_time, batch(progress(6)))
    assert isinstance(first, Changes)
    assert (first.time, first.snapshot) == (5, True)
    assert first.rows.to_pylist() == [{"mz_diff": 1, "x": 1}, {"mz_diff": 1, "x": 2}]
    assert passed == Progress(6)
    later = list(events(by_time, batch((7, False, -1, 1), (8, False, 1, 3), progress(8))))
    assert [type(each) for each in later] == [Changes, Progress]
    assert isinstance(later[0], Changes)
    assert (later[0].time, later[0].snapshot) == (7, False)
    assert (later[0].removed.num_rows, later[0].added.num_rows) == (1, 0)


def test_empty_contents_are_given_too() -> None:
    found = list(events(ByTime(snapshot=True), batch(progress(5)), batch(progress(6))))
    assert [type(each) for each in found] == [Progress, Changes, Progress]
    assert isinstance(found[1], Changes)
    assert (found[1].snapshot, found[1].rows.num_rows) == (True, 0)
    assert found[1].rows.column_names == ["mz_diff", "x"]


def test_without_contents_no_change_is_a_snapshot() -> None:
    by_time = ByTime(snapshot=False)
    found = list(events(by_time, batch(progress(5)), batch((7, False, 1, 1), progress(8))))
    assert [e.snapshot for e in found if isinstance(e, Changes)] == [False]


def test_end_of_the_stream_completes_what_is_there() -> None:
    by_time = ByTime(snapshot=False)
    assert len(list(events(by_time, batch(progress(5)), batch((7, False, 1, 1))))) == 1
    (change, _) = by_time.end()
    assert isinstance(change, Changes)
    assert change.time == 7


ROWS = st.lists(
    st.tuples(st.integers(6, 12), st.integers(0, 3), st.sampled_from([1, -1])), max_size=12
)


@given(ROWS, st.data())
def test_changes_are_those_of_the_stream_by_time(
    rows: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    rows = sorted(rows)
    by_time = ByTime(snapshot=False)
    found = list(by_time.take(batch(progress(5))))
    for at, (time, x, diff) in enumerate(rows):
        is_last = at + 1 == len(rows) or rows[at + 1][0] > time
        tail = [progress(time + 1)] if is_last and data.draw(st.booleans()) else []
        found += by_time.take(batch((time, False, diff, x), *tail))
    found += by_time.end()
    changes = [each for each in found if isinstance(each, Changes)]
    times = [each.time for each in changes]
    assert times == sorted(set(times))
    given = [(c.time, r["x"], r["mz_diff"]) for c in changes for r in c.rows.to_pylist()]
    assert sorted(given) == rows
