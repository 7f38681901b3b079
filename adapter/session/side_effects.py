"""Functions that act on the session: carried out once, before the query that calls them.

    set_config(name, value, is_local)    SET, as a function; its value is the new setting
    current_setting(name [, missing_ok]) SHOW, as a function, where the name is an argument
    pg_sleep(seconds)                    the statement waits
    nextval(sequence), ...               numbers of sequences (`adapter/write/nextval.py`)
    pg_cancel_backend(pid), ...          signals to sessions (`adapter/session/signals.py`)
    pg_advisory_lock(key), ...           locks (`adapter/transaction/advisory_locks.py`)

They stand in a query's plan as calls of volatile functions that no engine can run. Their arguments
have to be constants; each call becomes a literal. All but those of current_setting have numbers
(`Call.number`), so that each is carried out though another is written the same. They may also be
over the rows of a query: planning separates them (`sql/bind/side_effects.py`), and they are called
for the rows of the result, in order.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.adapter.session import signals
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
ROWS_AT_ONCE = 256
_ROWS = GlobalId("t0")  # stands for the rows of the result


def calls_in(relation: Relation) -> list[Call]:
    """Return the calls in `relation` that act on the session, each once, in order."""
    return calls_of(scalar for node in walk_relations(relation) for scalar in scalars_of(node))


def draws(calls: Iterable[Call]) -> bool:
    """Whether one of `calls` draws numbers from a sequence."""
    return any(call.function == "nextval" for call in calls)


def calls_of(scalars: Iterable[Scalar]) -> list[Call]:
    """Return the calls in `scalars` that act on the session, each once, in order."""
    found = {
        each: None
        for scalar in scalars
        for each in walk_scalars(scalar)
        if isinstance(each, Call) and (each.number or each.function in SETTINGS)
    }
    return list(found)


async def carried_out(context: StatementContext, calls: Sequence[Call]) -> dict[Scalar, Literal]:
    """Carry out `calls`, whose arguments are filled in; return what stands for each."""
    values: dict[Scalar, Literal] = {}
    for call in calls:
        args = [_argument(arg) for arg in call.args]
        values[call] = Literal(await _value(context, call, args), type_of(call))
    return values


async def _value(context: StatementContext, call: Call, args: Sequence[Datum]) -> Datum:
    """Return what a call gives, which it does not do again when its statement is tried again."""
    value = context.side_effects.take(call.function, args)
    if value is None:
        value = await _made(context, call, args)
        if value is not None and _lasts(call.function, value):
            context.side_effects.note(call.function, args, value)
    return value


def _lasts(function: str, value: Datum) -> bool:
    """Whether what a call has done stays though its transaction is rolled back."""
    if function in SETTINGS:
        return False  # it only looks
    return function not in ADVISORY or (value is not False and not advisory.ends(function))


async def _made(context: StatementContext, call: Call, args: Sequence[Datum]) -> Datum:
    if call.function in numbering.FUNCTIONS:
        return await numbering.value(context, call.function, args)
    if call.function in ADVISORY:
        return await advisory.value(context, call.function, args)
    if call.function in SIGNALS:
        return await signals.value(context, call.function, args)
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


async def carried_out_by_row(
    context: StatementContext, rows: pa.Table, over: Sequence[Scalar], replace: Replace
) -> pa.Table:
    """Return `over` of each of `rows`, with `__diff`, with its calls carried out row by row."""
    rows = repeated(rows)
    columns, diffs = split_diffs(rows)
    types = _types(over, len(columns))
    bind_peek = [bind_scalar(scalar, replace) for scalar in over]
    due = {
        call: _due(places, columns, rows.num_rows)
        for call, places in conditions(bind_peek, _acts).items()
        if isinstance(call, Call)
    }
    found = _numbered(context, due) if all(map(_is_drawn, due)) else _by_row(context, due, columns)
    places: dict[Scalar, Scalar] = {
        call: Column(len(columns) + i, type_of(call)) for i, call in enumerate(due)
    }
    scalars = tuple(bind_scalar(scalar, places.get) for scalar in bind_peek)
    columns = [*columns, *await found]
    fields = [pa.field(f"c{i}", column.type) for i, column in enumerate(columns)]
    schema = pa.schema([*fields, rows.schema.field(rows.num_columns - 1)])
    get = Get(_ROWS, (*types, *(ColumnType(type_of(call)) for call in due)))
    outputs = tuple(range(len(columns), len(columns) + len(scalars)))
    return evaluate_linear(
        Project(Map(get, scalars), outputs),
        {_ROWS: pa.Table.from_arrays([*columns, diffs], schema=schema)},
    )


Due = Mapping[
    Call, npt.NDArray[np.bool_]
]  # for which rows each call is made, those of others first


def _acts(scalar: Scalar) -> bool:
    return isinstance(scalar, Call) and scalar.number > 0


def _due(
    places: Sequence[Scalar], columns: Sequence[pa.Array], count: int
) -> npt.NDArray[np.bool_]:
    """Return for which of the rows one of the conditions is TRUE."""
    due = np.zeros(count, np.bool_)
    for place in places:
        values, errors = outcome(place, columns, count)
        if errors is not None and errors.null_count < len(errors):
            raise DataError.parse(pc.min(errors).as_py())
        due |= values.fill_null(False).to_numpy(zero_copy_only=False)
    return due


def _is_drawn(call: Call) -> bool:
    """Whether `call` is nextval of a sequence that is the same for all rows."""
    return (
        call.function == "nextval"
        and isinstance(call.args[0], Literal)
        and call.args[0].value is not None
    )


async def _numbered(context: StatementContext, due: Due) -> list[pa.Array]:
    """Return the numbers of each call: a sequence is asked once, and serves row by row."""
    found: dict[Call, pa.Array] = {}
    by_sequence: dict[Scalar, list[Call]] = {}
    for call in due:
        by_sequence[call.args[0]] = [*by_sequence.pop(call.args[0], []), call]
    for named, calls in by_sequence.items():
        assert isinstance(named, Literal), named
        drawn = np.stack([due[call] for call in calls], axis=1)
        total = int(drawn.sum())
        numbers = np.zeros(drawn.shape, np.int64)
        if total:
            item, definition = numbering.find(context, named.value)
            numbers[drawn] = await numbering.next_numbers(context, item, definition, total)
        for i, call in enumerate(calls):
            found[call] = pa.array(numbers[:, i], mask=~drawn[:, i])
    return [found[call] for call in due]


async def _by_row(
    context: StatementContext, due: Due, columns: Sequence[pa.Array]
) -> list[pa.Array]:
    """Return what each call gives for each row, made row by row: one may see what another did."""
    places: dict[Scalar, Scalar] = {}
    arguments: list[list[Cell]] = []
    for call in due:
        bind_peek = [bind_scalar(arg, places.get) for arg in call.args]
        arguments.append([compiled(arg) for arg in bind_peek])
        places[call] = Column(len(columns) + len(places), type_of(call))
    used = {
        each.index: from_array(columns[each.index], each.type)
        for call in due
        for each in walk_scalars(call)
        if isinstance(each, Column)
    }
    found: list[list[Datum]] = [[] for _ in due]
    for i in range(len(next(iter(due.values()), ()))):
        if i % ROWS_AT_ONCE == 0:
            await asyncio.sleep(0)  # calls that wait for nothing leave nobody else a turn
        row: list[Datum] = [used[k][i] if k in used else None for k in range(len(columns))]
        for call, cells, values in zip(due, arguments, found, strict=True):
            value: Datum = None
            if due[call][i]:
                value = await _value(context, call, [cell(row) for cell in cells])
            row.append(value)
            values.append(value)
    return [
        pa.array(values, arrow_type(type_of(call))) for call, values in zip(due, found, strict=True)
    ]


def _types(over: Sequence[Scalar], width: int) -> list[ColumnType]:
    """Return the types of the columns that `over` uses; of the others any will do."""
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
