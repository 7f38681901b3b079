"""The local side of a live copy against a model: rows by their counts, in a file and in memory."""

import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from foreshore.embedded.copy_store import CopyStore
from foreshore.errors import (
    DatabaseError,
    DuplicateTable,
    InvalidParameterValue,
    LockFileExists,
    ObjectNotInPrerequisiteState,
)

TYPES = [pa.int64(), pa.string(), pa.float64(), pa.list_(pa.int32()), pa.timestamp("us", "UTC")]
NAMES = ["k", "a b", 'q"', "net", "waiting"]


def changes(rows: list[tuple[int, int, tuple[Any, ...]]]) -> pa.Table:
    """Return updates, given by time, copies and row, as a stream has them."""
    columns: dict[str, pa.Array] = {
        "mz_timestamp": pa.array([time for time, _, _ in rows], pa.int64()),
        "mz_diff": pa.array([diff for _, diff, _ in rows], pa.int64()),
    }
    for place, (name, type) in enumerate(zip(NAMES, TYPES, strict=True)):
        columns[name] = pa.array([row[place] for _, _, row in rows], type)
    return pa.table(columns)


def made(chance: random.Random) -> tuple[Any, ...]:
    """Return a row of which there are few."""
    return (
        chance.choice([1, 2, None]),
        chance.choice(["x", "", None]),
        chance.choice([0.5, math.nan, None]),
        chance.choice([[], [1, None], None]),
        chance.choice([0, None]),
    )


def contents(store: CopyStore) -> Counter[str]:
    _, found = store.read("SELECT * FROM copy", ())
    found = found.set_column(4, "t", found.column(4).cast(pa.int64()))
    return Counter(str(tuple(row.values())) for row in found.to_pylist())


@pytest.mark.parametrize("in_file", [True, False])
def test_copy_is_the_sum_of_its_changes(tmp_path: Path, in_file: bool) -> None:
    chance = random.Random(1)
    path = tmp_path / "copy.duckdb" if in_file else None
    store = CopyStore(path, "copy", "q")
    model: Counter[str] = Counter()
    store.begin()
    store.stage(changes([]))
    store.apply(9, contents=True)
    for time in range(10, 60, 2):
        rows = []
        for _ in range(chance.randrange(12)):
            row = made(chance)
            have = model[str(row)]
            diff = chance.choice([each for each in (-2, -1, 1, 3) if have + each >= 0])
            model[str(row)] += diff
            rows.append((time + chance.randrange(2), diff, row))
        chance.shuffle(rows)
        store.stage(changes(rows))
        later = (time + 2, 5, made(chance))
        store.stage(changes([later]))
        store.apply(time + 1, contents=False)
        assert contents(store) == +model
        assert store.time == time + 1
        if in_file and chance.random() < 0.3:
            store.close()
            store = CopyStore(path, "copy", "q")
            assert (store.time, contents(store)) == (time + 1, +model)
        store.begin()
    wanted = [(100, 2, made(chance)), (100, 1, made(chance))]
    store.stage(changes(wanted))
    changed = store.apply(100, contents=True)
    expected: Counter[str] = Counter()
    for _, diff, row in wanted:
        expected[str(row)] += diff
    assert contents(store) == expected
    kept = sum((+model & expected).values())
    assert changed == sum((+model).values()) + sum(expected.values()) - 2 * kept
    store.close()


def test_rows_that_are_not_there_are_an_error_and_change_nothing(tmp_path: Path) -> None:
    row: tuple[Any, ...] = (1, "x", 0.5, [], 0)
    store = CopyStore(tmp_path / "c", "copy", "q")
    store.stage(changes([(5, 1, row)]))
    store.apply(5, contents=True)
    store.stage(changes([(6, -2, row), (6, 1, (2, "y", None, None, None))]))
    with pytest.raises(ObjectNotInPrerequisiteState):
        store.apply(6, contents=False)
    assert store.time == 5
    assert contents(store) == Counter([str(row)])
    with pytest.raises(DatabaseError):
        store.read("DELETE FROM copy", ())
    store.close()


def test_contents_with_other_columns_replace_the_table() -> None:
    store = CopyStore(None, "copy", "q")
    store.stage(changes([(5, 1, (1, "x", 0.5, [], 0))]))
    store.apply(5, contents=True)
    store.begin()
    store.stage(pa.table({"mz_timestamp": [7], "mz_diff": [2], "n": ["x"]}))
    store.apply(7, contents=True)
    assert store.read("FROM copy", ())[1].to_pylist() == [{"n": "x"}] * 2
    store.close()


def test_file_has_one_owner_and_one_query(tmp_path: Path) -> None:
    path = tmp_path / "copy.duckdb"
    store = CopyStore(path, "copy", "q")
    with pytest.raises(LockFileExists):
        CopyStore(path, "copy", "q")
    store.stage(changes([]))
    store.apply(5, contents=True)
    store.close()
    with pytest.raises(InvalidParameterValue, match="another query"):
        CopyStore(path, "copy", "other")
    with pytest.raises(InvalidParameterValue, match="another query"):
        CopyStore(path, "other", "q")
    CopyStore(path, "copy", "q").close()
    with pytest.raises(DuplicateTable):
        CopyStore(tmp_path / "own", "foreshore_copy", "q")
