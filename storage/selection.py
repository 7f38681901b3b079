"""Selections: the rows and columns of a shard that a reader wants.

Selections are applied while reading: columns that are not wanted are not read, nor are row groups
of a batch file whose statistics show that they hold no wanted row. Only comparisons of a column
with a constant skip row groups; all other predicates are evaluated for each row.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from foreshore.expr.evaluate import evaluate
from foreshore.expr.ir import Call, Column, Filter, Get, Literal, Project, Relation, Scalar
from foreshore.expr.split import columns_used
from foreshore.update import DIFF, TIME, Timestamp

# Whether a row group with values from `low` to `high` may hold a value for which the comparison is
# TRUE.
_MAY_HOLD: dict[str, Callable[[Any, Any, Any], bool]] = {
    "eq": lambda low, high, value: bool(low <= value <= high),
    "lt": lambda low, high, value: bool(low < value),
    "le": lambda low, high, value: bool(low <= value),
    "gt": lambda low, high, value: bool(high > value),
    "ge": lambda low, high, value: bool(high >= value),
}
_MIRRORED = {"eq": "eq", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}
# Types whose datums equal the column's statistics and have SQL's order.
_COMPARABLE = frozenset(("int2", "int4", "int8", "oid", "mz_timestamp", "money", "text", "varchar"))

ROW_GROUP_BYTES = 8 << 20  # bytes in Arrow; a full group has less than twice as many
ROWS_LOOKED_AT = 256
PIECE_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class Selection:
    """The rows for which all `predicates` are TRUE, with only `columns`, in that order.

    Predicates refer to all columns of the shard and cannot fail. None stands for all columns.
    """

    columns: tuple[int, ...] | None = None
    predicates: tuple[Scalar, ...] = ()

    @property
    def is_all(self) -> bool:
        """Whether all rows and columns are selected."""
        return self.columns is None and not self.predicates

    def schema(self, updates: pa.Schema) -> pa.Schema:
        """Return the schema of the selected columns of updates."""
        if self.columns is None:
            return updates
        return pa.schema([*(updates.field(i) for i in self.columns), *list(updates)[-2:]])

    def of(self, updates: pa.RecordBatch) -> pa.RecordBatch:
        """Return the selected rows and columns of updates that have all columns."""
        for predicate in self.predicates:
            if not updates.num_rows:
                break
            updates = updates.filter(evaluate(predicate, updates.columns[:-2], updates.num_rows))
        if self.columns is None:
            return updates
        schema = self.schema(updates.schema)
        arrays = [updates.column(i) for i in self.columns]
        return pa.RecordBatch.from_arrays([*arrays, *updates.columns[-2:]], schema=schema)

    def read(self, width: int) -> list[int] | None:
        """Return which of `width` row columns have to be read, None for all."""
        if self.columns is None:
            return None
        used = set(self.columns).union(*map(columns_used, self.predicates))
        return sorted(used) if len(used) < width else None


ALL = Selection()


def pushed_down(relation: Relation) -> tuple[Selection, Relation]:
    """Return what of `relation` over a shard is selected while reading, and what remains."""
    match relation:
        case Project(input=Filter(input=Get() as get, predicates=predicates), outputs=outputs):
            pass
        case Project(input=Get() as get, outputs=outputs):
            predicates = ()
        case Filter(input=Get() as get, predicates=predicates):
            return Selection(None, predicates), get
        case _:
            return Selection(), relation
    columns = tuple(sorted(set(outputs)))
    narrow = Get(get.id, tuple(get.columns[i] for i in columns))
    return Selection(columns, predicates), Project(narrow, tuple(map(columns.index, outputs)))


@dataclass(slots=True)
class Reading:
    """Counters of reading a selection. `parts` are row groups of batch files."""

    rows: int = 0
    bytes: int = 0  # of the selected rows
    parts: int = 0
    skipped: int = 0


def read_parts(
    file: pq.ParquetFile,
    schema: pa.Schema,
    selection: Selection,
    after: Timestamp | None,
    reading: Reading,
    piece_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """Yield the selected updates of a batch file at times beyond `after` (None: at all times).

    The file is read in pieces of about `piece_bytes`; a piece does not span two row groups.
    """
    names = file.schema_arrow.names
    tests = _tests(selection.predicates, names, after)
    wanted = [group for group in range(file.num_row_groups) if _may_hold(file, group, tests)]
    reading.parts += file.num_row_groups
    reading.skipped += file.num_row_groups - len(wanted)
    if not wanted:
        return
    width = len(schema) - 2
    columns = selection.read(width)
    places = list(range(width)) if columns is None else columns
    chosen = [names[i] for i in [*places, width, width + 1]]
    for piece in _pieces(file, wanted, chosen, piece_bytes):
        if columns is not None:  # columns not read are filled with NULLs
            # Look columns up by name: when asked for "x.days", Parquet also returns the column x
            # that has a field days.
            found = {i: piece.column(names[i]) for i in [*places, width, width + 1]}
            arrays = [
                found[i] if i in found else pa.nulls(piece.num_rows, field.type)
                for i, field in enumerate(schema)
            ]
            whole = pa.RecordBatch.from_arrays(arrays, schema=_nullable(schema))
        else:
            whole = pa.RecordBatch.from_arrays(piece.columns, schema=schema)
        selected = selection.of(later(whole, after))
        if columns is not None:
            exact = selection.schema(schema)
            selected = pa.RecordBatch.from_arrays(selected.columns, schema=exact)
        yield selected


def _pieces(
    file: pq.ParquetFile, groups: Sequence[int], columns: Sequence[str], piece_bytes: int
) -> Iterator[pa.RecordBatch]:
    """Yield columns of row groups in pieces of about `piece_bytes`.

    The width of a row is estimated from the file's sizes and from the pieces read before: values
    that the file stores once may repeat in memory. No group exceeds the bound.
    """

    def read(group: int, rows: int) -> Iterator[pa.RecordBatch]:
        return iter(file.iter_batches(rows, [group], columns, use_threads=False))

    first = next(read(groups[0], ROWS_LOOKED_AT), None)
    before = first.nbytes / max(1, first.num_rows) if first else 0.0
    for group in groups:
        part = file.metadata.row_group(group)
        rows = max(1, part.num_rows)
        width = max(1.0, part.total_byte_size / rows, min(before, 2 * ROW_GROUP_BYTES / rows))
        size = 0
        for piece in read(group, max(1, min(int(piece_bytes / width), PIECE_ROWS))):
            size += piece.nbytes
            yield piece
        before = size / rows


def later(updates: pa.RecordBatch, after: Timestamp | None) -> pa.RecordBatch:
    """Return the updates at times beyond `after`, all of them if it is None."""
    if after is None:
        return updates
    return updates.filter(pc.greater(updates.column(updates.num_columns - 2), after))


def moved_to(updates: pa.Table, time: Timestamp) -> pa.Table:
    """Return updates with the times before `time` moved to it."""
    place = updates.num_columns - 2
    times = pc.max_element_wise(updates.column(place), pa.scalar(time, pa.int64()))
    return updates.set_column(place, updates.schema.field(place), times)


def may_hold_rows(
    metadata: pq.FileMetaData,
    names: Sequence[str],
    predicates: Sequence[Scalar],
    until: Timestamp,
) -> bool:
    """Whether a batch's file may have rows for which all predicates are TRUE at a time.

    `names` are those of the row's columns in the file.
    """
    return any(True for _ in groups_with_rows(metadata, names, predicates, until))


def groups_with_rows(
    metadata: pq.FileMetaData,
    names: Sequence[str],
    predicates: Sequence[Scalar],
    until: Timestamp,
) -> Iterator[int]:
    """Yield the row groups of a batch's file that may have such rows, as `may_hold_rows` says."""
    tests = _tests(predicates, [*names, TIME, DIFF], None)
    tests[TIME] = [(_MAY_HOLD["le"], until)]
    for group in range(metadata.num_row_groups):
        if _may_hold_in(metadata, metadata.schema, group, tests):
            yield group


