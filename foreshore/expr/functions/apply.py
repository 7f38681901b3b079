"""Runs kernels over columns, with the error of each row that fails.

An exception of a kernel that follows from a row is the error of that row. A kernel that computes
row by row says so itself (`rows.computed`). One that computes whole columns raises it for all rows.
Then it is run again over halves of the rows, down to the rows for which it raises:

    kernel(1 2 0 4)  raises      kernel(1 2)  gives values      kernel(0)  raises

The text of a row's error is that of the kernel run over this row alone. So it is the same wherever
the row is computed, and goes with the row. Functions in Python and volatile ones are not run twice.
"""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.errors import DataError, UserError
from foreshore.expr.functions.function import ScalarFunction, Signature
from foreshore.expr.functions.lengths import require_room_for
from foreshore.expr.functions.rows import OF_A_ROW, Failure, text_of
from foreshore.python_functions.definition import is_python
from foreshore.types import arrow_type

Outcome = tuple[pa.Array, pa.Array | None]  # values, and errors if a row fails


def apply(function: ScalarFunction, signature: Signature, arrays: Sequence[pa.Array]) -> Outcome:
    """Run the kernel; return results and errors, both with strictness applied.

    Raises OutOfMemory if the results would be longer than what the query may hold, and the error of
    a row if it is of a function that cannot fail.
    """
    require_room_for(function.name, arrays)
    found: Outcome | None = None
    try:
        found = _run(function, signature, arrays)
    except (*OF_A_ROW, Failure, UserError):
        if not arrays or not _may_run_again(function, signature):
            raise
    values, errors = found or _by_halves(function, signature, arrays)
    if function.strict and any(array.null_count for array in arrays):
        valid = arrays[0].is_valid()
        for array in arrays[1:]:
            if array.null_count:
                valid = pc.and_(valid, array.is_valid())
        values = pc.if_else(valid, values, pa.scalar(None, values.type))
        if errors is not None:
            errors = _none_if_empty(pc.if_else(valid, errors, pa.scalar(None, pa.string())))
    if errors is not None:
        errors = _with_only_text(function, signature, errors)
    return values, errors


def _with_only_text(function: ScalarFunction, signature: Signature, errors: pa.Array) -> pa.Array:
    """Return errors with the text that engines give which find them by a NULL result."""
    if not function.may_fail(signature):
        raise DataError.parse(pc.min(errors).as_py())  # nobody would look for it
    only = function.only_error(signature)
    if only is None:
        return errors
    return pc.if_else(errors.is_valid(), pa.scalar(only), pa.scalar(None, pa.string()))


def _run(function: ScalarFunction, signature: Signature, arrays: Sequence[pa.Array]) -> Outcome:
    outcome = function.kernel(signature, *arrays)
    values, errors = outcome if isinstance(outcome, tuple) else (outcome, None)
    return values, _none_if_empty(errors)


def _none_if_empty(errors: pa.Array | None) -> pa.Array | None:
    return None if errors is None or errors.null_count == len(errors) else errors


def _may_run_again(function: ScalarFunction, signature: Signature) -> bool:
    """Whether the function's exceptions can be errors of rows, which a second run finds."""
    return (
        function.volatility != "volatile"
        and not is_python(function.key)
        and function.may_fail(signature)
    )


def _by_halves(
    function: ScalarFunction, signature: Signature, arrays: Sequence[pa.Array]
) -> Outcome:
    """Return values and errors of a kernel that raises for some of the rows."""
    values: list[pa.Array] = []
    errors: list[pa.Array] = []
    waiting = [(0, len(arrays[0]))]
    while waiting:
        start, end = waiting.pop()
        size = end - start
        # Copies: of a slice, `values` of an array are those of all rows.
        part = [pa.concat_arrays([each.slice(start, size)]) for each in arrays]
        try:
            found, failed = _run(function, signature, part)
        except (*OF_A_ROW, Failure, UserError) as error:
            if size > 1:
                half = start + size // 2
                waiting += [(half, end), (start, half)]
                continue
            found = pa.nulls(size, arrow_type(signature.result))
            failed = pa.array([text_of(error)] * size, pa.string())
        values.append(found)
        errors.append(pa.nulls(size, pa.string()) if failed is None else failed)
    return pa.concat_arrays(values), _none_if_empty(pa.concat_arrays(errors))
