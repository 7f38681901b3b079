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
    register, word, width, mask word and bit. Diffs are multiplied by `sign`. Of each failing row
    `noted` gets the number of the error's text, its place, and which CHECK found it.
    """
    count = len(times)
    size = 0
    failures = 0
    alive = np.empty(BLOCK, np.bool_)
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
                convert(code, to, a, b, c, d, rows, arena, starts, lengths, low, high, null, error)
        for i in range(rows):
            if not alive[i]:
                continue
            for k in range(out_words.shape[1]):
                out_words[size, k] = 0
            for k in range(len(outputs)):
                register = outputs[k, 0]
                word = outputs[k, 1]
                wide = outputs[k, 2] == 2
                if null[register, i]:
                    if outputs[k, 4] >= 0:
                        out_words[size, outputs[k, 3]] |= np.int64(1) << outputs[k, 4]
                else:
                    out_words[size, word] = low[register, i]
                    if wide:
                        out_words[size, word + 1] = high[register, i]
            out_times[size] = times[begin + i]
            out_diffs[size] = sign * diffs[begin + i]
            size += 1
    return size, failures
