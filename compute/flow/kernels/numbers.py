"""Instructions of programs: arithmetic of integers of 128 bits, and their parts."""

import numpy as np

from foreshore.compute.flow.kernels.jit import inlined
from foreshore.compute.flow.kernels.opcodes import (
    ADD,
    HIGH_PART,
    LOW_PART,
    MULTIPLY,
    RANGE,
    ROUND,
    SUBTRACT,
)
from foreshore.compute.flow.kernels.wide import less, multiply, parts, rounded


@inlined
def calculate(code, to, a, b, c, d, rows, constants, low, high, null, error):
    """Run an instruction over the rows of a block."""
    if code == ADD or code == SUBTRACT:
        for i in range(rows):
            x, y = np.uint64(low[a, i]), np.uint64(low[b, i])
            if code == ADD:
                z = x + y
                low[to, i] = np.int64(z)
                high[to, i] = high[a, i] + high[b, i] + (1 if z < x else 0)
            else:
                low[to, i] = np.int64(x - y)
                high[to, i] = high[a, i] - high[b, i] - (1 if x < y else 0)
            null[to, i] = null[a, i] or null[b, i]
            error[to, i] = error[a, i] if error[a, i] != 0 else error[b, i]
    elif code == MULTIPLY:
        for i in range(rows):
            null[to, i] = null[a, i] or null[b, i]
            error[to, i] = error[a, i] if error[a, i] != 0 else error[b, i]
            low[to, i], high[to, i] = 0, 0
            if not null[to, i] and error[to, i] == 0:
                x, y, large = multiply(low[a, i], high[a, i], low[b, i], high[b, i])
                low[to, i], high[to, i] = x, y
                if large:
                    null[to, i] = True
                    error[to, i] = c
    elif code == RANGE:
        for i in range(rows):
            low[to, i], high[to, i] = low[a, i], high[a, i]
            null[to, i], error[to, i] = null[a, i], error[a, i]
            if (
                not null[a, i]
                and error[a, i] == 0
                and (
                    less(low[a, i], high[a, i], constants[b, 0], constants[b, 1])
                    or less(constants[c, 0], constants[c, 1], low[a, i], high[a, i])
                )
            ):
                null[to, i] = True
                error[to, i] = d
    elif code == ROUND:
        for i in range(rows):
            null[to, i], error[to, i] = null[a, i], error[a, i]
            low[to, i], high[to, i] = rounded(
                low[a, i], high[a, i], constants[b, 0], constants[b, 1], c
            )
    elif code == HIGH_PART or code == LOW_PART:
        for i in range(rows):
            null[to, i], error[to, i] = null[a, i], error[a, i]
            high_low, high_high, low_low, low_high = parts(
                low[a, i], high[a, i], constants[b, 0], constants[b, 1]
            )
            if code == HIGH_PART:
                low[to, i], high[to, i] = high_low, high_high
            else:
                low[to, i], high[to, i] = low_low, low_high
