"""Results are in memory while small, otherwise in a scratch file, and can be closed at any time."""

import resource
import tempfile
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore import scratch_share
from foreshore.compute import finish
from foreshore.compute import result as results
from foreshore.compute.finish import finished_parts
from foreshore.compute.result import KEPT_BYTES, PART_BYTES, Result, collected, sized
from foreshore.errors import OutOfMemory
from foreshore.expr.ir import Column, Finishing, OrderKey
from foreshore.types import INT8
from foreshore.update import DIFF
from tests.effort import examples

SCHEMA = pa.schema([pa.field("c0", pa.int64()), pa.field("c1", pa.string())])


def batch(start: int, count: int, width: int = 100) -> pa.RecordBatch:
    """Return rows numbered from `start` on."""
    numbers = pa.array(range(start, start + count), pa.int64())
    return pa.RecordBatch.from_arrays([numbers, pa.array(["x" * width] * count)], schema=SCHEMA)


def counted(start: int, count: int, diff: int = 1) -> pa.Table:
    """Return numbered rows with their multiplicity."""
    diffs = pa.array([diff] * count, pa.int64())
    return pa.table([pa.array(range(start, start + count), pa.int64()), diffs], ["c0", "__diff"])


def numbers(result: Result) -> list[int]:
    """Return the numbers of all rows, as they are taken."""
    return [n for rows in iter(result.take, None) for n in rows.column(0).to_pylist()]


def test_small_result_stays_in_memory() -> None:
    result = collected([batch(0, 10), batch(10, 10)])
    assert result.is_at_hand()
    assert not result.spilled_bytes
    assert numbers(result) == list(range(20))


def test_large_result_is_taken_in_order_from_its_file_in_small_parts() -> None:
    result = collected(batch(start, 10_000) for start in range(0, 100_000, 10_000))
    assert result.num_rows == 100_000
    assert result.spilled_bytes > 100_000 * 100 - KEPT_BYTES
    sizes = []
    taken = []
    while (rows := result.take()) is not None:
        sizes.append(rows.nbytes)
        taken += rows.column(0).to_pylist()
    assert taken == list(range(100_000))
    assert max(sizes) <= 2 * PART_BYTES


def test_closed_result_has_no_file_and_takes_and_gives_nothing_more() -> None:
    result = collected([batch(0, 50_000)])
    file = result._file
    assert file is not None
    result.close()
    assert file.closed
    result.add(batch(0, 50_000))
    assert result._file is None
    assert result.take() is None


def test_result_that_is_closed_while_a_thread_uses_the_file_is_closed_after_that() -> None:
    result = collected([batch(0, 50_000)])
    file = result._begin()
    assert file is not None
    result.close()
    assert not file.closed
    result._finish()
    assert file.closed


def test_failure_while_a_result_is_collected_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Result] = []

    class Watched(Result):
        def __init__(self, schema: pa.Schema) -> None:
            super().__init__(schema)
            made.append(self)

    def failing() -> Iterator[pa.RecordBatch]:
        yield batch(0, 50_000)
        raise OutOfMemory("too large")

    monkeypatch.setattr(results, "Result", Watched)
    with pytest.raises(OutOfMemory):
        collected(failing())
    assert made[0]._file is None
    assert made[0].take() is None


def test_batches_are_joined_and_cut_to_the_size_of_a_part() -> None:
    found = list(sized([batch(0, 1), batch(1, 0), batch(1, 50_000), batch(50_001, 3)]))
    assert [n for rows in found for n in rows.column(0).to_pylist()] == list(range(50_004))
    assert all(rows.nbytes >= PART_BYTES for rows in found[:-1])
    assert all(rows.nbytes <= 2 * PART_BYTES for rows in found)
    assert [rows.num_rows for rows in sized([batch(0, 0), batch(0, 0)])] == [0]


@pytest.mark.parametrize("diff", [1, 3])
@pytest.mark.parametrize(
    ("offset", "limit"), [(0, None), (0, 0), (5, 7), (9, 1), (12, 100), (99, 5)]
)
def test_parts_are_finished_as_the_whole_would_be(
    diff: int, offset: int, limit: int | None
) -> None:
    rows = [n for n in range(20) for _ in range(diff)]
    expected = rows[offset:] if limit is None else rows[offset : offset + limit]
    parts = [counted(start, 5, diff) for start in range(0, 20, 5)]
    found = list(finished_parts(parts, Finishing((), limit, offset, (0,))))
    assert [n for each in found for n in each.column(0).to_pylist()] == expected
    ordered = Finishing((OrderKey(Column(0, INT8), descending=True),), limit, offset, (0,))
    backwards = rows[::-1][offset:] if limit is None else rows[::-1][offset : offset + limit]
    found = list(finished_parts(parts, ordered))
    assert [n for each in found for n in each.column(0).to_pylist()] == backwards


def test_no_part_after_the_limit_is_computed() -> None:
    def parts() -> Iterator[pa.Table]:
        yield counted(0, 5)
        raise AssertionError("it is not asked for")

    (found,) = finished_parts(parts(), Finishing((), 3, 1, (0,)))
    assert found.column(0).to_pylist() == [1, 2, 3]


@settings(max_examples=examples(200))
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50)), max_size=12), min_size=1),
    st.integers(0, 20),
    st.integers(0, 5),
    st.integers(0, 6),
)
def test_first_rows_in_order_are_kept_as_parts_come(
    parts: list[list[tuple[int, int]]], limit: int, offset: int, at_once: int
) -> None:
    schema = pa.schema([("c0", pa.int64()), ("c1", pa.int64()), (DIFF, pa.int64())])
    tables = [
        pa.Table.from_pylist([{"c0": a, "c1": b, DIFF: 1 + b % 2} for a, b in part], schema=schema)
        for part in parts
    ]
    order = (OrderKey(Column(0, INT8), descending=True),)  # has ties, which stay as they came
    repeated = [row for part in parts for row in part for _ in range(1 + row[1] % 2)]
    expected = sorted(repeated, key=lambda row: -row[0])[offset : offset + limit]
    kept, finish.ORDERED_AT_ONCE = finish.ORDERED_AT_ONCE, at_once
    try:
        found = list(finished_parts(tables, Finishing(order, limit, offset, (0, 1))))
    finally:
        finish.ORDERED_AT_ONCE = kept
    assert [tuple(row.values()) for part in found for row in part.to_pylist()] == expected


def spilled() -> Result:
    result = Result(SCHEMA)
    result.spill(batch(0, 1))
    return result


def test_scratch_files_are_a_part_of_those_that_the_process_may_open_by_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(scratch_share, "_ALL", scratch_share._All())
    limit = [8]
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit[0], 100))
    held = [spilled(), spilled()]
    with pytest.raises(OutOfMemory):
        spilled()
    limit[0] = 12  # as a server raises it when it starts
    held.append(spilled())
    for each in held:
        each.close()
    limit[0] = resource.RLIM_INFINITY
    spilled().close()


def test_a_scratch_file_that_cannot_be_opened_is_not_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (8, 8))
    monkeypatch.setattr(scratch_share, "_ALL", scratch_share._All())
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "TemporaryFile", full)
        for _ in range(3):
            with pytest.raises(OSError, match="No space left"):
                spilled()
    spilled().close()
