"""Linear plans computed by the functions' kernels: Map, Filter, Project, FlatMap, Union, Negate.

The changes of a linear plan are the plan applied to the inputs' changes, with times and diffs
unchanged, so no state is needed. For a few rows the kernels take microseconds where a bulk engine
needs a millisecond to start.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.engine import rows_schema
from foreshore.datum import to_array
from foreshore.errors import InternalError
from foreshore.expr.evaluate import evaluate
from foreshore.expr.ir import (
    And,
    Column,
    Constant,
    Filter,
    FlatMap,
    Get,
    Join,
    Let,
    LocalGet,
    Map,
    Negate,
    Project,
    Relation,
    Scalar,
    Threshold,
    Union,
    Window,
    WindowFunction,
)
from foreshore.expr.unnest import Ints, unnested
from foreshore.types import ColumnType


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows in columns, and columns `along` with them: none, or diff, or time and diff."""

    columns: tuple[pa.Array, ...]
    along: tuple[pa.Array, ...]
    count: int

    @classmethod
    def of_batch(cls, rows: pa.RecordBatch) -> "Rows":
        """Return rows with multiplicity one."""
        return cls(tuple(rows.columns), (), rows.num_rows)

    @classmethod
    def of_table(cls, rows: pa.Table, along: int) -> "Rows":
        """Return the rows of a table whose last columns, as many as `along`, are diff or time."""
        arrays = [flat(column) for column in rows.columns]
        width = len(arrays) - along
        return cls(tuple(arrays[:width]), tuple(arrays[width:]), rows.num_rows)

    def batch(self, columns: tuple[ColumnType, ...]) -> pa.RecordBatch:
        """Return the rows alone."""
        if not columns:
            return pa.RecordBatch.from_struct_array(pa.array([{}] * self.count, pa.struct([])))
        return pa.RecordBatch.from_arrays(list(self.columns), schema=rows_schema(columns))

    def filter(self, mask: pa.Array) -> "Rows":
        """Return the rows where `mask` is true."""
        if not self.columns and not self.along:  # Arrow does not count rows without columns
            return Rows((), (), pc.sum(mask, min_count=0).as_py())
        batch = pa.RecordBatch.from_arrays(
            [*self.columns, *self.along], names=[""] * (len(self.columns) + len(self.along))
        ).filter(mask)
        width = len(self.columns)
        return Rows(tuple(batch.columns[:width]), tuple(batch.columns[width:]), batch.num_rows)

    def take(self, places: pa.Array) -> "Rows":
        """Return the rows at `places`."""
        columns = tuple(column.take(places) for column in self.columns)
        return Rows(columns, tuple(array.take(places) for array in self.along), len(places))

    def empty(self) -> "Rows":
        """Return no rows, of the same columns."""
        columns = tuple(column.slice(0, 0) for column in self.columns)
        return Rows(columns, tuple(array.slice(0, 0) for array in self.along), 0)


Inputs = Callable[[Get], Rows]
Values = Callable[[Scalar, Sequence[pa.Array], int], pa.Array]  # of a scalar over columns


def values_of(scalar: Scalar, columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """Return the values of `scalar`, NULL where it fails."""
    if isinstance(scalar, Column):
        return columns[scalar.index]
    return flat(evaluate(scalar, columns, rows))


def apply(
    relation: Relation,
    inputs: Inputs,
    locals: Mapping[int, Rows] | None = None,
    values: Values = values_of,
) -> Rows:
    """Return `relation` evaluated over its inputs' rows; constants have their diffs along."""
    locals = locals or {}

    def below(relation: Relation) -> Rows:
        return apply(relation, inputs, locals, values)

    match relation:
        case Constant(rows=given, columns=types):
            columns = [to_array([row[i] for row, _ in given], t.type) for i, t in enumerate(types)]
            diffs = pa.array([diff for _, diff in given], pa.int64())
            return Rows(tuple(columns), (diffs,), len(given))
        case Join(inputs=()):
            return Rows((), (pa.array([1], pa.int64()),), 1)
        case Get():
            return inputs(relation)
        case LocalGet(number=number):
            return locals[number]
        case Let(number=number, value=value, body=body):
            return apply(body, inputs, {**locals, number: below(value)}, values)
        case Map() | Filter() | Project() | FlatMap():
            return applied(relation, below(relation.input), values)
        case Union(inputs=parts):
            each = [below(part) for part in parts]
            return Rows(
                tuple(map(_concat, zip(*(rows.columns for rows in each), strict=True))),
                tuple(map(_concat, zip(*(rows.along for rows in each), strict=True))),
                sum(rows.count for rows in each),
            )
        case Negate(input=input):
            rows = below(input)
            *times, diffs = rows.along
            return Rows(rows.columns, (*times, pc.negate(diffs)), rows.count)
        case Threshold(input=Negate(input=input)):  # of existing rows
            return below(input).empty()
        case Threshold(input=input):
            return below(input)
        case Window(partition=(), order_key=(), functions=(WindowFunction("row_number"),)):
            return _numbered(below(relation.input))
        case _:
            raise InternalError(f"{type(relation).__name__} is not linear")


def _numbered(rows: Rows) -> Rows:
    """Return rows with the diff 1 each, and their numbers from 1 on."""
    assert all(pc.all(pc.equal(diffs, 1)).as_py() is not False for diffs in rows.along), rows
    number = pa.array(range(1, rows.count + 1), pa.int64())
    return Rows((*rows.columns, number), rows.along, rows.count)


def applied(node: Map | Filter | Project | FlatMap, rows: Rows, values: Values) -> Rows:
    """Return one node evaluated over the rows of its input."""
    match node:
        case Map(scalars=scalars):
            columns = list(rows.columns)
            for scalar in scalars:
                columns.append(values(scalar, columns, rows.count))
            return Rows(tuple(columns), rows.along, rows.count)
        case Filter(predicates=predicates):
            kept = predicates[0] if len(predicates) == 1 else And(predicates)
            return rows.filter(values(kept, rows.columns, rows.count)) if rows.count else rows
        case Project(outputs=outputs):
            return Rows(tuple([rows.columns[i] for i in outputs]), rows.along, rows.count)
        case FlatMap():
            parents, added = elements_of(node, rows.columns, rows.count, values)
            repeated = rows.take(pa.array(parents))
            return Rows((*repeated.columns, *added), repeated.along, repeated.count)


def elements_of(
    node: FlatMap, columns: Sequence[pa.Array], rows: int, values: Values
) -> tuple[Ints, list[pa.Array]]:
    """Return the number of the row that each element is of, and the columns that `node` adds."""
    found = unnested([values(array, columns, rows) for array in node.arrays])
    numbers = [pa.array(found.numbers)] if node.is_numbered else []
    return found.parents, [*map(flat, found.values), *numbers]


def flat(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return a column as one array."""
    if not isinstance(array, pa.ChunkedArray):
        return array
    if array.num_chunks == 1:
        return array.chunk(0)
    return pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)


def _concat(arrays: tuple[pa.Array, ...]) -> pa.Array:
    return pa.concat_arrays(arrays)
