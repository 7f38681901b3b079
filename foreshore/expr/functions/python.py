"""Python functions as functions of the registry, for all engines: a kernel that asks a host."""

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from threading import Event
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.errors import DataError, FeatureNotSupported
from foreshore.expr.functions.function import ScalarFunction, Signature
from foreshore.once_per_process import once_per_process
from foreshore.python_functions.answers import Answers
from foreshore.python_functions.definition import PythonFunction, function_of
from foreshore.python_functions.folds import outcomes
from foreshore.python_functions.hosts import hosts
from foreshore.python_functions.limits import check_allowed, limits
from foreshore.python_functions.patience import GivesWay, current_check, current_unwanted
from foreshore.types import arrow_type

NAME = "python function"  # of each of them, by which `expr/cost.py` knows that they take long


@lru_cache(1024)
def python_scalar(key: str) -> ScalarFunction:
    """Return the function with a key.

    An engine looks for errors by calls of their own. A function that is not IMMUTABLE would give
    NULL if it failed only the second time. So its errors end the statement, and are not looked for.
    """
    function = function_of(key)
    if function.step == "outcome":
        return _outcome(key)

    def kernel(types: Signature, *arrays: pa.Array) -> Any:
        _check(function)
        result = arrow_type(types.result)

        unwanted = current_unwanted()
        abandoned = Event() if unwanted is None else unwanted

        def ask(of: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array | None]:
            return hosts().outcome(key, of, result, abandoned)

        try:
            if function.volatility == "immutable":
                return answers().outcome(key, arrays, result, ask, current_check())
            values, errors = ask(arrays)
        except GivesWay:  # what was asked goes on
            raise
        except BaseException:
            if unwanted is None:  # else it is set if a check has ended the wait
                abandoned.set()
            raise
        if errors is not None:
            raise DataError.parse(pc.min(errors).as_py())  # another call may answer otherwise
        return values, errors

    return ScalarFunction(
        key=key,
        name=NAME,
        args=(),
        result="any",
        kernel=kernel,
        strict=function.strict,
        fallible=True,
        volatility=function.volatility,
    )


def _outcome(key: str) -> ScalarFunction:
    """Return what reads the result of a fold."""

    def kernel(types: Signature, packed: pa.Array) -> Any:
        return outcomes(packed, types.result)

    return ScalarFunction(key, NAME, (), "any", kernel, strict=False, fallible=True)


def answers() -> Answers:
    """Return the answers that this process keeps, also after a fork."""
    return _answers_of(limits().kept)


@once_per_process()
def _answers_of(kept: int) -> Answers:
    return Answers(kept)


def _check(function: PythonFunction) -> None:
    """Raise unless the function may be called, and from here."""
    check_allowed()
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise FeatureNotSupported(
        f'Python function "{function.name}" is not supported here',
        hint="It can be called in queries, in views and in the rows that INSERT, UPDATE and MERGE"
        " write.",
    )
