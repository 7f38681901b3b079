"""Exact sums of floats: integers of `WORDS` words, in units of 2**-FRACTION.

Floats of magnitudes between 2**-107 and 2**159, and 0, are added without error, so a sum does not
depend on the order and a deletion takes away what the insertion added. The others, infinities and
NaN among them, are *outliers*, which are not added here (`compute/flow/float_sums.py`).
"""

import numpy as np

from foreshore.compute.flow.kernels.jit import inlined, kernel
from foreshore.compute.flow.kernels.wide import multiply

WORDS = 6  # 64 bits more than the greatest float needs, for multiplicities
FRACTION = 160
PRODUCT_WORDS = 11  # of sums of products, in units of 2**(-2 * FRACTION)
LEAST_EXPONENT = 1075 - FRACTION  # as in the bits of a float
GREATEST_EXPONENT = LEAST_EXPONENT + 266
_MANTISSA = (1 << 52) - 1


@inlined
def is_outlier(bits):
    """Whether a float, given as its bits, cannot be added."""
    exponent = (bits >> 52) & 0x7FF
    if exponent == 0:
        return bits & _MANTISSA != 0
    return exponent < LEAST_EXPONENT or exponent > GREATEST_EXPONENT


@inlined
def _add_at(sums, row, first, words, low, high, place):
    """Add a signed integer of two words times 2**place to the sum in `words` words of a row."""
    word, shift = place >> 6, np.uint64(place & 63)
    extension = high >> 63
    if shift == np.uint64(0):
        middle, top = high, extension
    else:
        rest = np.uint64(64) - shift
        middle = np.int64((np.uint64(low) >> rest) | (np.uint64(high) << shift))
        top = high >> np.int64(rest)
    bottom = np.uint64(low) << shift
    carry = np.uint64(0)
    for k in range(word, words):
        if k == word:
            added = bottom
        elif k == word + 1:
            added = np.uint64(middle)
        elif k == word + 2:
            added = np.uint64(top)
        else:
            added = np.uint64(extension)
        before = np.uint64(sums[row, first + k])
        total = before + added
        over = total < before
        total += carry
        carry = np.uint64(1 if over or total < carry else 0)
        sums[row, first + k] = np.int64(total)


@inlined
def _negated(low, high):
    negated = ~np.uint64(low) + np.uint64(1)
    return np.int64(negated), ~high + (1 if negated == np.uint64(0) else 0)


@inlined
def add_float(sums, row, first, bits, diff):
    """Add a float `diff` times to the sum in words `first` and following of a row."""
    exponent = (bits >> 52) & 0x7FF
    if exponent == 0:
        return
    low, high, _ = multiply((bits & _MANTISSA) | (1 << 52), 0, diff, np.int64(diff) >> 63)
    if bits < 0:
        low, high = _negated(low, high)
    _add_at(sums, row, first, WORDS, low, high, exponent - LEAST_EXPONENT)


@inlined
def add_product(sums, row, first, x, y, diff):
    """Add the product of two floats `diff` times to the sum of `PRODUCT_WORDS` words of a row."""
    exponent, other = (x >> 52) & 0x7FF, (y >> 52) & 0x7FF
    if exponent == 0 or other == 0:
        return
    low, high, _ = multiply((x & _MANTISSA) | (1 << 52), 0, (y & _MANTISSA) | (1 << 52), 0)
    if ((x < 0) != (y < 0) and diff > 0) or ((x < 0) == (y < 0) and diff < 0):
        low, high = _negated(low, high)
    place = exponent + other - 2 * LEAST_EXPONENT
    left = np.uint64(diff if diff > 0 else -diff)
    while left != np.uint64(0):
        if left & np.uint64(1) != np.uint64(0):
            _add_at(sums, row, first, PRODUCT_WORDS, low, high, place)
        left >>= np.uint64(1)
        place += 1


@kernel
def round_sums(sums, first, out):
    """Set `out` to the bits of the float nearest to each sum, of equally near ones the even."""
    size = np.empty(WORDS, np.uint64)
    for i in range(len(sums)):
        negative = sums[i, first + WORDS - 1] < 0
        carry = np.uint64(1 if negative else 0)
        highest = -1
        for k in range(WORDS):
            word = np.uint64(sums[i, first + k])
            if negative:
                word = ~word + carry
                carry = np.uint64(1 if carry != np.uint64(0) and word == np.uint64(0) else 0)
            size[k] = word
            if word != np.uint64(0):
                highest = k
        if highest < 0:
            out[i] = 0
            continue
        top = size[highest]
        bit = 63
        while top >> np.uint64(bit) == np.uint64(0):
            bit -= 1
        left = np.uint64(63 - bit)
        # The 64 bits from the highest on, and whether there is anything below.
        below = size[highest - 1] if highest > 0 else np.uint64(0)
        if left != np.uint64(0):
            top = (top << left) | (below >> (np.uint64(64) - left))
            below = below << left
        sticky = below != np.uint64(0)
        for k in range(highest - 1):
            sticky = sticky or size[k] != np.uint64(0)
        mantissa = np.int64(top >> np.uint64(11))
        half = np.int64(top & np.uint64(0x7FF))
        exponent = 64 * highest + bit - FRACTION + 1023
        bits = (np.int64(exponent) << 52) | (mantissa & _MANTISSA)
        if half > 0x400 or (half == 0x400 and (sticky or mantissa & 1 != 0)):
            bits += 1  # which carries over into the exponent
        if negative:
            bits = bits | np.int64(-0x8000000000000000)
        out[i] = bits
