"""The pieces of a run that tasks write are, one after the other, the run that one process sorts."""

from collections import defaultdict
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from foreshore.compute.bulk.spark_files import TaskFile
from foreshore.compute.engine import result_schema
from foreshore.compute.flow.bulk_hydration import RunArrays
from foreshore.compute.flow.convert import integers, words_of
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.layout import layout_of
from foreshore.compute.flow.sorter import Sorter
from foreshore.compute.hydrate.run_tasks import (
    RunForm,
    is_without_strings,
    pieces_of,
    spread,
    write_pieces,
)
from foreshore.compute.hydrate.runs import mapped
from foreshore.datum import to_array
from foreshore.types import DATE, FLOAT8, INT4, INT8, TEXT, UUID, ColumnType, Datum, numeric
from tests.effort import examples

COLUMNS = (
    ColumnType(INT8, False),
    ColumnType(INT4),
    ColumnType(DATE),
    ColumnType(numeric(10, 2)),
    ColumnType(numeric(38, 4)),
    ColumnType(FLOAT8),
    ColumnType(UUID),
)
VALUES: tuple[tuple[Datum, ...], ...] = (
    (-(2**63), 0, 5, 2**63 - 1),
    (None, 1, -7),
    (None, 0, 9000),
    (None, "0.10", "-99999999.99"),
    (None, "0.0001", "-1234567890123456789012345678.9012"),
    (None, 0.0, -0.0, 1.5, float("nan")),
    (None, bytes(16), b"\xff" * 16),
)
TIME = 100


def random_rows(random: Random, count: int, *, single: bool) -> pa.Table:
    """Return rows with diffs, which often add up to nothing unless all are `single`."""
    columns = [
        to_array([random.choice(values) for _ in range(count)], column.type)
        for values, column in zip(VALUES, COLUMNS, strict=True)
    ]
    diffs = [1 if single else random.choice((1, -1, 2)) for _ in range(count)]
    return pa.Table.from_arrays([*columns, pa.array(diffs)], schema=result_schema(COLUMNS))


def by_tasks(form: RunForm, table: pa.Table, directory: Path, random: Random) -> RunArrays:
    """Return the run as Spark makes it: two map tasks, a shuffle, a task for some pieces each."""
    directory.mkdir()
    half = table.num_rows // 2
    shuffled: defaultdict[int, list[pa.RecordBatch]] = defaultdict(list)
    tasks = random.choice((1, 3))
    for task in (table[:half], table[half:]):
        for batch in spread(form, iter(task.to_batches(max_chunksize=97))):
            for part in range(1 << form.bits):
                own = batch.filter(pa.array(batch.column(0).to_numpy() == part))
                if own.num_rows:
                    shuffled[part % tasks].append(own)
    names: list[TaskFile] = []
    for batches in shuffled.values():
        random.shuffle(batches)
        for found in write_pieces(form, str(directory), iter(batches)):
            (row,) = found.to_pylist()
            names.append(TaskFile(row["part"], Path(row["path"]), row["rows"], row["bytes"]))
    return mapped(sorted(names, key=lambda file: file.part), form, directory)


def sorted_here(form: RunForm, table: pa.Table) -> tuple[np.ndarray, ...]:
    """Return hashes, words, times and diffs as one process sorts them."""
    layout = layout_of(COLUMNS)
    arrays = [column.combine_chunks() for column in table.columns]
    words = words_of(arrays[:-1], table.num_rows, layout, Interner())
    key = np.array(form.key)
    sorter = Sorter(np.uint64(form.seed), table.num_rows)
    sorter.count(words, key)
    sorter.begin(layout.words)
    sorter.add(words, np.array([TIME]), np.array(integers(arrays[-1])), key)
    return sorter.sorted(TIME)


@pytest.mark.parametrize("seed", range(examples(40)))
def test_pieces_are_the_run(seed: int, tmp_path: Path) -> None:
    random = Random(seed)
    table = random_rows(random, random.choice((0, 1, 300, 2000)), single=random.random() < 0.5)
    words = layout_of(COLUMNS).words
    key = tuple(random.sample(range(words), random.randint(1, words)))
    form = RunForm(COLUMNS, key, random.getrandbits(63), TIME, random.randint(1, 4))
    found = by_tasks(form, table, tmp_path / "pieces", random)
    hashes, rows, _, diffs = sorted_here(form, table)
    assert found.hashes.tolist() == hashes.tolist()
    assert found.words.tolist() == rows.tolist()
    assert np.broadcast_to(found.diffs, len(hashes)).tolist() == (
        np.broadcast_to(diffs, len(hashes)).tolist()
    )
    assert set(found.times.tolist()) == {TIME} or not len(hashes)


def test_strings_have_numbers_in_their_process_only() -> None:
    assert is_without_strings(COLUMNS)
    assert not is_without_strings((*COLUMNS, ColumnType(TEXT)))


def test_pieces_have_work_for_all_cores_and_few_rows_each() -> None:
    assert pieces_of(10, 2) == 2  # numbers four pieces
    assert pieces_of(100 << 20, 2) == 7
    assert pieces_of(1 << 60, 2) == 16
