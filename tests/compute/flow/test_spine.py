"""Spines keep little of what changes often, and find the same before and after maintenance."""

from collections import Counter
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

from foreshore.compute.flow import spine as spines
from foreshore.compute.flow.batch import Batch
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.run import Run
from foreshore.compute.flow.spine import Spine

NONE = np.zeros(0, np.int64)
Found = Counter[tuple[int, ...]]
KEYS = (np.array([0]), np.array([2, 1]))


def batch(*updates: tuple[tuple[int, ...], int, int]) -> Batch:
    words, times, diffs = zip(*updates, strict=True)
    return Batch(np.array(words, np.int64), np.array(times, np.int64), np.array(diffs, np.int64))


def found(spine: Spine, key: int, wanted: Sequence[tuple[int, ...]], before: int) -> Found:
    """Return the rows that look-ups by a key find, with the sum of their diffs."""
    rows = batch(*(((*key_words, 0, 0)[:3], 0, 1) for key_words in wanted))
    pairs = spine.joined(key, rows, NONE, np.arange(3), before)
    total: Found = Counter()
    for row, diff in zip(pairs.words.tolist(), pairs.diffs.tolist(), strict=True):
        total[tuple(row)] += diff
    return Counter({row: count for row, count in total.items() if count})


def test_row_that_changes_often_stays_small() -> None:
    spine = Spine(KEYS, np.zeros(3, np.int64), Interner(), 1)
    for time in range(5_000):
        spine.compact(time - 1)
        spine.insert(batch(((1, time, 7), time, 1), ((1, time - 1, 7), time, -1)))
        spine.maintain()
    assert len(spine) < 2 * spines.CROWDED
    assert found(spine, 0, [(1,)], 5_000)[1, 4_999, 7] == 1


@pytest.mark.parametrize("tail_rows", [4, 64, 1 << 14])
def test_look_ups_do_not_depend_on_maintenance(
    tail_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spines, "TAIL_ROWS", tail_rows)
    monkeypatch.setattr(spines, "MERGE_BUDGET", 7)
    monkeypatch.setattr(spines, "CROWDED", 5)
    monkeypatch.setattr(spines, "UNSORTED", 20)
    random = Random(tail_rows)
    kept, plain = (Spine(KEYS, np.zeros(3, np.int64), Interner(), 1) for _ in range(2))
    rows: list[tuple[int, int, int]] = []
    for time in range(1, 200):
        updates = []
        for _ in range(random.choice((1, 2, 9))):
            if rows and random.random() < 0.45:
                updates.append((rows.pop(random.randrange(len(rows))), time, -1))
            else:
                row = (random.randrange(6), random.randrange(3), random.randrange(4))
                rows.append(row)
                updates.append((row, time, 1))
        for spine in (kept, plain):
            spine.insert(batch(*updates))
        kept.compact(time - random.randrange(3))
        for _ in range(random.randrange(4)):
            kept.maintain()
        if random.random() < 0.7:
            continue  # nobody reads
        mark = kept.mark()
        kept.insert(batch(*[((0, 0, 0), time, 1)] * random.choice((1, 9))))
        if random.random() < 0.5:
            assert len(kept.runs) <= len(kept)  # which sorts
        kept.restore(mark)
        wanted = [(key,) for key in range(6)]
        assert found(kept, 0, wanted, time + 1) == found(plain, 0, wanted, time + 1)
        both = [(c, b) for c in range(4) for b in range(3)]
        assert found(kept, 1, both, time + 1) == Counter(rows)


def test_index_is_made_by_first_look_up_and_kept_by_merges(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spines, "TAIL_ROWS", 4)
    monkeypatch.setattr(spines, "UNSORTED", 40)
    spine = Spine(KEYS, np.zeros(3, np.int64), Interner(), 1)
    spine.insert(batch(*(((i, i % 3, 0), 1, 1) for i in range(40))))
    spine.maintain()
    assert spine.is_indexed(0)
    assert not spine.is_indexed(1)
    size = spine.nbytes
    assert found(spine, 1, [(0, 2)], 2) == Counter({(i, 2, 0): 1 for i in range(2, 40, 3)})
    assert spine.is_indexed(1)
    assert spine.nbytes > size
    spine.insert(batch(*(((i, i % 3, 0), 2, 1) for i in range(40, 80))))
    while spine.maintain():
        continue
    assert len(spine.runs) == 1
    assert spine.is_indexed(1)
    assert found(spine, 1, [(0, 2)], 3) == Counter({(i, 2, 0): 1 for i in range(2, 80, 3)})


def test_merge_makes_no_index_that_was_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spines, "TAIL_ROWS", 4)
    monkeypatch.setattr(spines, "UNSORTED", 40)
    spine = Spine(KEYS, np.zeros(3, np.int64), Interner(), 1)
    for time in (1, 2):
        spine.insert(batch(*(((i, i % 3, time), time, 1) for i in range(40))))
        spine.maintain()
    while spine.maintain():
        continue
    assert len(spine.runs) == 1
    assert not spine.is_indexed(1)
    assert len(found(spine, 1, [(1, 2)], 3)) == 13


def test_updates_of_run_are_arrays_that_kernels_are_compiled_for() -> None:
    words, one = np.arange(100).reshape(100, 1), np.ones(1, np.int64)
    many = np.ones(100, np.int64)
    for times, diffs in ((one, one), (one, many), (many, one), (many, many)):
        updates = Run(np.arange(100, dtype=np.uint64), words, times, diffs).updates()
        for array in (updates.times, updates.diffs):
            assert (array == 1).all()
            assert array.shape == (100,)
            assert array.flags.c_contiguous
            assert array.flags.writeable


def test_look_ups_leave_out_what_does_not_fulfil_conditions() -> None:
    spine = Spine(KEYS, np.zeros(3, np.int64), Interner(), 1)
    rows = [((i % 7, i % 5, i), 1, 1) for i in range(3 * spines.TAIL_ROWS // 4)]
    spine.insert(batch(*rows))
    spine.insert(batch(*(((i % 7, i % 5, -i), 1, 1) for i in range(1, 50))))
    wanted = batch(*(((key, 0, 0), 0, 1) for key in range(7)))
    # The last word within bounds; bit 1 of the second word says that it is NULL.
    where = np.array([[2, -9, 99, 1, 1]])
    pairs = spine.joined(0, wanted, NONE, np.arange(3), 2, where=where)
    expected = [(i % 7, i % 5, i) for i in range(100) if not (i % 5) & 2]
    expected += [(i % 7, i % 5, -i) for i in range(1, 10) if not (i % 5) & 2]
    assert sorted(map(tuple, pairs.words.tolist())) == sorted(expected)
