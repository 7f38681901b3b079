"""Arithmetic of floats, with the errors of `foreshore/expr/functions/floats.py`."""

import numpy as np

from foreshore.compute.flow.kernels.jit import inlined

ADD, SUBTRACT, MULTIPLY, DIVIDE, AVERAGE = range(5)
OVERFLOW, UNDERFLOW, DIVIDED_BY_ZERO = range(3)


@inlined
def operate(operation, x, y):
    """Return the result, its NaN always the same, and the error's number or -1.

    An average has no errors.
    """
    if operation == ADD:
        result = x + y
    elif operation == SUBTRACT:
        result = x - y
    elif operation == MULTIPLY:
        result = x * y
    elif y == 0 and not np.isnan(x):
        return 0.0, DIVIDED_BY_ZERO
    else:
        result = x / y
    if np.isnan(result):
        return np.nan, -1
    if operation == AVERAGE:
        return result, -1
    if np.isinf(result) and not np.isinf(x) and not np.isinf(y):
        return 0.0, OVERFLOW
    if result == 0 and x != 0:
        if operation == MULTIPLY and y != 0:
            return 0.0, UNDERFLOW
        if operation == DIVIDE and not np.isinf(y):
            return 0.0, UNDERFLOW
    return result, -1
