"""Division of numerics, with PostgreSQL's digits (`foreshore/expr/functions/quotients.py`).

A numeric is an integer of 128 bits and a scale. Quotients are computed over limbs of 30 bits, the
lowest first, so that products of two limbs fit into a word.
"""

import numpy as np

from foreshore.compute.flow.kernels.jit import inlined

LIMBS = 20  # enough for 38 digits times 10**114
_BITS = 30
_BASE = 1 << _BITS
_MASK = _BASE - 1
_NINE = 10**9
_POWERS = np.array([10**i for i in range(19)], np.int64)
_LEAST_SIGNIFICANT = 10**9  # 10 digits

DONE, LACKS_DIGITS, DIVIDED_BY_ZERO = 0, 1, 2


@inlined
def set_limbs(limbs, low, high):
    """Set limbs to the absolute value of a signed integer of 128 bits; return their number."""
    xl, xh = np.uint64(low), np.uint64(high)
    if high < 0:
        xl = ~xl + np.uint64(1)
        xh = ~xh + np.uint64(1 if xl == np.uint64(0) else 0)
    mask = np.uint64(_MASK)
    limbs[0] = np.int64(xl & mask)
    limbs[1] = np.int64((xl >> np.uint64(30)) & mask)
    limbs[2] = np.int64(((xl >> np.uint64(60)) | (xh << np.uint64(4))) & mask)
    limbs[3] = np.int64((xh >> np.uint64(26)) & mask)
    limbs[4] = np.int64(xh >> np.uint64(56))
    size = 5
    while size > 0 and limbs[size - 1] == 0:
        size -= 1
    return size


@inlined
def times_power(limbs, size, exponent):
    """Multiply limbs by 10**exponent; return their number."""
    while exponent > 0 and size > 0:
        step = min(exponent, 9)
        factor = _POWERS[step]
        carry = 0
        for i in range(size):
            product = limbs[i] * factor + carry
            limbs[i] = product & _MASK
            carry = product >> _BITS
        if carry:
            limbs[size] = carry
            size += 1
        exponent -= step
    return size


@inlined
def divide_small(limbs, size, divisor):
    """Divide limbs by an integer below 2**30 in place; return the remainder."""
    rest = 0
    for i in range(size - 1, -1, -1):
        value = (rest << _BITS) | limbs[i]
        limbs[i] = value // divisor
        rest = value - limbs[i] * divisor
    return rest


@inlined
def divide_limbs(top, size, bottom, count, quotient):
    """Divide `size` limbs by `count`; `top` becomes the remainder. Return the quotient's limbs.

    This is Knuth's algorithm D. Both are shifted while it runs.
    """
    if count == 1:
        for i in range(size):
            quotient[i] = top[i]
            top[i] = 0
        rest = divide_small(quotient, size, bottom[0])
        top[0] = rest
        found = size
    elif size < count:
        return 0
    else:
        shift = 0
        while bottom[count - 1] << shift < _BASE >> 1:
            shift += 1
        top[size] = 0
        for i in range(size, 0, -1):
            top[i] = ((top[i] << shift) & _MASK) | (top[i - 1] >> (_BITS - shift))
        top[0] = (top[0] << shift) & _MASK
        for i in range(count - 1, 0, -1):
            bottom[i] = ((bottom[i] << shift) & _MASK) | (bottom[i - 1] >> (_BITS - shift))
        bottom[0] = (bottom[0] << shift) & _MASK
        for j in range(size - count, -1, -1):
            value = (top[j + count] << _BITS) | top[j + count - 1]
            digit = value // bottom[count - 1]
            rest = value - digit * bottom[count - 1]
            while digit >= _BASE or digit * bottom[count - 2] > (
                (rest << _BITS) | top[j + count - 2]
            ):
                digit -= 1
                rest += bottom[count - 1]
                if rest >= _BASE:
                    break
            borrow = 0
            for i in range(count):
                value = top[i + j] - digit * bottom[i] - borrow
                top[i + j] = value & _MASK
                borrow = -(value >> _BITS)
            value = top[j + count] - borrow
            top[j + count] = value & _MASK
            if value < 0:
                digit -= 1
                carry = 0
                for i in range(count):
                    value = top[i + j] + bottom[i] + carry
                    top[i + j] = value & _MASK
                    carry = value >> _BITS
                top[j + count] = (top[j + count] + carry) & _MASK
            quotient[j] = digit
        for i in range(count - 1):
            top[i] = (top[i] >> shift) | ((top[i + 1] << (_BITS - shift)) & _MASK)
            bottom[i] = (bottom[i] >> shift) | ((bottom[i + 1] << (_BITS - shift)) & _MASK)
        top[count - 1] = top[count - 1] >> shift
        bottom[count - 1] = bottom[count - 1] >> shift
        found = size - count + 1
    while found > 0 and quotient[found - 1] == 0:
        found -= 1
    return found


