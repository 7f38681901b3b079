"""Peeks: the evaluation of a query as of one time, on a replica.

There are two access paths. An index lookup, by keys or of all rows, evaluates the rest of the plan
with the functions' kernels; it runs on the event loop if few rows are involved. Otherwise the
engine evaluates the whole plan on a thread, over snapshots that came with the command and over the
replica's indexes; of indexes with few rows, for which an engine would take long to begin, kernels
evaluate it. Both wait until the indexes they read are past the time.

If the index has errors at that time, or the rest of the plan fails for a row, the peek fails with
the least error.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.arrange.arrangement import Arrangement, TooManyRows
from foreshore.compute.engine import (
    ALL_ROWS,
    Cancellation,
    ChoosingQueries,
    Engine,
    Evaluator,
    Input,
    check_memory,
)
from foreshore.compute.finish import (
    MAX_RESULT_BYTES,
    empty_rows,
    finish,
    finished_parts,
    split_finishing,
)
from foreshore.compute.input_sizes import known_sizes
from foreshore.compute.inputs import Contents, with_times
from foreshore.compute.linear import Rows, apply, flat
from foreshore.compute.local.small.evaluate import evaluate_small, is_known_small_plan
from foreshore.compute.local.small.rows import NotSmall, SmallRows
from foreshore.compute.output import IndexRows
from foreshore.compute.protocol import Failure, Peek
from foreshore.compute.span import Span
from foreshore.errors import DatabaseError, DataError, InternalError, QueryCanceled, disk_fault
from foreshore.expr.columns import columns_of
from foreshore.expr.held import holds_much
from foreshore.expr.ir import Finishing, Get, Literal, Relation
from foreshore.expr.python_calls import calls_python
from foreshore.expr.split import split_errors
from foreshore.ids import GlobalId
from foreshore.memory_shares import MOST_BULK, of_process_apart
from foreshore.python_functions.patience import patient
from foreshore.query_memory import QUERY_MEMORY
from foreshore.types import Datum, arrow_type
from foreshore.update import Timestamp

logger = logging.getLogger(__name__)

FEW_ROWS = 4096
FEW_INDEXED = 10_000  # updates in all indexes of a plan that is evaluated without an engine
FEW_KEYS = 1024
PYTHON_MEMORY = 2 << 30  # of a query that calls functions in Python, where it has no limit


@dataclass(frozen=True, slots=True)
class LocalIndex:
    """An index of the replica and the errors of its dataflow."""

    rows: IndexRows
    errors: Arrangement
    id: GlobalId | None = None

    def check(self, time: Timestamp) -> None:
        """Raise the collection's least error at the time, if any."""
        if not self.errors.size[0]:
            return
        texts = self.errors.scan(time).column(0)
        if len(texts):
            raise DataError.parse(pc.min(texts).as_py(), self.id)


class IndexPeek(Protocol):
    """A query of an index: see `PeekRequest`."""

    @property
    def as_of(self) -> Timestamp:
        """The time."""
        ...

    @property
    def relation(self) -> Relation:
        """The relation computed from the rows."""
        ...

    @property
    def finishing(self) -> Finishing | None:
        """Their order, limit and columns."""
        ...

    @property
    def keys(self) -> Sequence[tuple[Literal, ...]] | None:
        """The keys of the rows; None is all rows, or those in `span`."""
        ...

    @property
    def span(self) -> Span | None:
        """The part of the index that has the rows."""
        ...


def answer_from_index(peek: IndexPeek, index: LocalIndex, *, small: bool = False) -> pa.RecordBatch:
    """Return the answer of a peek that uses an index; raises DatabaseError.

    With `small`, raises TooManyRows unless the work is small enough for the event loop.
    """
    index.check(peek.as_of)
    if small and calls_python(peek.relation):
        raise TooManyRows
    most = FEW_ROWS if small else None
    if peek.span is not None:
        rows = _rows_in_span(peek, peek.span, index.rows, most)
    elif peek.keys is None:
        rows = _applied(peek.relation, index.rows.scan(peek.as_of, most))
    else:
        if small and len(peek.keys) > FEW_KEYS:
            raise TooManyRows
        found = index.rows.look_up(list(map(_datums, peek.keys)), peek.as_of, most)
        rows = _applied(peek.relation, found)
    return rows if peek.finishing is None else finish(rows, peek.finishing)


def _rows_in_span(
    peek: IndexPeek, span: Span, index: IndexRows, most: int | None
) -> pa.RecordBatch:
    """Return the rows in a span, if they are ordered no more than LIMIT and OFFSET need."""
    finishing = peek.finishing
    wanted = None
    if span.is_ordered and finishing is not None and finishing.limit is not None:
        wanted = finishing.offset + finishing.limit
    few = FEW_ROWS if wanted is None else max(wanted, 1)
    parts: list[pa.RecordBatch] = []
    count = 0
    for found in index.in_range(span, peek.as_of, few, most):
        parts.append(_applied(peek.relation, found))
        count += parts[-1].num_rows
        if wanted is not None and count >= wanted:
            break
    if not parts[0].num_columns:  # Arrow does not count such rows
        return empty_rows(count)
    return pa.concat_batches(parts)


