"""Python functions as functions of the registry, for all engines: a kernel that asks a host."""

import asyncio
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.errors import DataError, FeatureNotSupported
from foreshore.expr.functions.function import ScalarFunction, Signature
from foreshore.python_functions.definition import PythonFunction, function_of
from foreshore.python_functions.hosts import hosts
from foreshore.python_functions.limits import check_allowed
from foreshore.types import arrow_type

NAME = "python function"  # of each of them, by which `expr/cost.py` knows that they take long


@lru_cache(1024)
def python_scalar(key: str) -> ScalarFunction:
    """Return the function with a key.

    An engine looks for errors by calls of their own. A function that is not IMMUTABLE would give
    NULL if it failed only the second time. So its errors end the statement, and are not looked for.
    """
    function = function_of(key)

    def kernel(types: Signature, *arrays: pa.Array) -> Any:
        _check(function)
        values, errors = hosts().outcome(key, arrays, arrow_type(types.result))
        if errors is not None and function.volatility != "immutable":
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
