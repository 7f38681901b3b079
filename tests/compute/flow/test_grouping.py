"""Equal updates are added up, however many there are."""

from collections import Counter

import numpy as np
import pytest

from foreshore.compute.flow.batch import Batch
from foreshore.compute.flow.kernels import groups
from foreshore.compute.flow.operators import grouping
from foreshore.compute.flow.operators.grouping import consolidated, grouped

Update = tuple[int, int, int]


def contents(batch: Batch) -> Counter[Update]:
    found: Counter[Update] = Counter()
    for (a, b), time, diff in zip(
        batch.words.tolist(), batch.times.tolist(), batch.diffs.tolist(), strict=True
    ):
        found[a, b, time] += diff
    return found


@pytest.mark.parametrize("values", [4, 60, 10_000, 1 << 60])
@pytest.mark.parametrize(("many", "most"), [(1, 1), (1, 3), (1 << 30, 3)])
def test_consolidated_adds_up_equal_updates(
    monkeypatch: pytest.MonkeyPatch, values: int, many: int, most: int
) -> None:
    monkeypatch.setattr(grouping, "MANY", many)
    random = np.random.default_rng(values)
    words = random.integers(0, values, (500, 2))
    words[-3:] = words[:3]  # some are equal in any case
    times, diffs = random.integers(0, most, 500), random.integers(-1, 2, 500)
    times[-3:], diffs[-3:], diffs[:3] = times[:3], (-1, 1, 2), 1
    given = Batch(words, times, diffs)
    found = consolidated(given, 7)
    assert len(contents(found)) == len(found)
    assert {k: n for k, n in contents(found).items()} == {
        k: n for k, n in contents(given).items() if n
    }


def test_updates_of_which_none_are_equal_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "MANY", 1)
    words = np.arange(1000).reshape(500, 2)
    batch = Batch(words, np.zeros(500, np.int64), np.ones(500, np.int64))
    assert consolidated(batch, 7) is batch


def test_groups_with_one_hash_are_told_apart() -> None:
    words = np.array([[1, 5], [2, 5], [1, 6]])
    hashes = np.array([7, 7, 7], np.uint64)
    places = np.arange(3).astype(np.int32)
    assert not groups.are_groups(hashes, places, words, 1)
    assert groups.are_groups(hashes[:2], places[:2] * 2, words, 1)
    times = np.zeros(3, np.int64)
    assert groups.group_rows(hashes, words, times, 1).tolist() in ([0, 2, 1], [1, 0, 2])


@pytest.mark.parametrize("times", [1, 3])
def test_many_rows_are_grouped_as_few_are(monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    random = np.random.default_rng(times)
    words = random.integers(0, 40, (500, 2))
    batch = Batch(words, random.integers(0, times, 500), np.ones(500, np.int64))

    def found(many: int) -> list[list[list[int]]]:
        monkeypatch.setattr(grouping, "MANY", many)
        order, _ = grouped(batch, 1, 7)
        assert sorted(order.tolist()) == list(range(500))
        at = np.column_stack([words[order, 0], batch.times[order]])
        parts = np.split(at, np.flatnonzero(np.diff(at[:, 0])) + 1)
        return sorted(part.tolist() for part in parts)

    assert found(1) == found(1 << 30)
    assert len(found(1)) == 40
