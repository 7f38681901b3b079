"""The kernel of linear programs: evaluates compiled scalars over rows in words.

A program (`compute/flow/program.py`) is a list of instructions over registers. A register holds for
each row of a block a value of 128 bits (`low`, `high`), whether it is NULL, and the number of its
error's text, 0 if it has none. Each instruction (`opcodes.py`) runs over a whole block before the
next.
"""

import numpy as np

from foreshore.compute.flow.kernels.forms import convert
from foreshore.compute.flow.kernels.jit import kernel
from foreshore.compute.flow.kernels.logic import decide
from foreshore.compute.flow.kernels.numbers import calculate
from foreshore.compute.flow.kernels.numerics import calculate_numerics
from foreshore.compute.flow.kernels.opcodes import (
    BLOCK,
    CHECK,
    COALESCE,
    CONSTANT,
    FILTER,
    GIVEN,
    LOAD,
    LOW_PART,
    TO_FLOAT,
)


@kernel
def run(
    program, words, times, diffs, sign, constants, given, given_null, given_error,
    arena, starts, lengths, low, high, null, error, outputs, out_words, out_times, out_diffs,
    noted,
):  # fmt: skip
    """Run a program; return how many rows came out, and how many failed.

    `constants` and `given` have two words for each value; `outputs` has for each column its
    register, word, width, mask word and bit; where the register is -1, also the word, mask word and
    bit in the input from which it is copied. Diffs are multiplied by `sign`. Of each failing row
    `noted` gets the number of the error's text, its place, and which CHECK found it.
    """
    count = len(times)
    size = 0
    failures = 0
    alive = np.empty(BLOCK, np.bool_)
    places = np.empty(BLOCK, np.int64)
    for begin in range(0, count, BLOCK):
        rows = min(BLOCK, count - begin)
        alive[:rows] = True
        for step in range(len(program)):
            code = program[step, 0]
            to = program[step, 1]
            a = program[step, 2]
            b = program[step, 3]
            c = program[step, 4]
            d = program[step, 5]
            if code == LOAD:
                for i in range(rows):
                    value = words[begin + i, a]
                    low[to, i] = value
                    high[to, i] = words[begin + i, a + 1] if d == 2 else value >> 63
                    error[to, i] = 0
                    null[to, i] = c >= 0 and (words[begin + i, b] >> c) & 1 != 0
            elif code == CONSTANT:
                for i in range(rows):
                    low[to, i] = constants[a, 0]
                    high[to, i] = constants[a, 1]
                    null[to, i] = constants[a, 2] != 0
                    error[to, i] = 0
            elif code == GIVEN:
                for i in range(rows):
                    low[to, i] = given[a, begin + i, 0]
                    high[to, i] = given[a, begin + i, 1]
                    null[to, i] = given_null[a, begin + i]
                    error[to, i] = given_error[a, begin + i]
            elif code == FILTER:
                for i in range(rows):
                    if null[a, i] or error[a, i] != 0 or low[a, i] != 1:
                        alive[i] = False
            elif code == CHECK:
                for i in range(rows):
                    if alive[i] and error[a, i] != 0:
                        alive[i] = False
                        noted[failures, 0] = error[a, i]
                        noted[failures, 1] = begin + i
                        noted[failures, 2] = b
                        failures += 1
            elif code <= COALESCE:
                decide(code, to, a, b, c, rows, low, high, null, error)
            elif code <= LOW_PART:
                calculate(code, to, a, b, c, d, rows, constants, low, high, null, error)
            elif code <= TO_FLOAT:
                calculate_numerics(code, to, a, b, c, d, rows, constants, low, high, null, error)
            else:
                convert(
                    code, to, a, b, c, d, rows, constants, arena, starts, lengths,
                    low, high, null, error,
                )  # fmt: skip
        kept = 0
        for i in range(rows):
            places[kept] = i
            kept += alive[i]
        for p in range(kept):
            out_times[size + p] = times[begin + places[p]]
            out_diffs[size + p] = sign * diffs[begin + places[p]]
        out_words[size : size + kept] = 0
        for k in range(len(outputs)):
            register, word, mask, bit = outputs[k, 0], outputs[k, 1], outputs[k, 3], outputs[k, 4]
            if register < 0:
                for part in range(outputs[k, 2]):
                    source = outputs[k, 5] + part
                    for p in range(kept):
                        out_words[size + p, word + part] = words[begin + places[p], source]
                source, null_bit = outputs[k, 6], outputs[k, 7]
                if bit >= 0 and null_bit >= 0:
                    for p in range(kept):
                        is_null = (words[begin + places[p], source] >> null_bit) & 1
                        out_words[size + p, mask] |= is_null << bit
                continue
            for p in range(kept):
                i = places[p]
                if not null[register, i]:
                    out_words[size + p, word] = low[register, i]
                elif bit >= 0:
                    out_words[size + p, mask] |= np.int64(1) << bit
            if outputs[k, 2] == 2:
                for p in range(kept):
                    if not null[register, places[p]]:
                        out_words[size + p, word + 1] = high[register, places[p]]
        size += kept
    return size, failures
