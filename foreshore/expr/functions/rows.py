"""Kernels that compute row by row, and failures of single rows."""

import logging
import re
import struct
import traceback
import zlib
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import re2

from foreshore.datum import from_array, to_array
from foreshore.errors import InternalError, NumericValueOutOfRange, UserError, data_error
from foreshore.expr.functions.function import Kernel, One, Outcome, Signature
from foreshore.number_text import numeric_text
from foreshore.types import Datum, SqlType

logger = logging.getLogger(__name__)

# Exceptions that follow from a row and that nobody expected. Memory, files, imports and depth fail
# the whole step instead, which is tried again.
OF_A_ROW = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NotImplementedError,
    TypeError,
    ValueError,
    InternalError,
    re.error,
    re2.error,
    struct.error,
    zlib.error,
)
_LOGGED: set[tuple[str, str, int | None]] = set()

DIVISION_BY_ZERO = data_error("22012", "division by zero")


class Failure(Exception):
    """The failure of a row; `text` is of `data_error`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def fail(sqlstate: str, message: str) -> Failure:
    """Raise the failure of a row."""
    return Failure(data_error(sqlstate, message))


def out_of_range(type: SqlType) -> str:
    """Return the error of a result that `type` cannot hold."""
    return data_error("22003", f"{type} out of range")


def rowwise(types: Signature, compute: Callable[..., Any], *arrays: pa.Array) -> Outcome:
    """Apply `compute` to each row without NULLs, given Arrow's Python values.

    `compute` returns data. A `Failure` or a `UserError` fails the row.
    """
    return collect(types, compute, zip(*(array.to_pylist() for array in arrays), strict=True))


def collect(types: Signature, compute: Callable[..., Any], rows: Any) -> Outcome:
    """Apply `compute` to each of `rows` without None."""
    values, errors = computed(compute, rows)
    try:
        result = to_array(values, types.result)
    except OF_A_ROW:
        result, errors = _each_converted(values, errors, types.result)
    return result if errors is None else (result, errors)


def _each_converted(
    values: list[Any], errors: pa.Array | None, type: SqlType
) -> tuple[pa.Array, pa.Array]:
    """Return a column of `values` with NULL for those that `type` cannot hold, and all errors."""
    messages = [None] * len(values) if errors is None else errors.to_pylist()
    for i, value in enumerate(values):
        try:
            to_array([value], type)
        except OF_A_ROW as error:
            values[i], messages[i] = None, text_of(_too_wide(value, type) or error)
    return to_array(values, type), pa.array(messages, pa.string())


def _too_wide(value: Any, type: SqlType) -> UserError | None:
    """Return the error of a number with more digits than its type holds, None of other values."""
    if type.name == "numeric":
        try:
            numeric_text(Decimal(value), type)
        except UserError as error:
            return error
        except ArithmeticError:
            return NumericValueOutOfRange("numeric field overflow")
    return None


def text_of(error: Exception) -> str:
    """Return the failure of a row, as `data_error` encodes it, for an exception of its function.

    It follows from the row alone, so that it goes with the row. Of exceptions that nobody expected,
    the first of each kind is logged.
    """
    if isinstance(error, Failure):
        return error.text
    if isinstance(error, UserError):
        return data_error(error.sqlstate, error.message)
    last = traceback.extract_tb(error.__traceback__)[-1]
    kind = type(error).__name__, last.filename, last.lineno
    if kind not in _LOGGED:
        _LOGGED.add(kind)
        logger.error("a function has failed for a row", exc_info=error)
    return data_error("XX000", f"internal error: {kind[0]}")


def computed(compute: Callable[..., Any], rows: Any) -> tuple[list[Any], pa.Array | None]:
    """Return the results of `compute` for each of `rows` without None, and the errors if any."""
    values: list[Any] = []
    errors: list[str | None] = []
    failed = False
    for row in rows:
        value, error = None, None
        if None not in row:
            try:
                value = compute(*row)
            except (*OF_A_ROW, Failure, UserError) as fault:
                error, failed = text_of(fault), True
        values.append(value)
        errors.append(error)
    return values, pa.array(errors, pa.string()) if failed else None


class Mapped:
    """The kernel that applies `compute` to each row without NULLs."""

    def __init__(self, compute: Callable[..., Any]) -> None:
        self._compute = compute

    def __call__(self, types: Signature, *arrays: pa.Array) -> Outcome:
        """Return the column of results."""
        return rowwise(types, self._compute, *arrays)

    def one(self, types: Signature) -> Callable[..., Datum] | None:
        """Return the function of single data; None if data are not Arrow's Python values."""
        if not all(type.name in _AS_DATA for type in types.args):
            return None
        return single(self._compute, types.result)


def unchanged(datum: Datum) -> Datum:
    """Return a datum that is the same in the other type: who compiles a call leaves it out."""
    return datum


class WithSingle:
    """A kernel beside which `one` gives the function of single data; see `ScalarFunction.one`."""

    def __init__(self, kernel: Kernel, one: One) -> None:
        self._kernel = kernel
        self.one = one

    def __call__(self, types: Signature, *arrays: pa.Array) -> Outcome:
        """Return the column of results."""
        return self._kernel(types, *arrays)


def single(compute: Callable[..., Any], result: SqlType) -> Callable[..., Datum]:
    """Return the function of data that gives what a column of `compute` holds."""
    exact, bits = _AS_DATA.get(result.name), _BITS.get(result.name)

    def one(*data: Datum) -> Datum:
        value: Any = compute(*data)
        is_exact = type(value) is exact
        if not is_exact or (bits is not None and value.bit_length() > bits):
            value = from_array(to_array([value], result), result)[0]
        found: Datum = value
        return found

    return one


# Types whose data are Arrow's Python values, and the class of these.
_AS_DATA: dict[str, type] = {
    **dict.fromkeys(("text", "varchar", "name", "json", "jsonb"), str),
    **dict.fromkeys(("int2", "int4", "int8"), int),
    **dict.fromkeys(("bytea", "uuid"), bytes),
    "bool": bool,
    "float8": float,
}
_BITS = {"int2": 15, "int4": 31, "int8": 63}  # of the magnitude of all but the least integer


def mapped(compute: Callable[..., Any]) -> Mapped:
    """Return the kernel that applies `compute` to each row without NULLs."""
    return Mapped(compute)


def only_value(array: pa.Array) -> Any:
    """Return the value that all rows share; None if they differ or it is NULL."""
    if len(array) == 0 or array.null_count:
        return None
    first = array[0].as_py()
    if len(array) > 1 and len(array.unique()) > 1:
        return None
    return first
