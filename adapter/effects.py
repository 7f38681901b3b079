"""Functions that act on the session: carried out once, before the query that calls them.

    set_config(name, value, is_local)    SET, as a function; its value is the new setting
    current_setting(name [, missing_ok]) SHOW, as a function, where the name is an argument
    pg_sleep(seconds)                    the statement waits
    nextval(sequence), ...               numbers of sequences (`adapter/numbering.py`)

They stand in a query's plan as calls of volatile functions that no engine can run. Their arguments
have to be constants; each call becomes a literal. Those of sequences may also be over the rows of a
query: planning takes them out (`sql/bind/acting.py`), and they are carried out on its result.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from foreshore.adapter import numbering
from foreshore.errors import DataError, FeatureNotSupported, UndefinedObject
from foreshore.expr.evaluate import constant, is_constant
from foreshore.expr.ir import (
    Call,
    Literal,
    Relation,
    Scalar,
    scalars_of,
    type_of,
    walk_relations,
    walk_scalars,
)
from foreshore.types import Datum

if TYPE_CHECKING:
    from foreshore.adapter.session import Session

SET_CONFIG = "set_config(text,text,bool)"
SETTINGS = ("current_setting(text)", "current_setting(text,bool)")
SLEEP = "pg_sleep(float8)"
ALL = (SET_CONFIG, *SETTINGS, SLEEP, *numbering.FUNCTIONS)


def calls_in(relation: Relation) -> list[Call]:
    """Return the calls in `relation` that act on the session, each once, in order."""
    return calls_of(scalar for node in walk_relations(relation) for scalar in scalars_of(node))


def calls_of(scalars: Iterable[Scalar]) -> list[Call]:
    """Return the calls in `scalars` that act on the session, each once, in order."""
    found = {
        each: None
        for scalar in scalars
        for each in walk_scalars(scalar)
        if isinstance(each, Call) and each.function in ALL
    }
    return list(found)


async def carried_out(session: "Session", calls: Sequence[Call]) -> dict[Scalar, Literal]:
    """Carry out `calls`, whose arguments are filled in; return what stands for each."""
    values: dict[Scalar, Literal] = {}
    for call in calls:
        values[call] = Literal(await _value(session, call), type_of(call))
    return values


async def _value(session: "Session", call: Call) -> Datum:
    args = [_argument(arg) for arg in call.args]
    if call.function in numbering.FUNCTIONS:
        return await numbering.value(session, call.function, args)
    if call.function == SLEEP:
        if args[0] is not None:
            await asyncio.sleep(float(str(args[0])))
        return ""
    if call.function in SETTINGS:
        return None if None in args else setting(session, str(args[0]), missing_ok=True in args)
    name, value, local = args
    if name is None:
        return None
    session.variables.set(str(name), None if value is None else (str(value),), local=local is True)
    return session.variables.show(str(name))


def setting(session: "Session", name: str, *, missing_ok: bool) -> str | None:
    """Return the value of a variable; None if there is none and that is `missing_ok`."""
    try:
        return session.variables.show(name)
    except UndefinedObject:
        if missing_ok:
            return None
        raise


def _argument(arg: Scalar) -> Datum:
    value: Datum
    if isinstance(arg, Literal):
        value = arg.value
        return value
    if not is_constant(arg):
        raise FeatureNotSupported(
            "the arguments of a function that acts on the session have to be constants"
        )
    found = constant(arg)
    if isinstance(found, str):
        raise DataError.parse(found)
    value = found.value
    return value