Test = tuple[Callable[[Any, Any, Any], bool], Any]


def _tests(
    predicates: Sequence[Scalar], names: Sequence[str], after: Timestamp | None
) -> dict[str, list[Test]]:
    """Return the tests that the statistics of a file's columns have to pass."""
    tests: dict[str, list[Test]] = {}
    if after is not None:
        tests[names[-2]] = [(_MAY_HOLD["gt"], after)]
    for predicate in predicates:
        match predicate:
            case Call(function=function, args=(Column() as column, Literal() as literal)):
                operator = function
            case Call(function=function, args=(Literal() as literal, Column() as column)):
                operator = _MIRRORED.get(function, "")
            case _:
                continue
        comparable = column.type.name in _COMPARABLE and literal.type.name in _COMPARABLE
        if operator in _MAY_HOLD and comparable and literal.value is not None:
            tests.setdefault(names[column.index], []).append((_MAY_HOLD[operator], literal.value))
    return tests


def _may_hold(file: pq.ParquetFile, group: int, tests: dict[str, list[Test]]) -> bool:
    """Whether a row group may hold a selected row."""
    return not tests or _may_hold_in(file.metadata, file.schema, group, tests)


def _may_hold_in(
    file: pq.FileMetaData, schema: pq.ParquetSchema, group: int, tests: dict[str, list[Test]]
) -> bool:
    metadata = file.row_group(group)
    for leaf in range(metadata.num_columns):
        column = metadata.column(leaf)
        wanted = tests.get(column.path_in_schema)
        if wanted is None or schema.column(leaf).name != column.path_in_schema:
            continue  # the path of a nested field may equal another column's name
        statistics = column.statistics
        if statistics is None or not statistics.has_min_max:
            continue
        low, high = statistics.min, statistics.max
        if not all(may_hold(low, high, value) for may_hold, value in wanted):
            return False
    return True


def _nullable(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_nullable(True) for field in schema])
