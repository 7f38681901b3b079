"""Scalars with calls that no engine can make: functions with side effects, called for each row.

The caller makes the calls, in the order of the rows, and only those that a row reaches: in `CASE
WHEN k > 0 THEN nextval('s') END` the rows with a positive `k`. Random values, and numbers of
sequences that are the same for all rows, are taken all at once.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.compute.local.linear import evaluate_linear
from foreshore.errors import DataError
from foreshore.expr.columns import type_of
from foreshore.expr.datum import from_array
from foreshore.expr.evaluate import outcome
from foreshore.expr.functions.system import RANDOM, RANDOM_UUID
from foreshore.expr.ir import Call, Column, Get, Literal, Map, Project, Scalar
from foreshore.expr.lazily import conditions
from foreshore.expr.pointwise import Cell, compiled
from foreshore.expr.scalars import bind_scalar
from foreshore.expr.traversal import walk_scalars
from foreshore.ids import GlobalId
from foreshore.rows import repeated, split_diffs
from foreshore.types import INT8, ColumnType, Datum, arrow_type

ROWS_AT_ONCE = 256
_ROWS = GlobalId("t0")  # stands for the rows

MakeCall = Callable[[Call, Sequence[Datum]], Awaitable[Datum]]
TakeNumbers = Callable[[Datum, int], Awaitable[npt.NDArray[np.int64]]]  # of a sequence
# Whether each row reaches the call; calls within the arguments of another come first.
Reached = Mapping[Call, npt.NDArray[np.bool_]]


async def evaluate_with_calls(
    rows: pa.Table, scalars: Sequence[Scalar], make_call: MakeCall, take_numbers: TakeNumbers
) -> pa.Table:
    """Return `scalars` for each of `rows` (with `__diff`)."""
    rows = repeated(rows)
    columns, diffs = split_diffs(rows)
    types = _types(scalars, len(columns))
    reached = {
        call: _rows_reached(guards, columns, rows.num_rows)
        for call, guards in conditions(scalars, _has_side_effect).items()
        if isinstance(call, Call)
    }
    if all(_is_random(call) or _is_nextval_of_one_sequence(call) for call in reached):
        numbered = {call: where for call, where in reached.items() if not _is_random(call)}
        found = await _next_numbers(numbered, take_numbers)
        results = [
            found[call] if call in found else _random_values(call, where)
            for call, where in reached.items()
        ]
    else:
        results = await _call_by_row(reached, columns, make_call)
    places: dict[Scalar, Scalar] = {
        call: Column(len(columns) + i, type_of(call)) for i, call in enumerate(reached)
    }
    placed = tuple(bind_scalar(scalar, places.get) for scalar in scalars)
    columns = [*columns, *results]
    fields = [pa.field(f"c{i}", column.type) for i, column in enumerate(columns)]
    schema = pa.schema([*fields, rows.schema.field(rows.num_columns - 1)])
    get = Get(_ROWS, (*types, *(ColumnType(type_of(call)) for call in reached)))
    outputs = tuple(range(len(columns), len(columns) + len(placed)))
    return evaluate_linear(
        Project(Map(get, placed), outputs),
        {_ROWS: pa.Table.from_arrays([*columns, diffs], schema=schema)},
    )


def _has_side_effect(scalar: Scalar) -> bool:
    return isinstance(scalar, Call) and scalar.number > 0


def _rows_reached(
    guards: Sequence[Scalar], columns: Sequence[pa.Array], count: int
) -> npt.NDArray[np.bool_]:
    """Return for which of the rows one of the conditions `guards` is TRUE."""
    reached = np.zeros(count, np.bool_)
    for guard in guards:
        values, errors = outcome(guard, columns, count)
        if errors is not None and errors.null_count < len(errors):
            raise DataError.parse(pc.min(errors).as_py())
        reached |= values.fill_null(False).to_numpy(zero_copy_only=False)
    return reached


def _is_nextval_of_one_sequence(call: Call) -> bool:
    """Return whether `call` is nextval of a sequence that is the same for all rows."""
    return (
        call.function == "nextval"
        and isinstance(call.args[0], Literal)
        and call.args[0].value is not None
    )


def _is_random(call: Call) -> bool:
    return call.function in (RANDOM, RANDOM_UUID)


def _random_values(call: Call, reached: npt.NDArray[np.bool_]) -> pa.Array:
    """Return a value of random() or gen_random_uuid() for each row that is reached."""
    if call.function == RANDOM:
        return pa.array(np.random.default_rng().random(len(reached)), mask=~reached)
    drawn = np.frombuffer(os.urandom(16 * len(reached)), np.uint8).reshape(-1, 16).copy()
    drawn[:, 6] = drawn[:, 6] & 0x0F | 0x40  # version 4 of RFC 9562, section 5.4
    drawn[:, 8] = drawn[:, 8] & 0x3F | 0x80
    buffers = [None, pa.py_buffer(drawn.tobytes())]
    values = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(drawn), buffers)
    values = values.cast(arrow_type(type_of(call)))
    return pc.if_else(pa.array(reached), values, pa.scalar(None, values.type))


async def _next_numbers(reached: Reached, take_numbers: TakeNumbers) -> dict[Call, pa.Array]:
    """Return the numbers of each call; a sequence gives all of its numbers at once, row by row."""
    found: dict[Call, pa.Array] = {}
    by_sequence: dict[Scalar, list[Call]] = {}
    for call in reached:
        by_sequence.setdefault(call.args[0], []).append(call)
    for named, calls in by_sequence.items():
        assert isinstance(named, Literal), named
        drawn = np.stack([reached[call] for call in calls], axis=1)
        total = int(drawn.sum())
        numbers = np.zeros(drawn.shape, np.int64)
        if total:
            numbers[drawn] = await take_numbers(named.value, total)
        for i, call in enumerate(calls):
            found[call] = pa.array(numbers[:, i], mask=~drawn[:, i])
    return found


async def _call_by_row(
    reached: Reached, columns: Sequence[pa.Array], make_call: MakeCall
) -> list[pa.Array]:
    """Return the results of each call, made row by row: a call may see the effects of earlier."""
    places: dict[Scalar, Scalar] = {}
    arguments: list[list[Cell]] = []
    for call in reached:
        arguments.append([compiled(bind_scalar(arg, places.get)) for arg in call.args])
        places[call] = Column(len(columns) + len(places), type_of(call))
    used = {
        each.index: from_array(columns[each.index], each.type)
        for call in reached
        for each in walk_scalars(call)
        if isinstance(each, Column)
    }
    found: list[list[Datum]] = [[] for _ in reached]
    for i in range(len(next(iter(reached.values()), ()))):
        if i % ROWS_AT_ONCE == 0:
            await asyncio.sleep(0)  # calls that never wait would block the event loop
        row: list[Datum] = [used[k][i] if k in used else None for k in range(len(columns))]
        for call, cells, values in zip(reached, arguments, found, strict=True):
            value: Datum = None
            if reached[call][i]:
                value = await make_call(call, [cell(row) for cell in cells])
            row.append(value)
            values.append(value)
    return [
        pa.array(values, arrow_type(type_of(call)))
        for call, values in zip(reached, found, strict=True)
    ]


def _types(scalars: Sequence[Scalar], width: int) -> list[ColumnType]:
    """Return the types of the columns that `scalars` use, and any types for the others."""
    types = [ColumnType(INT8)] * width
    for scalar in scalars:
        for each in walk_scalars(scalar):
            if isinstance(each, Column):
                types[each.index] = ColumnType(each.type, each.nullable)
    return types
