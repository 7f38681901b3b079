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
"""

import numpy as np

from foreshore.compute.flow.kernels.jit import inlined, kernel
from foreshore.compute.flow.kernels.rows import compare_texts

BLOCK = 512

(
    LOAD, CONSTANT, GIVEN, EQUAL, NOT_EQUAL, LESS, LESS_OR_EQUAL, NOT, AND, OR, IS_NULL,
    IS_NOT_NULL, SELECT, COALESCE, ADD, SUBTRACT, MULTIPLY, RANGE, ERROR_OF, FLOAT_ORDER,
    TEXT_ORDER, DISTINCT, FILTER, FLOAT_KEY, HIGH, COMPLEMENT, UNSIGNED_LOW, NULL_RANK,
    CHECK, HIGH_PART, LOW_PART,
) = range(31)  # fmt: skip


@inlined
def _less(a_low, a_high, b_low, b_high):
    if a_high != b_high:
        return a_high < b_high
    return np.uint64(a_low) < np.uint64(b_low)


@inlined
def _multiply(a_low, a_high, b_low, b_high):
    """Return (low, high, whether the product exceeds 127 bits) of two signed values."""
    negative = (a_high < 0) != (b_high < 0)
    al, ah = np.uint64(a_low), np.uint64(a_high)
    if a_high < 0:
        al = ~al + np.uint64(1)
        ah = ~ah + np.uint64(1 if al == np.uint64(0) else 0)
    bl, bh = np.uint64(b_low), np.uint64(b_high)
    if b_high < 0:
        bl = ~bl + np.uint64(1)
        bh = ~bh + np.uint64(1 if bl == np.uint64(0) else 0)
    half, rest = np.uint64(32), np.uint64(0xFFFFFFFF)
    x0, x1 = al & rest, al >> half
    y0, y1 = bl & rest, bl >> half
    lowest = x0 * y0
    middle = x1 * y0 + (lowest >> half)
    other = x0 * y1 + (middle & rest)
    low = (other << half) | (lowest & rest)
    carry = x1 * y1 + (middle >> half) + (other >> half)
    too_large = ah != 0 and bh != 0
    cross = np.uint64(0)
    if ah != 0:
        cross = ah * bl
        too_large = too_large or (bl != 0 and cross // bl != ah)
    if bh != 0:
        cross = bh * al
        too_large = too_large or (al != 0 and cross // al != bh)
    high = carry + cross
    too_large = too_large or high < carry or np.int64(high) < 0
    if negative:
        low = ~low + np.uint64(1)
        high = ~high + np.uint64(1 if low == np.uint64(0) else 0)
    return np.int64(low), np.int64(high), too_large


@inlined
def _parts(low, high, unit_low, unit_high):
    """Return x div unit and x mod unit, two words each, truncated towards zero; unit > 0."""
    negative = high < 0
    xl, xh = np.uint64(low), np.uint64(high)
    if negative:
        xl = ~xl + np.uint64(1)
        xh = ~xh + np.uint64(1 if xl == np.uint64(0) else 0)
    ul, uh = np.uint64(unit_low), np.uint64(unit_high)
    if xh < uh or (xh == uh and xl < ul):
        return np.int64(0), np.int64(0), low, high
    ql, qh = np.uint64(0), np.uint64(0)
    rl, rh = np.uint64(0), np.uint64(0)
    one = np.uint64(1)
    for bit in range(127, -1, -1):
        rh = (rh << one) | (rl >> np.uint64(63))
        if bit >= 64:
            rl = (rl << one) | ((xh >> np.uint64(bit - 64)) & one)
        else:
            rl = (rl << one) | ((xl >> np.uint64(bit)) & one)
        if rh > uh or (rh == uh and rl >= ul):
            borrow = one if rl < ul else np.uint64(0)
            rl -= ul
            rh = rh - uh - borrow
            if bit >= 64:
                qh |= one << np.uint64(bit - 64)
            else:
                ql |= one << np.uint64(bit)
    if negative:
        ql = ~ql + one
        qh = ~qh + np.uint64(1 if ql == np.uint64(0) else 0)
        rl = ~rl + one
        rh = ~rh + np.uint64(1 if rl == np.uint64(0) else 0)
    return np.int64(ql), np.int64(qh), np.int64(rl), np.int64(rh)


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
            elif code <= LESS_OR_EQUAL or code == DISTINCT:
                for i in range(rows):
                    same = low[a, i] == low[b, i] and high[a, i] == high[b, i]
                    if code == EQUAL:
                        value = same
                    elif code == NOT_EQUAL:
                        value = not same
                    elif code == LESS:
                        value = _less(low[a, i], high[a, i], low[b, i], high[b, i])
                    elif code == LESS_OR_EQUAL:
                        value = same or _less(low[a, i], high[a, i], low[b, i], high[b, i])
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
                        x, y, large = _multiply(low[a, i], high[a, i], low[b, i], high[b, i])
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
                            _less(low[a, i], high[a, i], constants[b, 0], constants[b, 1])
                            or _less(constants[c, 0], constants[c, 1], low[a, i], high[a, i])
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
                    high_low, high_high, low_low, low_high = _parts(
                        low[a, i], high[a, i], constants[b, 0], constants[b, 1]
                    )
                    if code == HIGH_PART:
                        low[to, i], high[to, i] = high_low, high_high
                    else:
                        low[to, i], high[to, i] = low_low, low_high
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
