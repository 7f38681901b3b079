"""Calls of nextval and its kin: for one value, and for each row of a result.

The rows of a result get their numbers in their order; a call whose sequence is the same for all of
them takes all their numbers at once.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.adapter.coordinator import generation_of
from foreshore.adapter.local import evaluate_linear, repeated, split_diffs
from foreshore.adapter.sequence.tables import require_writable
from foreshore.adapter.substitute import Replace, fill_scalar
from foreshore.adapter.variables import split_dotted
from foreshore.catalog.builtin.relation import Builtin
from foreshore.catalog.item import Item
from foreshore.errors import (
    DataError,
    NumericValueOutOfRange,
    ObjectNotInPrerequisiteState,
    UndefinedTable,
    WrongObjectType,
)
from foreshore.expr.datum import from_array
from foreshore.expr.evaluate import outcome
from foreshore.expr.ir import (
    Call,
    Column,
    Get,
    Literal,
    Map,
    Project,
    Scalar,
    type_of,
    walk_scalars,
)
from foreshore.ids import GlobalId
from foreshore.sequence import Numbers, Position
from foreshore.sequence import Sequence as Definition
from foreshore.types import INT8, ColumnType, Datum

if TYPE_CHECKING:
    from foreshore.adapter.session import Session

FUNCTIONS = ("nextval", "currval", "lastval", "setval")
_ROWS = GlobalId("t0")  # stands for the rows of the result


# --- one value -----------------------------------------------------------------------------


async def value(session: "Session", function: str, args: Sequence[Datum]) -> Datum:
    """Return what a call gives; its last argument only tells it from others."""
    if function == "lastval":
        if session.last_sequence is None:
            raise ObjectNotInPrerequisiteState("lastval is not yet defined in this session")
        return session.numbers[session.last_sequence]
    if None in args:
        return None
    named = args[0]
    assert isinstance(named, int | str), named
    item, sequence = find(session, named)
    if function == "nextval":
        return int((await taken(session, item, sequence, 1))[0])
    if function == "currval":
        if item.id not in session.numbers:
            raise ObjectNotInPrerequisiteState(
                f'currval of sequence "{item.name}" is not yet defined in this session'
            )
        return session.numbers[item.id]
    require_writable(session, "setval()", item.id)
    to, called = int(str(args[1])), args[2] is True
    if not sequence.minimum <= to <= sequence.maximum:
        raise NumericValueOutOfRange(
            f'setval: value {to} is out of bounds for sequence "{item.name}" '
            f"({sequence.minimum}..{sequence.maximum})"
        )
    await session.coordinator.sequences.set(generation_of(item), Position(to, called))
    if called:
        session.numbers[item.id] = to
    return to


def find(session: "Session", named: int | str) -> tuple[Item, Definition]:
    """Return the sequence with an oid or a name; raises what PostgreSQL would."""
    reader = session.planner.reader()
    found: Item | Builtin | None
    if isinstance(named, str):
        found = reader.find(split_dotted(named))
        if found is None:
            raise UndefinedTable(f'relation "{named}" does not exist')
    else:
        found = reader.state.item_with(named)
        if found is None:
            raise UndefinedTable(f"could not open relation with OID {named}")
        reader.refuse_others(found)
    sequence = reader.planned[found.id].sequence if isinstance(found, Item) else None
    if not isinstance(found, Item) or sequence is None:
        raise WrongObjectType(f'"{found.name}" is not a sequence')
    return found, sequence


async def taken(session: "Session", item: Item, sequence: Definition, count: int) -> Numbers:
    """Return the next numbers of a sequence, of which the session keeps the last in mind."""
    require_writable(session, "nextval()", item.id)
    found = await session.coordinator.sequences.take(
        generation_of(item), sequence, count, item.name
    )
    session.numbers[item.id] = int(found[-1])
    session.last_sequence = item.id
    return found


# --- rows ----------------------------------------------------------------------------------


async def numbered(
    session: "Session", rows: pa.Table, over: Sequence[Scalar], replace: Replace
) -> pa.Table:
    """Return `over` of each of `rows`, with `__diff`, with its calls carried out row by row."""
    rows = repeated(rows)
    columns, diffs = split_diffs(rows)
    types = _types(over, len(columns))
    scalars: list[Scalar] = []
    for scalar in over:
        filled = fill_scalar(scalar, replace)
        for call in _calls(filled):
            columns.append(await _values(session, call, columns, rows.num_rows))
            place = Column(len(columns) - 1, INT8)
            values: dict[Scalar, Scalar] = {call: place}
            filled = fill_scalar(filled, values.get)
        scalars.append(filled)
    fields = [pa.field(f"c{i}", column.type) for i, column in enumerate(columns)]
    schema = pa.schema([*fields, rows.schema.field(rows.num_columns - 1)])
    added = len(columns) - len(types)
    get = Get(_ROWS, (*types, *[ColumnType(INT8)] * added))
    outputs = tuple(range(len(columns), len(columns) + len(scalars)))
    return evaluate_linear(
        Project(Map(get, tuple(scalars)), outputs),
        {_ROWS: pa.Table.from_arrays([*columns, diffs], schema=schema)},
    )


def _calls(scalar: Scalar) -> list[Call]:
    """Return the calls in `scalar`, those first that are arguments of others."""
    found = [each for each in walk_scalars(scalar) if isinstance(each, Call)]
    return [each for each in reversed(found) if each.function in FUNCTIONS]


def _types(over: Sequence[Scalar], width: int) -> list[ColumnType]:
    """Return the types of the columns that `over` uses; of the others any will do."""
    types = [ColumnType(INT8)] * width
    for scalar in over:
        for each in walk_scalars(scalar):
            if isinstance(each, Column):
                types[each.index] = ColumnType(each.type, each.nullable)
    return types


async def _values(
    session: "Session", call: Call, columns: Sequence[pa.Array], count: int
) -> pa.Array:
    """Return the values of a call for each row."""
    if not count:
        return pa.array([], pa.int64())
    sequence = call.args[0]
    if call.function == "nextval" and isinstance(sequence, Literal) and sequence.value is not None:
        item, definition = find(session, sequence.value)
        return pa.array(await taken(session, item, definition, count))
    args = []
    for arg in call.args:
        values, errors = outcome(arg, columns, count)
        if errors is not None and errors.null_count < len(errors):
            raise DataError.parse(pc.min(errors).as_py())
        args.append(from_array(values, type_of(arg)))
    return pa.array(
        [await value(session, call.function, row) for row in zip(*args, strict=True)], pa.int64()
    )
