"""Few rows as values, until columns of many are made of them.

Columns of one value each cost more than all else that a statement about one row does. So a row of
literals and arguments is compiled when its statement is prepared, kept as a tuple of data while it
is on its way, and becomes part of a column when its group is committed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import chain

import pyarrow as pa

from foreshore.compute.finish import empty_rows
from foreshore.errors import DataError
from foreshore.expr.cost import LIGHT, cost_of_call, is_demanding, size_of
from foreshore.expr.datum import to_array
from foreshore.expr.ir import (
    Call,
    Column,
    Constant,
    Filter,
    Join,
    Literal,
    Map,
    Project,
    Relation,
    Scalar,
    Union,
    inputs_of,
    walk_scalars,
)
from foreshore.expr.pointwise import Cell, compiled
from foreshore.sql.rewrite.bind_parameters import Givens, bind_scalar
from foreshore.types import INT8, ColumnType, Datum, RelationDesc, arrow_type
from foreshore.update import DIFF_FIELD, Timestamp, update_schema

MOST_IN_PASSING = 256  # rows

Row = tuple[Datum, ...]


@dataclass(slots=True)
class Values:
    """Rows of `desc`'s columns, each with its diff: 1 if it comes, -1 if it goes."""

    desc: RelationDesc
    rows: list[Row]
    diffs: list[int]
    _table: pa.Table | None = field(default=None, repr=False)

    @classmethod
    def coming(cls, desc: RelationDesc, rows: list[Row]) -> "Values":
        """Return new rows."""
        return cls(desc, rows, [1] * len(rows))

    @property
    def num_rows(self) -> int:
        """How many rows there are."""
        return len(self.rows)

    def table(self) -> pa.Table:
        """Return the rows with `__diff`, in the columns of a table's shard."""
        if self._table is None:
            columns = columns_of_rows(self.rows, self.desc.columns)
            diffs = to_array(self.diffs, INT8)
            schema = _stored_schema(self.desc).append(DIFF_FIELD)
            self._table = pa.Table.from_arrays([*columns, diffs], schema=schema)
        return self._table


def updates_at(parts: Sequence[Values], time: Timestamp) -> pa.Table:
    """Return all rows of `parts`, which are of one table, as updates at `time`."""
    desc = parts[0].desc
    if len(parts) == 1:
        rows, diffs = parts[0].rows, parts[0].diffs
    else:
        rows = list(chain.from_iterable([part.rows for part in parts]))
        diffs = list(chain.from_iterable([part.diffs for part in parts]))
    columns = columns_of_rows(rows, desc.columns)
    columns += [to_array([time] * len(rows), INT8), to_array(diffs, INT8)]
    return pa.Table.from_arrays(columns, schema=_updates_schema(desc))


@lru_cache(1024)
def _stored_schema(desc: RelationDesc) -> pa.Schema:
    return desc.stored_schema()


@lru_cache(1024)
def _updates_schema(desc: RelationDesc) -> pa.Schema:
    return update_schema(desc.stored_schema())


def columns_of_rows(rows: Sequence[Row], types: Sequence[ColumnType]) -> list[pa.Array]:
    """Return the columns, of these types, that hold `rows`."""
    if not rows:
        return [pa.array([], arrow_type(each.type)) for each in types]
    columns = zip(*rows, strict=True)
    return [to_array(data, each.type) for data, each in zip(columns, types, strict=True)]


def table_of_rows(rows: Sequence[Row], types: Sequence[ColumnType]) -> pa.Table:
    """Return new rows of columns of these types, in the columns c0, c1, ... and `__diff`."""
    columns = {f"c{i}": column for i, column in enumerate(columns_of_rows(rows, types))}
    return pa.table({**columns, DIFF_FIELD.name: to_array([1] * len(rows), INT8)})


def batch_of_rows(rows: Sequence[Row], types: Sequence[ColumnType]) -> pa.RecordBatch:
    """Return rows of columns of these types, in the columns c0, c1, ..., as results have them."""
    if not types:
        return empty_rows(len(rows))
    columns = columns_of_rows(rows, types)
    return pa.RecordBatch.from_arrays(columns, names=[f"c{i}" for i in range(len(types))])