@inlined
def _leading(limbs, size, spare):
    """Return the number of decimal digits, and the highest four of them, or all if there are less.

    What is left after each division has four digits at least.
    """
    for i in range(size):
        spare[i] = limbs[i]
    digits = 0
    while size > 1:
        divide_small(spare, size, 10_000)
        digits += 4
        while size > 0 and spare[size - 1] == 0:
            size -= 1
    value = spare[0] if size > 0 else 0
    while value >= 10_000:
        value //= 10
        digits += 1
    top = value
    while value > 0:
        value //= 10
        digits += 1
    return digits, top


@inlined
def _weight(digits, top, scale):
    """Return the weight and the first digit in base 10000, as PostgreSQL stores a numeric."""
    if digits == 0:
        return 0, 0
    exponent = digits - 1 - scale
    weight = exponent >> 2
    wanted = exponent - 4 * weight + 1
    have = min(digits, 4)
    first = top // _POWERS[have - wanted] if have >= wanted else top * _POWERS[wanted - have]
    return weight, first


@inlined
def _shown(limbs, size, scale, spare):
    """Return the digits after the point without zeros at the end."""
    if size == 0:
        return 0
    for i in range(size):
        spare[i] = limbs[i]
    while scale > 0 and divide_small(spare, size, 10) == 0:
        scale -= 1
    return scale


@inlined
def _at_least(limbs, size, other, count):
    """Whether limbs are at least others; none has zeros at the end."""
    if size != count:
        return size > count
    for i in range(size - 1, -1, -1):
        if limbs[i] != other[i]:
            return limbs[i] > other[i]
    return True


@inlined
def _trimmed(limbs, size):
    while size > 0 and limbs[size - 1] == 0:
        size -= 1
    return size


@inlined
def divide(x_low, x_high, y_low, y_high, scales, work):
    """Return the low and the high word of x / y, and whether it is done.

    `scales` has the scales of x, of y and of the quotient, and whether x and y are shown without
    zeros at the end. `work` is five rows of `LIMBS`. A quotient that is too large lacks digits.
    """
    if y_low == 0 and y_high == 0:
        return np.int64(0), np.int64(0), DIVIDED_BY_ZERO
    top, bottom, quotient, twice, spare = work[0], work[1], work[2], work[3], work[4]
    size, count = set_limbs(top, x_low, x_high), set_limbs(bottom, y_low, y_high)
    digits, leading = _leading(top, size, spare)
    weight, first = _weight(digits, leading, scales[0])
    digits, leading = _leading(bottom, count, spare)
    other_weight, other_first = _weight(digits, leading, scales[1])
    weight = weight - other_weight - (1 if first <= other_first else 0)
    wanted = max(16 - 4 * weight, 0)
    shown = scales[0] if scales[3] == 0 else _shown(top, size, scales[0], spare)
    other_shown = scales[1] if scales[4] == 0 else _shown(bottom, count, scales[1], spare)
    wanted = max(wanted, shown, other_shown)
    places = min(wanted, scales[2])
    shift = places + scales[1] - scales[0]
    if shift >= 0:
        size = times_power(top, size, shift)
    else:
        count = times_power(bottom, count, -shift)
    found = divide_limbs(top, size, bottom, count, quotient)
    rest = _trimmed(top, min(size, count))
    exact = rest == 0
    for i in range(rest):
        twice[i] = top[i]
    twice[rest] = 0
    carry = 0
    for i in range(rest + 1):
        value = 2 * twice[i] + carry
        twice[i] = value & _MASK
        carry = value >> _BITS
    if _at_least(twice, _trimmed(twice, rest + 1), bottom, count):
        quotient[found] = 0
        at = 0
        while quotient[at] == _MASK and at < found:
            quotient[at] = 0
            at += 1
        quotient[at] += 1
        found = max(found, at + 1)
    done = DONE
    if wanted > scales[2] and not exact:
        few = found == 0 or (found == 1 and quotient[0] < _LEAST_SIGNIFICANT)
        if few:
            done = LACKS_DIGITS
        else:
            for _ in range(wanted - scales[2]):
                rest = times_power(top, rest, 1)
                if _at_least(top, rest, bottom, count):
                    divide_limbs(top, rest, bottom, count, spare)
                    rest = _trimmed(top, min(rest, count))
            if rest == 0:
                done = LACKS_DIGITS
    found = times_power(quotient, found, scales[2] - places)
    if found > 5 or (found == 5 and quotient[4] >= 1 << 7):
        return np.int64(0), np.int64(0), LACKS_DIGITS
    for i in range(found, 5):
        quotient[i] = 0
    low = np.uint64(quotient[0]) | (np.uint64(quotient[1]) << np.uint64(30))
    low |= np.uint64(quotient[2] & 15) << np.uint64(60)
    high = np.uint64(quotient[2] >> 4) | (np.uint64(quotient[3]) << np.uint64(26))
    high |= np.uint64(quotient[4]) << np.uint64(56)
    if (x_high < 0) != (y_high < 0):
        low = ~low + np.uint64(1)
        high = ~high + np.uint64(1 if low == np.uint64(0) else 0)
    return np.int64(low), np.int64(high), done
