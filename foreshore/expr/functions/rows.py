"""Kernels that compute row by row, and failures of single rows."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from foreshore.errors import DatabaseError, data_error
from foreshore.expr.datum import to_array
from foreshore.expr.functions.function import Outcome, Signature
from foreshore.types import SqlType

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

    `compute` returns data. A `Failure` or a `DatabaseError` fails the row.
    """
    return collect(types, compute, zip(*(array.to_pylist() for array in arrays), strict=True))


def collect(types: Signature, compute: Callable[..., Any], rows: Any) -> Outcome:
    """Apply `compute` to each of `rows` without None."""
    values, errors = computed(compute, rows)
    result = to_array(values, types.result)
    return result if errors is None else (result, errors)


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
            except Failure as failure:
                error, failed = failure.text, True
            except DatabaseError as fault:
                error, failed = data_error(fault.sqlstate, fault.message), True
        values.append(value)
        errors.append(error)
    return values, pa.array(errors, pa.string()) if failed else None


def mapped(compute: Callable[..., Any]) -> Callable[..., Outcome]:
    """Return the kernel that applies `compute` to each row without NULLs."""
    return lambda types, *arrays: rowwise(types, compute, *arrays)


def only_value(array: pa.Array) -> Any:
    """Return the value that all rows share; None if they differ or it is NULL."""
    if len(array) == 0 or array.null_count:
        return None
    first = array[0].as_py()
    if len(array) > 1 and len(array.unique()) > 1:
        return None
    return first
