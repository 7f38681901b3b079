"""Functions with side effects, called before the query or for each row of its result.

    set_config(name, value, is_local)    SET as a function; returns the new setting
    current_setting(name [, missing_ok]) SHOW as a function, for names that are arguments
    pg_sleep(seconds)                    waits
    nextval(sequence), ...               numbers of sequences (`adapter/write/nextval.py`)
    pg_cancel_backend(pid), ...          signals to sessions (`adapter/session/activity.py`)
    pg_advisory_lock(key), ...           locks (`adapter/transaction/advisory_locks.py`)

In a plan they are calls of volatile functions that no engine can evaluate. If their arguments are
constants they are called once and replaced by literals. All but current_setting have a number
(`Call.number`), so two equal calls are both made. Calls over a query's rows are separated by the
binder (`sql/bind/side_effects.py`) and made for the rows of the result, in order.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.adapter.session.activity import signal
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.transaction import advisory_locks as advisory
from foreshore.adapter.write import nextval as numbering
from foreshore.compute.local.linear import evaluate_linear
from foreshore.errors import DataError, FeatureNotSupported
from foreshore.expr.datum import from_array
from foreshore.expr.evaluate import constant, is_constant, outcome
from foreshore.expr.functions.system import ADVISORY, SIGNALS, SLEEP
from foreshore.expr.ir import (
    Call,
    Column,
    Get,
    Literal,
    Map,
    Project,
    Relation,
    Scalar,
    type_of,
    walk_relations,
    walk_scalars,
)
from foreshore.expr.lazily import conditions
from foreshore.expr.pointwise import Cell, compiled
from foreshore.expr.scalars import scalars_of
from foreshore.ids import GlobalId
from foreshore.rows import repeated, split_diffs
from foreshore.sql.rewrite.bind_parameters import Replace, bind_scalar
from foreshore.types import INT8, ColumnType, Datum, arrow_type

SETTINGS = ("current_setting(text)", "current_setting(text,bool)")
# No transaction undoes these, and a second call has another effect than the first.
LASTING = {"setval", *SIGNALS, *(each for each in ADVISORY if not advisory.ends(each))}
ROWS_AT_ONCE = 256
_ROWS = GlobalId("t0")  # stands for the rows of the result


def calls_in(relation: Relation) -> list[Call]:
    """Return the calls with side effects in `relation`, each once, in order."""
    return calls_of(scalar for node in walk_relations(relation) for scalar in scalars_of(node))


def call_nextval(calls: Iterable[Call]) -> bool:
    """Whether one of `calls` is of nextval."""
    return any(call.function == "nextval" for call in calls)


def calls_of(scalars: Iterable[Scalar]) -> list[Call]:
    """Return the calls with side effects in `scalars`, each once, in order."""
    found = {
        each: None
        for scalar in scalars
        for each in walk_scalars(scalar)
        if isinstance(each, Call) and (each.number or each.function in SETTINGS)
    }
    return list(found)


async def results_of(context: StatementContext, calls: Sequence[Call]) -> dict[Scalar, Literal]:
    """Make `calls`, whose arguments are constants; return their results."""
    values: dict[Scalar, Literal] = {}
    for call in calls:
        args = [_argument(arg) for arg in call.args]
        values[call] = Literal(await _value(context, call, args), type_of(call))
    return values


async def _value(context: StatementContext, call: Call, args: Sequence[Datum]) -> Datum:
    """Return the result of a call, and note a lasting side effect: it must not be repeated."""
    value = await _call(context, call, args)
    if call.function in LASTING and value not in (None, False):
        context.lasting_effects.add(call.function)
    return value


async def _call(context: StatementContext, call: Call, args: Sequence[Datum]) -> Datum:
    if call.function in numbering.FUNCTIONS:
        return await numbering.value(context, call.function, args)
    if call.function in ADVISORY:
        return await advisory.value(context, call.function, args)
    if call.function in SIGNALS:
        return await signal(context, call.function, args)
    if call.function == SLEEP:
        seconds = None if args[0] is None else float(str(args[0]))
        if seconds is not None and seconds > 0:  # NaN is not
            await asyncio.sleep(seconds)
        return ""
    if call.function in SETTINGS:
        if None in args:
            return None
        show = context.variables.show_if_known if True in args else context.variables.show
        return show(str(args[0]))
    name, value, local = args
    if name is None:
        raise DataError("SET requires parameter name", sqlstate="22004")
    context.variables.set(str(name), None if value is None else (str(value),), local=local is True)
    return context.variables.show(str(name))


# --- for each row --------------------------------------------------------------------------


async def results_by_row(
    context: StatementContext, rows: pa.Table, over: Sequence[Scalar], bindings: Replace
) -> pa.Table:
    """Return the scalars `over` for each of `rows` (with `__diff`), making their calls by row."""
    rows = repeated(rows)
    columns, diffs = split_diffs(rows)
    types = _types(over, len(columns))
    bound = [bind_scalar(scalar, bindings) for scalar in over]
    reached = {
        call: _rows_reached(guards, columns, rows.num_rows)
        for call, guards in conditions(bound, _has_side_effect).items()
        if isinstance(call, Call)
    }
    if all(map(_is_nextval_of_one_sequence, reached)):
        results = await _next_numbers(context, reached)
    else:
        results = await _call_by_row(context, reached, columns)
    places: dict[Scalar, Scalar] = {
        call: Column(len(columns) + i, type_of(call)) for i, call in enumerate(reached)
    }
    scalars = tuple(bind_scalar(scalar, places.get) for scalar in bound)
    columns = [*columns, *results]
    fields = [pa.field(f"c{i}", column.type) for i, column in enumerate(columns)]
    schema = pa.schema([*fields, rows.schema.field(rows.num_columns - 1)])
    get = Get(_ROWS, (*types, *(ColumnType(type_of(call)) for call in reached)))
    outputs = tuple(range(len(columns), len(columns) + len(scalars)))
    return evaluate_linear(
        Project(Map(get, scalars), outputs),
        {_ROWS: pa.Table.from_arrays([*columns, diffs], schema=schema)},
    )


# Whether each row reaches the call; calls within the arguments of another come first.
Reached = Mapping[Call, npt.NDArray[np.bool_]]


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
    """Whether `call` is nextval of a sequence that is the same for all rows."""
    return (
        call.function == "nextval"
        and isinstance(call.args[0], Literal)
        and call.args[0].value is not None
    )


async def _next_numbers(context: StatementContext, reached: Reached) -> list[pa.Array]:
    """Return the numbers of each call; a sequence gives all of its numbers at once, row by row."""
    found: dict[Call, pa.Array] = {}
    by_sequence: dict[Scalar, list[Call]] = {}
    for call in reached:
        by_sequence[call.args[0]] = [*by_sequence.pop(call.args[0], []), call]
    for named, calls in by_sequence.items():
        assert isinstance(named, Literal), named
        drawn = np.stack([reached[call] for call in calls], axis=1)
        total = int(drawn.sum())
        numbers = np.zeros(drawn.shape, np.int64)
        if total:
            item, definition = numbering.find(context, named.value)
            numbers[drawn] = await numbering.next_numbers(context, item, definition, total)
        for i, call in enumerate(calls):
            found[call] = pa.array(numbers[:, i], mask=~drawn[:, i])
    return [found[call] for call in reached]


async def _call_by_row(
    context: StatementContext, reached: Reached, columns: Sequence[pa.Array]
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
            await asyncio.sleep(0)  # calls that never wait would keep the event loop
        row: list[Datum] = [used[k][i] if k in used else None for k in range(len(columns))]
        for call, cells, values in zip(reached, arguments, found, strict=True):
            value: Datum = None
            if reached[call][i]:
                value = await _value(context, call, [cell(row) for cell in cells])
            row.append(value)
            values.append(value)
    return [
        pa.array(values, arrow_type(type_of(call)))
        for call, values in zip(reached, found, strict=True)
    ]


def _types(over: Sequence[Scalar], width: int) -> list[ColumnType]:
    """Return the types of the columns that `over` uses, and any types for the others."""
    types = [ColumnType(INT8)] * width
    for scalar in over:
        for each in walk_scalars(scalar):
            if isinstance(each, Column):
                types[each.index] = ColumnType(each.type, each.nullable)
    return types


# --- arguments -----------------------------------------------------------------------------


def _argument(arg: Scalar) -> Datum:
    value: Datum
    if isinstance(arg, Literal):
        value = arg.value
        return value
    if not is_constant(arg):
        raise FeatureNotSupported(
            "the arguments of a function with side effects on the session must be constants"
        )
    found = constant(arg)
    if isinstance(found, str):
        raise DataError.parse(found)
    value = found.value
    return value