def _applied(relation: Relation, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return a linear relation over the rows of its collection; raises the least error."""
    if isinstance(relation, Get):
        return rows
    plan, errors = _split(relation)
    if errors is not None:
        texts = _apply(errors, rows).column(0)
        if len(texts):
            raise DataError.parse(pc.min(texts).as_py())
    return _apply(plan, rows)


def answer_by_engine(
    peek: Peek,
    engine: Engine,
    snapshots: Mapping[GlobalId, Contents],
    indexes: Mapping[GlobalId, LocalIndex],
    cancellation: Cancellation,
) -> Iterator[pa.RecordBatch]:
    """Yield the parts of the answer of a peek that the engine evaluates on the caller's thread."""
    inputs: dict[GlobalId, Input] = {}
    chosen: Evaluator = engine
    check_memory(sum(index.rows.size[2] for index in indexes.values()), peek.memory)
    for id, index in indexes.items():
        index.check(peek.as_of)
        rows = pa.Table.from_batches([index.rows.scan(peek.as_of)])
        inputs[id] = Input(rows.schema, (), (with_times(rows, peek.as_of),))
    for_spark = peek.bulk is not None and peek.bulk.engine == "spark"
    few = None if snapshots or for_spark else _of_few(peek, indexes, inputs, cancellation)
    if few is not None:
        yield from finished_parts([few], peek.finishing)
        return
    with ExitStack() as reading:
        for id, contents in snapshots.items():
            inputs[id] = reading.enter_context(contents.input())
        if cancellation.cancelled:
            raise QueryCanceled
        memory = peek.memory
        if memory is None and calls_python(peek.relation):  # which only ends with its process
            memory = PYTHON_MEMORY
        if memory is None and holds_much(peek.relation, known_sizes(inputs)):
            memory = max(MOST_BULK, of_process_apart(QUERY_MEMORY.limit))
        if memory is not None and not for_spark:
            chosen = reading.enter_context(engine.limited(memory))
        elif peek.bulk is not None and isinstance(engine, ChoosingQueries):
            chosen = engine.for_query(peek.bulk)
        extent, finishing = ALL_ROWS, peek.finishing
        if finishing is not None:
            extent, finishing = split_finishing(finishing)
        parts = chosen.evaluate_parts(
            peek.relation,
            inputs,
            peek.as_of,
            cancellation,
            MAX_RESULT_BYTES,
            extent=extent,
        )
        with closing(parts):
            yield from finished_parts(parts, finishing, peek.memory)


def _of_few(
    peek: Peek,
    indexes: Mapping[GlobalId, LocalIndex],
    inputs: Mapping[GlobalId, Input],
    cancellation: Cancellation,
) -> pa.Table | None:
    """Return the rows of a plan over indexes, with `__diff`; None if an engine has to find them."""
    few = sum(index.rows.size[0] for index in indexes.values()) <= FEW_INDEXED
    if not few or not is_known_small_plan(peek.relation):
        return None

    def contents(get: Get) -> SmallRows:
        (rows,) = inputs[get.id].tail
        columns = tuple(
            flat(rows.column(i)).cast(arrow_type(column.type))
            for i, column in enumerate(get.columns)
        )
        return SmallRows(columns, np.ones(rows.num_rows, np.int64))

    try:
        with patient(cancellation.check):
            return evaluate_small(peek.relation, contents, cancellation.check)
    except NotSmall:
        return None


def _datums(key: tuple[Literal, ...]) -> tuple[Datum, ...]:
    return tuple(literal.value for literal in key)


@lru_cache(maxsize=1024)
def _split(relation: Relation) -> tuple[Relation, Relation | None]:
    return split_errors(relation)


def _apply(relation: Relation, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the linear `relation` evaluated over the rows of its only collection."""
    given = Rows.of_batch(rows)
    return apply(relation, lambda _: given).batch(columns_of(relation))


def failure_of(error: BaseException) -> Failure:
    """Return the error in its protocol form; log unexpected ones."""
    if isinstance(error, InternalError):
        logger.error("internal error in a replica", exc_info=error)
    if (fault := disk_fault(error)) is not None:
        logger.error("a disk has failed or is full", exc_info=error)
        error = fault
    if isinstance(error, DatabaseError):
        shown = error.sqlstate, error.message, error.detail, error.hint
        return Failure(*shown, error.collection)
    logger.error("unexpected error in a replica", exc_info=error)
    return Failure("XX000", f"{type(error).__name__}: {error}")
