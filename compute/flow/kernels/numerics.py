"""Instructions of programs: scaled numerics, quotients, and floats."""

import numpy as np

from foreshore.compute.flow.kernels.floats import operate
from foreshore.compute.flow.kernels.jit import inlined
from foreshore.compute.flow.kernels.opcodes import (
    DIVIDE,
    FLOAT,
    NULL_IF_ZERO,
    SCALE,
    SCALED_SUM,
    TO_FLOAT,
    WHOLE,
)
from foreshore.compute.flow.kernels.quotients import DIVIDED_BY_ZERO, DONE, LIMBS, divide
from foreshore.compute.flow.kernels.wide import multiply, scaled_sum

_GREATEST = np.int64(0x7FFFFFFFFFFFFFFF)


@inlined
def calculate_numerics(code, to, a, b, c, d, rows, constants, low, high, null, error):
    """Run an instruction over the rows of a block."""
    if code == SCALE:
        for i in range(rows):
            null[to, i], error[to, i] = null[a, i], error[a, i]
            x, y, large = multiply(low[a, i], high[a, i], constants[b, 0], constants[b, 1])
            if large:
                y = np.int64(-0x8000000000000000) if high[a, i] < 0 else _GREATEST
                x = np.int64(0) if high[a, i] < 0 else np.int64(-1)
            low[to, i], high[to, i] = x, y
    elif code == SCALED_SUM:
        for i in range(rows):
            null[to, i] = null[a, i] or null[b, i]
            error[to, i] = error[a, i] if error[a, i] != 0 else error[b, i]
            low[to, i], high[to, i] = 0, 0
            if not null[to, i] and error[to, i] == 0:
                x, y, large = scaled_sum(
                    low[a, i], high[a, i], low[b, i], high[b, i],
                    constants[c, 0], constants[c, 1],
                )  # fmt: skip
                low[to, i], high[to, i] = x, y
                if large:
                    null[to, i] = True
                    error[to, i] = d
    elif code == DIVIDE:
        work = np.empty((5, LIMBS), np.int64)
        scales = np.empty(5, np.int64)
        for k in range(5):
            scales[k] = (constants[c, 0] >> (8 * k)) & 255
        for i in range(rows):
            null[to, i] = null[a, i] or null[b, i]
            error[to, i] = error[a, i] if error[a, i] != 0 else error[b, i]
            low[to, i], high[to, i] = 0, 0
            if not null[to, i] and error[to, i] == 0:
                x, y, done = divide(low[a, i], high[a, i], low[b, i], high[b, i], scales, work)
                low[to, i], high[to, i] = x, y
                if done != DONE:
                    null[to, i] = True
                    error[to, i] = d if done == DIVIDED_BY_ZERO else constants[c, 1]
    elif code == NULL_IF_ZERO:
        for i in range(rows):
            low[to, i], high[to, i] = low[a, i], high[a, i]
            null[to, i] = null[a, i] or (low[a, i] == 0 and high[a, i] == 0)
            error[to, i] = error[a, i]
    elif code == WHOLE:
        for i in range(rows):
            null[to, i] = null[a, i] or null[b, i]
            error[to, i] = error[a, i] if error[a, i] != 0 else error[b, i]
            x, y = low[a, i], low[b, i]
            low[to, i], high[to, i] = 0, 0
            if null[to, i] or error[to, i] != 0:
                continue
            if y == 0:
                null[to, i] = True
                error[to, i] = c
            elif y == -1:
                if d == 0:  # -x, which may need 65 bits
                    low[to, i] = np.int64(np.uint64(0) - np.uint64(x))
                    high[to, i] = -1 if x > 0 else 0
            else:
                quotient = x // y
                if quotient < 0 and quotient * y != x:
                    quotient += 1
                value = quotient if d == 0 else x - quotient * y
                low[to, i] = value
                high[to, i] = value >> 63
    elif code == FLOAT:
        x_floats = low[a].view(np.float64)
        y_floats = low[b].view(np.float64)
        floats = low[to].view(np.float64)
        for i in range(rows):
            null[to, i] = null[a, i] or null[b, i]
            error[to, i] = error[a, i] if error[a, i] != 0 else error[b, i]
            low[to, i], high[to, i] = 0, 0
            if not null[to, i] and error[to, i] == 0:
                result, failed = operate(c, x_floats[i], y_floats[i])
                if failed >= 0:
                    null[to, i] = True
                    error[to, i] = constants[d, failed]
                else:
                    floats[i] = result
                    high[to, i] = low[to, i] >> 63
    elif code == TO_FLOAT:
        floats = low[to].view(np.float64)
        for i in range(rows):
            null[to, i], error[to, i] = null[a, i], error[a, i]
            floats[i] = np.float64(low[a, i])
            high[to, i] = low[to, i] >> 63
