"""Answers are kept by arguments: what is equal is asked for once, and nothing is mixed up."""

from collections import Counter
from collections.abc import Callable, Sequence
from threading import Barrier, Thread
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.python_functions.answers import Answers
from foreshore.python_functions.row_hashes import row_hashes
from tests.effort import examples

LISTS = pa.list_(pa.string())
VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.int64(): st.none() | st.integers(-3, 3),
    pa.float64(): st.none() | st.sampled_from([0.0, -0.0, 1.5, float("nan")]),
    pa.bool_(): st.none() | st.booleans(),
    pa.string(): st.none() | st.text("ab\0", max_size=18),
    LISTS: st.none() | st.lists(st.none() | st.text("ab", max_size=9), max_size=3),
    pa.decimal128(38, 2): st.none() | st.decimals(-2, 2, places=2),
}


def _rows(of: pa.DataType) -> st.SearchStrategy[list[Any]]:
    return st.lists(VALUES[of], max_size=12)


@pytest.mark.parametrize("type", VALUES, ids=str)
@settings(max_examples=examples(60))
@given(data=st.data())
def test_rows_have_one_hash_exactly_if_they_are_equal(type: pa.DataType, data: Any) -> None:
    values, cut = data.draw(_rows(type)), data.draw(st.integers(0, 4))
    whole = pa.array(values, type)
    array = whole.slice(cut)
    found = row_hashes([array, array])
    assert found is not None
    told = [repr(value) for value in array.to_pylist()]
    pairs = list(zip(*(half.tolist() for half in found), strict=True))
    assert len(set(pairs)) == len(set(told)) == len(set(zip(pairs, told, strict=True)))
    again = row_hashes([pa.array(values[cut:], type)] * 2)
    assert again is not None
    assert (again[0] == found[0]).all()


class _Asked:
    """Squares, an error for 3; counts what it was asked."""

    def __init__(self) -> None:
        self.counts: Counter[int | None] = Counter()

    def __call__(self, arrays: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array | None]:
        given = arrays[0].to_pylist()
        self.counts.update(given)
        values = pa.array([None if a in (None, 3) else a * a for a in given], pa.int64())
        errors = pa.array(["three" if a == 3 else None for a in given], pa.string())
        return values, None if errors.null_count == len(errors) else errors


def _outcome(answers: Answers, ask: Callable[..., Any], rows: list[Any]) -> list[Any]:
    values, errors = answers.outcome("f", [pa.array(rows, pa.int64())], pa.int64(), ask)
    texts = [None] * len(rows) if errors is None else errors.to_pylist()
    return list(zip(values.to_pylist(), texts, strict=True))


@settings(max_examples=examples(100))
@given(st.lists(st.lists(st.none() | st.integers(0, 9), max_size=20), max_size=20))
def test_each_argument_is_asked_for_once(batches: list[list[int | None]]) -> None:
    answers, asked = Answers(1 << 20), _Asked()
    for rows in batches:
        expected = [(None if a in (None, 3) else a * a, "three" if a == 3 else None) for a in rows]
        assert _outcome(answers, asked, rows) == expected
    assert set(asked.counts.values()) <= {1}


def test_what_is_kept_has_a_bound_and_forgotten_answers_are_asked_for_again() -> None:
    answers, asked = Answers(1 << 20), _Asked()
    for start in range(0, 200_000, 5000):
        rows = list(range(start, start + 5000))
        assert _outcome(answers, asked, rows)[-1] == ((start + 4999) ** 2, None)
        assert answers.nbytes <= 1 << 20
    assert _outcome(answers, asked, [199_999, 7]) == [(199_999**2, None), (49, None)]
    assert (asked.counts[199_999], asked.counts[7]) == (1, 2)


def test_answers_that_are_used_outlive_others() -> None:
    answers, asked = Answers(1 << 20), _Asked()
    for start in range(0, 200_000, 1000):
        _outcome(answers, asked, [1, 2, 4, *range(start + 5, start + 1000)])
    assert [asked.counts[each] for each in (1, 2, 4)] == [1, 1, 1]


def test_failed_call_keeps_nothing() -> None:
    answers, asked = Answers(1 << 20), _Asked()

    def fails(arrays: Sequence[pa.Array]) -> tuple[pa.Array, None]:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        _outcome(answers, fails, [1, 2])
    assert _outcome(answers, asked, [1, 2, 1]) == [(1, None), (4, None), (1, None)]


def test_failed_calls_keep_to_the_bound() -> None:
    answers = Answers(limit := 200_000)

    def fail(arrays: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array | None]:
        raise OSError("no host")

    for start in range(0, 100_000, 1000):
        with pytest.raises(OSError, match="no host"):
            answers.outcome("f", [pa.array(range(start, start + 1000))], pa.int64(), fail)
        assert answers.nbytes <= limit


def test_threads_that_need_the_same_answer_ask_once() -> None:
    answers, asked = Answers(1 << 20), _Asked()
    begin, found = Barrier(4), []

    def run() -> None:
        begin.wait()
        found.append(_outcome(answers, asked, list(range(2000))))

    threads = [Thread(target=run) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(found) == 4
    assert all(each == found[0] for each in found)
    assert set(asked.counts.values()) == {1}


def test_thread_that_waits_can_be_ended() -> None:
    answers, asked = Answers(1 << 20), _Asked()

    def stop() -> None:
        raise InterruptedError

    def ask(arrays: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array | None]:
        failed: list[BaseException] = []

        def other() -> None:
            try:
                answers.outcome("f", [pa.array([1])], pa.int64(), asked, stop)
            except InterruptedError as error:
                failed.append(error)

        thread = Thread(target=other)
        thread.start()
        thread.join()
        assert len(failed) == 1
        return asked(arrays)

    assert _outcome(answers, ask, [1]) == [(1, None)]


def test_types_that_are_not_known_are_asked_for_each_time() -> None:
    of = pa.dictionary(pa.int32(), pa.string())
    array = pa.array(["a", "a"], pa.string()).cast(of)
    assert row_hashes([array]) is None
    assert np.array_equal(
        Answers(1 << 20)
        .outcome("f", [array], pa.int64(), lambda arrays: (pa.array([1, 2]), None))[0]
        .to_numpy(),
        [1, 2],
    )
