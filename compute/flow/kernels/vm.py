"""The kernel of linear programs: evaluates compiled scalars over rows in words.

A program (`compute/flow/program.py`) is a list of instructions over registers. A register holds for
each row of a block a value of 128 bits (`low`, `high`), whether it is NULL, and the number of its
error's text, 0 if it has none. Each instruction runs over a whole block before the next.

    instruction      a, b, c, d
    LOAD             word, mask word, bit (-1: never NULL), width
    CONSTANT         place in the constants
    GIVEN            place in the given values, which are evaluated elsewhere
    comparisons, arithmetic, logic: the registers of the operands
    RANGE            register, place of the least value, of the greatest, error
    SCALE            register, place of a power of ten; a product that is too large is the greatest
    SCALED_SUM       registers, place of a power of ten for the first, error
    DIVIDE           registers, place of (scales packed, overflow's error), error of a zero divisor
    WHOLE            registers, error of a zero divisor, 1 for the remainder
    FLOAT            registers, operation, place of the errors (overflow, underflow, zero divisor)
    FIELD            register of a time, field, 1 for a date, error of an infinite time or 0
    TRUNCATE         register of a timestamp, field
"""

import numpy as np

from foreshore.compute.flow.kernels.calendar import field_of, truncated
from foreshore.compute.flow.kernels.floats import operate
from foreshore.compute.flow.kernels.jit import kernel
from foreshore.compute.flow.kernels.quotients import DIVIDED_BY_ZERO, DONE, LIMBS, divide
from foreshore.compute.flow.kernels.rows import compare_texts
from foreshore.compute.flow.kernels.wide import less, multiply, parts, scaled_sum

BLOCK = 512

(
    LOAD, CONSTANT, GIVEN, EQUAL, NOT_EQUAL, LESS, LESS_OR_EQUAL, NOT, AND, OR, IS_NULL,
    IS_NOT_NULL, SELECT, COALESCE, ADD, SUBTRACT, MULTIPLY, RANGE, ERROR_OF, FLOAT_ORDER,
    TEXT_ORDER, DISTINCT, FILTER, FLOAT_KEY, HIGH, COMPLEMENT, UNSIGNED_LOW, NULL_RANK,
    CHECK, HIGH_PART, LOW_PART, SCALE, DIVIDE, NULL_IF_ZERO, WHOLE, FLOAT, TO_FLOAT, FIELD,
    TRUNCATE, SCALED_SUM,
) = range(40)  # fmt: skip
_GREATEST = np.int64(0x7FFFFFFFFFFFFFFF)


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
    work = np.empty((5, LIMBS), np.int64)
    scales = np.empty(5, np.int64)
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
            elif code <= LESS_OR_EQUAL or code == DISTINCT:
                for i in range(rows):
                    same = low[a, i] == low[b, i] and high[a, i] == high[b, i]
                    if code == EQUAL:
                        value = same
                    elif code == NOT_EQUAL:
                        value = not same
                    elif code == LESS:
                        value = less(low[a, i], high[a, i], low[b, i], high[b, i])
                    elif code == LESS_OR_EQUAL:
                        value = same or less(low[a, i], high[a, i], low[b, i], high[b, i])
                    else:
                        value = null[a, i] != null[b, i] or (not null[a, i] and not same)
                    low[to, i] = value
                    high[to, i] = 0
                    null[to, i] = code != DISTINCT and (null[a, i] or null[b, i])
                    error[to, i] = error[a, i] if error[a, i] != 0 else error[b, i]
                    if error[to, i] != 0:
                        null[to, i] = True
            elif code == NOT:
                for i in range(rows):
                    low[to, i] = 1 - low[a, i]
                    high[to, i] = 0
                    null[to, i] = null[a, i]
                    error[to, i] = error[a, i]
            elif code == AND or code == OR:
                decisive = 1 if code == OR else 0
                for i in range(rows):
                    x = not null[a, i] and error[a, i] == 0 and low[a, i] == decisive
                    y = not null[b, i] and error[b, i] == 0 and low[b, i] == decisive
                    decided = x or y
                    failed = error[a, i] if error[a, i] != 0 else error[b, i]
                    unknown = null[a, i] or null[b, i]
                    high[to, i] = 0
                    error[to, i] = 0 if decided else failed
                    null[to, i] = not decided and (unknown or failed != 0)
                    low[to, i] = decisive if decided else 1 - decisive
            elif code == IS_NULL or code == IS_NOT_NULL:
                for i in range(rows):
                    low[to, i] = null[a, i] == (code == IS_NULL)
                    high[to, i] = 0
                    error[to, i] = error[a, i]
                    null[to, i] = error[a, i] != 0
            elif code == SELECT or code == COALESCE:
                for i in range(rows):
                    if code == SELECT:
                        failed = error[a, i]
                        pick = b if not null[a, i] and low[a, i] == 1 else c
                    else:
                        failed = error[a, i]
                        pick = b if null[a, i] else a
                    if failed != 0:
                        low[to, i], high[to, i], null[to, i] = 0, 0, True
                        error[to, i] = failed
                    else:
                        low[to, i], high[to, i] = low[pick, i], high[pick, i]
                        null[to, i] = null[pick, i]
                        error[to, i] = error[pick, i]
            elif code == ADD or code == SUBTRACT:
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
            elif code == ERROR_OF:
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
            elif code == SCALE:
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
                for k in range(5):
                    scales[k] = (constants[c, 0] >> (8 * k)) & 255
                for i in range(rows):
                    null[to, i] = null[a, i] or null[b, i]
                    error[to, i] = error[a, i] if error[a, i] != 0 else error[b, i]
                    low[to, i], high[to, i] = 0, 0
                    if not null[to, i] and error[to, i] == 0:
                        x, y, done = divide(
                            low[a, i], high[a, i], low[b, i], high[b, i], scales, work
                        )
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
                    low[to, i] = truncated(b, low[a, i])
                    high[to, i] = low[to, i] >> 63
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
