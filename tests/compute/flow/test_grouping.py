"""Equal updates are added up, however many there are."""

from collections import Counter

import numpy as np
import pytest

from foreshore.compute.flow.batch import Batch
from foreshore.compute.flow.operators import grouping
from foreshore.compute.flow.operators.grouping import consolidated

Update = tuple[int, int, int]


def contents(batch: Batch) -> Counter[Update]:
    found: Counter[Update] = Counter()
    for (a, b), time, diff in zip(
        batch.words.tolist(), batch.times.tolist(), batch.diffs.tolist(), strict=True
    ):
        found[a, b, time] += diff
    return found


@pytest.mark.parametrize("values", [4, 60, 10_000, 1 << 60])
@pytest.mark.parametrize("many", [1, 1 << 30])
def test_consolidated_adds_up_equal_updates(
    monkeypatch: pytest.MonkeyPatch, values: int, many: int
) -> None:
    monkeypatch.setattr(grouping, "MANY", many)
    random = np.random.default_rng(values)
    words = random.integers(0, values, (500, 2))
    words[-3:] = words[:3]  # some are equal in any case
    times, diffs = random.integers(0, 3, 500), random.integers(-1, 2, 500)
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
