"""Instructions of programs: words by which values are ordered or compared, and fields of times."""

import numpy as np

from foreshore.compute.flow.kernels.calendar import FIRST, bin_of, field_of, truncated
from foreshore.compute.flow.kernels.jit import inlined
from foreshore.compute.flow.kernels.opcodes import (
    BIN,
    COMPLEMENT,
    ERROR_OF,
    FIELD,
    FLOAT_KEY,
    FLOAT_ORDER,
    HIGH,
    NULL_RANK,
    TEXT_ORDER,
    TRUNCATE,
    UNSIGNED_LOW,
)
from foreshore.compute.flow.kernels.rows import compare_texts


@inlined
def convert(code, to, a, b, c, d, rows, constants, arena, starts, lengths, low, high, null, error):
    """Run an instruction over the rows of a block."""
    if code == ERROR_OF:
        for i in range(rows):
            low[to, i] = error[a, i]
            high[to, i] = 0
            null[to, i] = error[a, i] == 0
            error[to, i] = 0
    elif code == FLOAT_ORDER or code == FLOAT_KEY:
        least = np.int64(-0x8000000000000000)
        for i in range(rows):
            bits = low[a, i]
            if bits == least:  # -0.0
                bits = np.int64(0)
            if code == FLOAT_ORDER and bits < 0:
                bits = bits ^ np.int64(0x7FFFFFFFFFFFFFFF)
            low[to, i] = bits
            high[to, i] = bits >> 63
            null[to, i], error[to, i] = null[a, i], error[a, i]
    elif code == TEXT_ORDER:
        for i in range(rows):
            null[to, i] = null[a, i] or null[b, i]
            error[to, i] = error[a, i] if error[a, i] != 0 else error[b, i]
            order = 0
            if not null[to, i]:
                order = compare_texts(low[a, i], low[b, i], arena, starts, lengths)
            low[to, i] = order
            high[to, i] = np.int64(order) >> 63
    elif code == HIGH or code == COMPLEMENT or code == UNSIGNED_LOW:
        # The high word; the order reversed; the low word as one that orders as unsigned.
        for i in range(rows):
            if code == HIGH:
                value = high[a, i]
            elif code == COMPLEMENT:
                value = ~low[a, i]
            else:
                value = low[a, i] ^ np.int64(-0x8000000000000000)
            low[to, i] = value
            high[to, i] = value >> 63
            null[to, i], error[to, i] = null[a, i], error[a, i]
    elif code == NULL_RANK:
        # Words that order NULLs: `b` for a NULL, 0 for others; and 0 in place of a NULL.
        for i in range(rows):
            low[to, i] = b if null[a, i] else 0
            high[to, i] = low[to, i] >> 63
            null[to, i], error[to, i] = False, error[a, i]
    elif code == FIELD:
        for i in range(rows):
            null[to, i], error[to, i] = null[a, i], error[a, i]
            low[to, i], high[to, i] = 0, 0
            if not null[a, i] and error[a, i] == 0:
                value, finite = field_of(b, low[a, i], c == 1)
                low[to, i], high[to, i] = value, value >> 63
                if not finite:
                    null[to, i] = True
                    error[to, i] = d
    elif code == TRUNCATE:
        for i in range(rows):
            null[to, i], error[to, i] = null[a, i], error[a, i]
            value = truncated(b, low[a, i])
            if value < FIRST and value != low[a, i] and not null[a, i]:
                null[to, i], error[to, i] = True, c
                value = np.int64(0)
            low[to, i], high[to, i] = value, value >> 63
    elif code == BIN:
        for i in range(rows):
            null[to, i], error[to, i] = null[a, i], error[a, i]
            low[to, i], high[to, i] = 0, 0
            if not null[a, i] and error[a, i] == 0:
                value, failed = bin_of(low[a, i], constants[b, 0], constants[b, 1])
                low[to, i], high[to, i] = value, value >> 63
                if failed > 0:
                    null[to, i] = True
                    error[to, i] = constants[c, failed - 1]
