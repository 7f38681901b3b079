"""Functions with side effects, called before the query or for each row of its result.

    set_config(name, value, is_local)    SET as a function; returns the new setting
    current_setting(name [, missing_ok]) SHOW as a function, for names that are arguments
    pg_sleep(seconds)                    waits
    random(), gen_random_uuid()          random values
    setseed(seed)                        lets those of random() follow from a seed
    nextval(sequence), ...               numbers of sequences (`adapter/calls/nextval.py`)
    pg_cancel_backend(pid), ...          signals to sessions (`adapter/statement/activity.py`)
    pg_reload_conf()                     reads configuration files of the server again
    pg_advisory_lock(key), ...           locks (`adapter/calls/advisory_locks.py`)
    pg_notify(channel, payload)          NOTIFY (`adapter/calls/notifications.py`)

In a plan they are calls of volatile functions that no engine can evaluate. If their arguments are
constants they are called once and replaced by literals. All but current_setting have a number
(`Call.number`), so two equal calls are both made. Calls over a query's rows are separated by the
binder (`sql/bind/side_effects.py`) and made for the rows of the result, in order.
"""

import asyncio
import uuid
from collections.abc import Sequence
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foreshore import blocking
from foreshore.adapter import leftovers
from foreshore.adapter.calls import advisory_locks as advisory
from foreshore.adapter.calls import nextval as numbering
from foreshore.adapter.calls import notifications
from foreshore.adapter.calls.signals import signal
from foreshore.adapter.plans.calls import SETTINGS
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.roles import require_settable, require_visible
from foreshore.compute.local.calls import evaluate_with_calls
from foreshore.errors import DataError, FeatureNotSupported, InsufficientPrivilege
from foreshore.expr.columns import type_of
from foreshore.expr.evaluate import constant, is_constant
from foreshore.expr.functions.system import (
    ADVISORY,
    FORGET_LEFTOVER,
    NOTIFY,
    RANDOM,
    RANDOM_UUID,
    RELOAD,
    SET_SEED,
    SIGNALS,
    SLEEP,
)
from foreshore.expr.ir import Call, Literal, Scalar
from foreshore.expr.scalars import Replace
from foreshore.session_variables import OF_ROLES
from foreshore.types import Datum

# No transaction undoes these, and a second call has another effect than the first.
LASTING = {
    "setval",
    FORGET_LEFTOVER,
    *SIGNALS,
    *(each for each in ADVISORY if not advisory.ends(each)),
}


async def results_of(context: StatementContext, calls: Sequence[Call]) -> dict[Scalar, Literal]:
    """Make `calls`, whose arguments are constants; return their results."""
    values = await values_of_calls(context, calls)
    pairs = zip(calls, values, strict=True)
    return {call: Literal(value, type_of(call)) for call, value in pairs}


async def values_of_calls(context: StatementContext, calls: Sequence[Call]) -> list[Datum]:
    """Make `calls`, whose arguments are constants; return the values of their results."""
    values: list[Datum] = []
    for call in calls:
        values.append(await _value(context, call, [*map(_argument, call.args)]))
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
    if call.function == NOTIFY:
        return notifications.value(context.transaction, context.database, args)
    if call.function in SIGNALS:
        return await signal(context, call.function, args)
    if call.function == RELOAD:
        return await _reload(context)
    if call.function == FORGET_LEFTOVER:
        return await leftovers.forget(context, args[0])
    if call.function == RANDOM:
        return float(context.variables.random.floats(1)[0])
    if call.function == SET_SEED:
        if args[0] is None:
            return None
        context.variables.random.seed(float(str(args[0])))
        return ""
    if call.function == RANDOM_UUID:
        return uuid.uuid4().bytes
    if call.function == SLEEP:
        seconds = None if args[0] is None else float(str(args[0]))
        if seconds is not None and seconds > 0:  # NaN is not
            await asyncio.sleep(seconds)
        return ""
    if call.function in SETTINGS:
        if None in args:
            return None
        show = context.variables.show_if_known if True in args else context.variables.show
        require_visible(context.planner.state, context.role, str(args[0]))
        return show(str(args[0]))
    name, value, local = args
    if name is None:
        raise DataError("SET requires parameter name", sqlstate="22004")
    values = None if value is None else (str(value),)
    require_settable(context.role, str(name))
    context.check_stays_read_only(str(name), values)
    if str(name).lower() in OF_ROLES:
        context.roles.set(str(name), values, local=local is True)
    else:
        context.variables.set(str(name), values, local=local is True)
    return context.variables.show(str(name))


async def _reload(context: StatementContext) -> bool:
    if not context.role.superuser:
        raise InsufficientPrivilege("permission denied for function pg_reload_conf")
    configuration = context.process.configuration
    return configuration is not None and await blocking.run(None, configuration.reload)


async def results_by_row(
    context: StatementContext, rows: pa.Table, over: Sequence[Scalar], bindings: Replace
) -> pa.Table:
    """Return the scalars `over` for each of `rows` (with `__diff`), making their calls by row."""
    executor = context.engines.executor
    value, next = partial(_value, context), partial(_next, context)
    return await evaluate_with_calls(
        executor, rows, over, bindings, value, next, context.variables.random
    )


async def _next(context: StatementContext, sequence: Datum, count: int) -> npt.NDArray[np.int64]:
    assert isinstance(sequence, int | str), sequence
    item, definition = numbering.find(context, sequence)
    return await numbering.next_numbers(context, item, definition, count)


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
