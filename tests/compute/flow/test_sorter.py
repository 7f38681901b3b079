"""Sorting by blocks gives the run that sorting at once gives."""

from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Input
from foreshore.compute.flow import sorter as sorters
from foreshore.compute.flow import spine as spines
from foreshore.compute.flow.batch import Batch, Ints
from foreshore.compute.flow.collection import Collections
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.program import Context
from foreshore.compute.flow.run import Run
from foreshore.compute.flow.spine import Spine
from foreshore.ids import GlobalId
from foreshore.types import BOOL, DATE, INT8, TEXT, ColumnType, numeric, numeric_of_scale
from foreshore.update import update_schema
from tests.effort import examples

NO_ENGINE: Any = None  # is asked for files only
KEYS = (np.array([0]), np.array([2, 0]), np.arange(3), np.array([], np.int64))


@settings(max_examples=examples(60))
@given(
    st.integers(1, 3_000),
    st.sampled_from([1, 2, 40, 1 << 40]),
    st.sampled_from([1, 2, 9]),
    st.sampled_from([1, 2]),
    st.sampled_from(KEYS),
    st.integers(0, 1 << 32),
)
def test_run_does_not_depend_on_how_it_is_sorted(
    count: int, values: int, times: int, signs: int, key: Ints, seed: int
) -> None:
    """Of few values many rows have one key; with two signs some rows cancel out."""
    random = np.random.default_rng(seed)
    words = np.stack([random.integers(0, n, count) for n in (values, 3, values)], axis=1)
    batch = Batch(
        words, random.integers(5, 5 + times, count), 1 - 2 * random.integers(0, signs, count)
    )
    spine = Spine([key], np.zeros(3, np.int64), Interner(), seed, since=7 if seed % 2 else 0)
    found = []
    for many, block in ((1 << 60, 1), (0, 128)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(spines, "SORTED_BY_BLOCKS", many)
            patch.setattr(spines, "BLOCK", block)
            patch.setattr(sorters, "ROWS", 100)
            found.append(spine.sorted(batch))
    one, other = found
    assert np.array_equal(one.hashes, other.hashes)
    assert np.array_equal(one.words, other.words)
    assert np.array_equal(one.updates().times, other.updates().times)
    assert np.array_equal(one.updates().diffs, other.updates().diffs)


@pytest.mark.parametrize("key", [(1,), (3,), (0, 1, 2, 3)])
def test_collection_is_read_by_blocks(
    key: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The key may be any words, also those of nullable columns and their mask."""
    columns = (ColumnType(INT8, False), ColumnType(TEXT, True), ColumnType(INT8, True))
    schema = pa.schema({"a": pa.int64(), "b": pa.string(), "c": pa.int64()})
    table = pa.table(
        [
            pa.array(range(500), pa.int64()),
            pa.array([None if i % 3 else str(i) for i in range(500)], pa.string()),
            pa.array([None if i % 5 else i for i in range(500)], pa.int64()),
            pa.array([1 if i < 400 else 9 for i in range(500)], pa.int64()),
            pa.array([-1 if i == 7 else 2 if i == 8 else 1 for i in range(500)], pa.int64()),
        ],
        schema=update_schema(schema),
    )
    interner = Interner()
    runs: list[Run] = []
    for many in (0, 1 << 60):
        monkeypatch.setattr(spines, "SORTED_BY_BLOCKS", many)
        reader = Collections(interner, 1).open(GlobalId("u1"), columns, (0, 1, 2), 5)
        reader.collection.add_key(np.array(key))
        reader.hydrate(Input(schema, (), (table,)), 5, Context(interner, 1), NO_ENGINE)
        found = reader.rows_at(5)
        assert Counter(found.diffs.tolist()) == {1: 398, 2: 1, -1: 1}
        spine = reader.collection.spine  # in which few rows are in the tail
        runs.append(*(spine.runs or [spine.sorted(found)]))
    assert np.array_equal(runs[0].words, runs[1].words)


@pytest.mark.parametrize("single", [True, False])
def test_collection_is_read_from_files(single: bool, tmp_path: Path) -> None:
    """Rows that are there once are read by the bulk engine, in any order; others by Arrow."""
    columns = (
        ColumnType(INT8, False), ColumnType(TEXT, True), ColumnType(numeric_of_scale(2), True),
        ColumnType(numeric(9, 2), False), ColumnType(DATE, True), ColumnType(BOOL, False),
    )  # fmt: skip
    count = 2 * spines.SORTED_BY_BLOCKS
    numbers = np.arange(count)
    cents = [None if i % 7 == 0 else Decimal(i - 1000).scaleb(-2) for i in range(count)]
    values = [
        pa.array(numbers % 5000, pa.int64()),
        pa.array([None if i % 3 else f"{i % 100}" for i in range(count)]),
        pa.array(cents, pa.decimal128(38, 2)),
        pa.array([cent or Decimal(0) for cent in cents], pa.decimal128(38, 2)),
        pa.array([None if i % 11 == 0 else i % 20_000 for i in range(count)], pa.date32()),
        pa.array((numbers % 2).astype(np.bool_)),
        pa.array(np.where(numbers % 1000 == 1, 9, 1), pa.int64()),
        pa.array(np.ones(count, np.int64) if single else np.where(numbers % 4, 1, 2)),
    ]
    schema = pa.schema([(f"c{i}", array.type) for i, array in enumerate(values[:-2])])
    whole = pa.table(values, schema=update_schema(schema))
    path = tmp_path / "rows.parquet"
    pq.write_table(whole, path)
    interner = Interner()
    engine = DuckDbEngine(directories=[str(tmp_path)])
    asked = Mock(wraps=engine)
    runs: list[Run] = []
    for files, tail in (((str(path),), ()), ((), (whole,)), ((str(path),), (whole.slice(0, 0),))):
        reader = Collections(interner, 1).open(GlobalId("u1"), columns, (0, 4, 2, 3, 1, 5), 5)
        reader.collection.add_key(np.array([1]))
        reader.hydrate(Input(schema, files, tail), 5, Context(interner, 1), asked)
        runs += reader.collection.spine.runs
    engine.close()
    assert asked.evaluate_parts.call_count == (4 if single else 0)
    assert len(runs) == 3
    assert runs[0].updates().diffs.sum() == values[-1].to_numpy()[numbers % 1000 != 1].sum()
    for run in runs[1:]:
        assert np.array_equal(run.hashes, runs[0].hashes)
        assert np.array_equal(run.words, runs[0].words)
        assert np.array_equal(run.updates().diffs, runs[0].updates().diffs)
