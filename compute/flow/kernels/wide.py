"""Integers of 128 bits in two words: comparison, products, quotients."""

import numpy as np

from foreshore.compute.flow.kernels.jit import inlined


@inlined
def less(a_low, a_high, b_low, b_high):
    """Whether one signed value is less than another."""
    if a_high != b_high:
        return a_high < b_high
    return np.uint64(a_low) < np.uint64(b_low)


@inlined
def multiply(a_low, a_high, b_low, b_high):
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
def parts(low, high, unit_low, unit_high):
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


_MOST = 1.5e38  # less than 127 bits hold, and more than a numeric


@inlined
def scaled_sum(a_low, a_high, b_low, b_high, power_low, power_high):
    """Return (low, high, whether it exceeds any numeric) of a times a power of ten plus b.

    The product alone may be larger than the words hold; their sum is then right again.
    """
    word = 18446744073709551616.0
    a = np.float64(a_high) * word + np.float64(np.uint64(a_low))
    b = np.float64(b_high) * word + np.float64(np.uint64(b_low))
    power = np.float64(power_high) * word + np.float64(np.uint64(power_low))
    if abs(a * power + b) > _MOST:
        return np.int64(0), np.int64(0), True
    low, high, _ = multiply(a_low, a_high, power_low, power_high)
    total = np.uint64(low) + np.uint64(b_low)
    carry = 1 if total < np.uint64(low) else 0
    return np.int64(total), high + b_high + carry, False


HALF_AWAY, DOWN, CEILING, FLOOR = range(4)  # modes of rounding


@inlined
def rounded(low, high, unit_low, unit_high, mode):
    """Return a value divided by a unit and rounded: half away from zero, or in a direction."""
    low, high, rest_low, rest_high = parts(low, high, unit_low, unit_high)
    if (rest_low == 0 and rest_high == 0) or mode == DOWN:
        return low, high
    up = mode == CEILING
    if mode == HALF_AWAY:
        # The rest and its double are below the unit's double, so they fit.
        up = rest_high >= 0
        if not up:
            negated = ~np.uint64(rest_low) + np.uint64(1)
            rest_high = ~rest_high + (1 if negated == np.uint64(0) else 0)
            rest_low = np.int64(negated)
        double_low = np.uint64(rest_low) << np.uint64(1)
        double_high = (rest_high << 1) | np.int64(np.uint64(rest_low) >> np.uint64(63))
        if less(np.int64(double_low), double_high, unit_low, unit_high):
            return low, high
    elif up != (rest_high >= 0):
        return low, high
    if up:
        total = np.uint64(low) + np.uint64(1)
        return np.int64(total), high + (1 if total == np.uint64(0) else 0)
    total = np.uint64(low) - np.uint64(1)
    return np.int64(total), high - (1 if low == 0 else 0)
