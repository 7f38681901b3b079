"""A collection's run, sorted and written by Spark's tasks, and mapped by the replica."""

import mmap
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from foreshore.compute.bulk.spark import SparkEngine
from foreshore.compute.bulk.spark_files import NAMES, TaskFile, named_files, scratch_of
from foreshore.compute.bulk.spark_sql import SparkSqlSession
from foreshore.compute.checkpoint.files import map_arrays
from foreshore.compute.engine import Cancellation, Input
from foreshore.compute.flow.bulk_hydration import RunArrays
from foreshore.compute.hydrate.run_tasks import PART, SPREAD, RunForm, spread, write_pieces
from foreshore.expr.ir import Relation
from foreshore.ids import GlobalId


def write_run(
    engine: SparkEngine,
    relation: Relation,
    inputs: Mapping[GlobalId, Input],
    form: RunForm,
    cancellation: Cancellation,
) -> RunArrays:
    """Return the rows of a plan as a run in memory that is mapped from a file without a name.

    The executors must see the engine's scratch directory. What tasks wrote is removed in any case.
    """
    scratch = scratch_of(engine.service.session())
    directory = scratch / f"run-{uuid4().hex}"
    directory.mkdir(parents=True)
    try:
        with engine.evaluations(cancellation) as evaluations:
            session = evaluations.session
            assert isinstance(session, SparkSqlSession)
            rows = session.query(session.unconsolidated(relation, inputs, form.time))
            files = named_files(_written(rows, form, str(directory)))
        return mapped(files, form, scratch)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _written(rows: Any, form: RunForm, directory: str) -> Any:
    def spread_rows(batches: Any) -> Any:
        return spread(form, batches)

    def write(batches: Any) -> Any:
        return write_pieces(form, directory, batches)

    pieces = 1 << form.bits
    words = rows.mapInArrow(spread_rows, SPREAD).repartition(pieces, PART)
    return words.mapInArrow(write, NAMES)


def mapped(files: list[TaskFile], form: RunForm, scratch: Path) -> RunArrays:
    """Return pieces, in their order, as one run; its memory is that of a file without a name.

    So the system can drop what is not read when memory is needed.
    """
    from foreshore.compute.flow.layout import layout_of

    width = layout_of(form.columns).words
    count = sum(file.rows for file in files)
    pieces = [map_arrays(file.path, changeable=False) for file in files]
    is_single = all(len(piece["diffs"]) == 1 and piece["diffs"][0] == 1 for piece in pieces)
    memory = _unnamed(8 * count * (1 + width + (0 if is_single else 1)), scratch)
    hashes = np.frombuffer(memory, np.uint64, count)
    words = np.frombuffer(memory, np.int64, count * width, 8 * count).reshape(count, width)
    diffs: Any = np.ones(1, np.int64)
    if not is_single:
        diffs = np.frombuffer(memory, np.int64, count, 8 * count * (1 + width))
    start = 0
    for file, piece in zip(files, pieces, strict=True):
        place = slice(start, start := start + file.rows)
        hashes[place], words[place] = piece["hashes"], piece["words"]
        if not is_single:
            diffs[place] = piece["diffs"]
    return RunArrays(hashes, words, np.array([form.time], np.int64), diffs)


def _unnamed(size: int, scratch: Path) -> Any:
    """Return writable memory of a file that goes with it."""
    if not size:
        return bytearray()
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=scratch) as file:
        os.posix_fallocate(file.fileno(), 0, size)
        return mmap.mmap(file.fileno(), size)