@dataclass(frozen=True, slots=True)
class Template:
    """Rows of cells over what is given: arguments, what the environment says, and calls' values.

    `calls` act on the session, as nextval() does, and have arguments that are literals. What
    is `demanding`, a function and its arguments, may take longer than these are long.
    """

    givens: Givens
    calls: tuple[Call, ...]
    cells: tuple[tuple[Cell, ...], ...]
    computes: bool = False
    demanding: tuple[tuple[str, tuple[Cell, ...]], ...] = ()

    def is_large(self, given: Sequence[Datum]) -> bool:
        """Whether a value in the rows may be so long that nobody should wait for it in passing."""
        if self.computes and sum(map(size_of, given)) > LIGHT:
            return True
        try:  # one after the other: what is an argument of others has been found to be short
            for key, args in self.demanding:
                values = [arg(given) for arg in args]
                if sum(cost_of_call(key, values, [*map(size_of, values)])) > LIGHT:
                    return True
        except DataError:  # which the rows may do without
            return True
        return False

    def rows(self, given: Sequence[Datum]) -> list[Row]:
        """Return the rows over the values of `givens`, then `calls`; raises DataError."""
        return [tuple([cell(given) for cell in row]) for row in self.cells]


def template_of(relation: Relation, calls: Sequence[Call] = ()) -> Template | None:
    """Return `relation` as a template if it is nothing but rows of values, and not of constants.

    `calls` are those in it that act on the session, in the order in which they are to be made.
    """
    rows = _rows(relation)
    if rows is None:
        return None
    if not all(isinstance(arg, Literal) for call in calls for arg in call.args):
        return None
    places: dict[Scalar, Scalar] = {call: Column(i, call.type) for i, call in enumerate(calls)}
    rows = [tuple(bind_scalar(scalar, places.get) for scalar in row) for row in rows]
    givens = Givens.of(chain.from_iterable(rows))
    rows = [tuple(map(givens.placed, row)) for row in rows]
    made = [call for scalar in chain.from_iterable(rows) for call in _calls_in(scalar)]
    demanding = [call for call in made if is_demanding(call.function)]
    if demanding and (calls or len(rows) > MOST_IN_PASSING):
        return None  # what turns out to be large is done in another way, and calls only once
    return Template(
        givens,
        tuple(calls),
        tuple(tuple(map(compiled, row)) for row in rows),
        bool(made),
        tuple((call.function, tuple(map(compiled, call.args))) for call in demanding),
    )


def _calls_in(scalar: Scalar) -> list[Call]:
    """Return the calls within `scalar`, those that are arguments of others first."""
    return [each for each in walk_scalars(scalar) if isinstance(each, Call)][::-1]


def _rows(relation: Relation) -> list[tuple[Scalar, ...]] | None:
    """Return the rows of `relation` as scalars without columns, if it is nothing but rows."""
    match relation:
        case Join(inputs=()):
            return [()]
        case Constant(rows=rows, columns=columns):
            if len(rows) > MOST_IN_PASSING or any(
                diff != 1 for _, diff in rows
            ):  # they are columns
                return None
            return [
                tuple(Literal(datum, c.type) for datum, c in zip(row, columns, strict=True))
                for row, _ in rows
            ]
        case Map(input=input, scalars=scalars):
            below = _rows(input)
            return None if below is None else [_with(row, scalars) for row in below]
        case Project(input=input, outputs=outputs):
            below = _rows(input)
            return None if below is None else [tuple(row[i] for i in outputs) for row in below]
        case Union():
            found: list[tuple[Scalar, ...]] = []
            for input in inputs_of(relation):
                part = _rows(input)
                if part is None:
                    return None
                found += part
            return found
        case _:
            return None


def most_rows(relation: Relation) -> int | None:
    """Return how many rows `relation` has at most; None where its inputs do not say."""
    match relation:
        case Join(inputs=()):
            return 1
        case Constant(rows=rows):
            return sum(diff for _, diff in rows if diff > 0)
        case Map() | Project() | Filter():
            return most_rows(relation.input)
        case Union():
            parts = [most_rows(input) for input in inputs_of(relation)]
            return None if None in parts else sum(filter(None, parts))
        case _:
            return None


def _with(row: tuple[Scalar, ...], scalars: Iterable[Scalar]) -> tuple[Scalar, ...]:
    for scalar in scalars:
        row = (*row, bind_scalar(scalar, partial(_cell_of, row)))
    return row


def _cell_of(row: tuple[Scalar, ...], scalar: Scalar) -> Scalar | None:
    return row[scalar.index] if isinstance(scalar, Column) else None
