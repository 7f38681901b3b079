"""The kernel that writes the messages of many rows: each value once, straight into its place.

`write_rows` is compiled by numba, or loaded from numba's cache, which takes a second of processor
time and some memory. So it is imported only by a process that sends very many rows
(`bulk_rows.py`), and the same messages are made by Arrow until then.

A value is written by the kind of its column. Numbers come as words, texts and other bytes as
offsets into one buffer. PostgreSQL's text of a date or time is written for the years 1 to 9999.
"""

import numba
import numpy as np
from numba import types

BYTES = 0  # bytes as they are
ESCAPED = 1  # bytes, some of which are written as a backslash and another byte
INTEGER = 2  # digits
NUMERIC = 3  # digits with a point; `digits` of the column: behind it
TRIMMED = 4  # the same without zeros at the end
DATE = 5  # days since 1970
TIMESTAMP = 6  # microseconds since 1970
TIMESTAMPTZ = 7  # the same, with +00 at the end
BOOL = 8  # t or f
WORD = 9  # the lowest `digits` bytes, the highest first
GROUPS = 10  # a numeric in binary; `digits` of the column: behind the point
TRIMMED_GROUPS = 11  # the same, with as few digits behind the point as the value needs

_TEN = np.uint64(10)
_FOUR_YEARS, _CENTURY, _ERA = 1_460, 36_524, 146_096  # days, less one
_DAY = 86_400_000_000

_OPTIONS = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
inlined = numba.njit(no_cpython_wrapper=True, **_OPTIONS)  # not for callers in Python


@inlined
def _put_digits(out, at, value, least):
    """Write a number with at least so many digits; return where it ends."""
    count, power = 1, _TEN
    while count < 19 and value >= power:
        count += 1
        power *= _TEN
    if count == 19 and value >= power:
        count = 20
    end = at + max(count, least)
    for place in range(end - 1, at - 1, -1):
        rest = value // _TEN
        out[place] = np.uint8(np.uint64(48) + value - rest * _TEN)
        value = rest
    return end


@inlined
def _put_two(out, at, value):
    out[at] = 48 + value // 10
    out[at + 1] = 48 + value % 10


@inlined
def _put_integer(out, at, value):
    if value < 0:
        out[at] = 45
        return _put_digits(out, at + 1, np.uint64(-value), 1)
    return _put_digits(out, at, np.uint64(value), 1)


@inlined
def _put_numeric(out, at, value, places, power, is_trimmed):
    size = np.uint64(-value) if value < 0 else np.uint64(value)
    if value < 0:
        out[at] = 45
        at += 1
    whole = size // power
    part = size - whole * power
    at = _put_digits(out, at, whole, 1)
    if places == 0 or (is_trimmed and part == 0):
        return at
    out[at] = 46
    end = _put_digits(out, at + 1, part, places)
    while is_trimmed and out[end - 1] == 48:
        end -= 1
    return end


@inlined
def _put_date(out, at, days):
    """Write a date of the years 1 to 9999, by Howard Hinnant's `civil_from_days`."""
    days += 719_468
    era = days // (_ERA + 1)
    day = days - era * (_ERA + 1)
    year = (day - day // _FOUR_YEARS + day // _CENTURY - day // _ERA) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5 - 1
    month += 3 if month < 10 else -9
    year += 400 * era + (1 if month <= 2 else 0)
    _put_two(out, at, year // 100)
    _put_two(out, at + 2, year % 100)
    out[at + 4] = 45
    _put_two(out, at + 5, month)
    out[at + 7] = 45
    _put_two(out, at + 8, day)
    return at + 10


@inlined
def _put_timestamp(out, at, micros):
    days = micros // _DAY
    micros -= days * _DAY
    at = _put_date(out, at, days)
    seconds = micros // 1_000_000
    micros -= seconds * 1_000_000
    out[at] = 32
    _put_two(out, at + 1, seconds // 3_600)
    out[at + 3] = 58
    _put_two(out, at + 4, seconds // 60 % 60)
    out[at + 6] = 58
    _put_two(out, at + 7, seconds % 60)
    at += 9
    if micros:
        out[at] = 46
        at = _put_digits(out, at + 1, np.uint64(micros), 6)
        while out[at - 1] == 48:
            at -= 1
    return at


@inlined
def _put_word(out, at, value, width):
    for byte in range(width):
        out[at + byte] = (value >> (8 * (width - 1 - byte))) & 0xFF
    return at + width


@inlined
def _put_groups(out, at, value, places, power, is_trimmed):
    """Write a numeric as PostgreSQL sends it: a header, and digits in base 10,000."""
    size = np.uint64(-value) if value < 0 else np.uint64(value)
    base = np.uint64(10_000)
    whole = size // power
    part = size - whole * power
    shown = places
    if is_trimmed:
        left = part
        while shown and left % _TEN == 0:
            left //= _TEN
            shown -= 1
    behind = (places + 3) // 4
    for _ in range(4 * behind - places):
        part *= _TEN
    before, left = 0, whole
    while left:
        before += 1
        left //= base
    weight, count = before - 1, before + behind
    left = whole
    for place in range(before - 1, -1, -1):
        _put_word(out, at + 8 + 2 * place, np.int64(left % base), 2)
        left //= base
    left = part
    for place in range(count - 1, before - 1, -1):
        _put_word(out, at + 8 + 2 * place, np.int64(left % base), 2)
        left //= base
    first = at + 8
    while count and out[first] == 0 and out[first + 1] == 0:  # a fraction that begins with zeros
        first += 2
        count -= 1
        weight -= 1
    while count and out[first + 2 * count - 1] == 0 and out[first + 2 * count - 2] == 0:
        count -= 1
    for byte in range(2 * count):
        out[at + 8 + byte] = out[first + byte]
    _put_word(out, at, count, 2)
    _put_word(out, at + 2, weight if count else 0, 2)
    _put_word(out, at + 4, 0x4000 if value < 0 else 0, 2)
    _put_word(out, at + 6, shown, 2)
    return at + 8 + 2 * count


@inlined
def _put_bytes(out, at, data, start, end):
    for place in range(start, end):
        out[at] = data[place]
        at += 1
    return at


@inlined
def _put_escaped(out, at, data, start, end, escapes):
    for place in range(start, end):
        byte = data[place]
        escape = escapes[byte]
        if escape:
            out[at] = 92
            at += 1
            byte = escape
        out[at] = byte
        at += 1
    return at


_OCTETS = types.Array(types.uint8, 1, "C", readonly=True)
_WORDS = types.int64[:, ::1]
_SIGNATURE = types.int64(
    types.int64, types.boolean, types.int64, _OCTETS, _OCTETS,
    _WORDS, _WORDS, _WORDS, _OCTETS, types.boolean[:, ::1], types.uint8[::1],
)  # fmt: skip


@numba.njit(_SIGNATURE, cache=True, **_OPTIONS)
def write_rows(
    code, is_lines, delimiter, null, escapes, columns, words, offsets, data, absent, out
):
    """Write the messages of rows to `out`, which must have room; return their bytes.

    `code` is the messages' type. With `is_lines` the values of a row stand between delimiters, with
    a newline at the end and `null` for NULL; else each comes after its length, -1 for NULL, and all
    after their number. `columns` has three numbers of each: its kind, its row in `words` or
    `offsets`, and its digits. `absent[column, row]` says whether the value is NULL.
    """
    at = 0
    width, rows = absent.shape
    powers = np.ones(width, np.uint64)
    for column in range(width):
        if columns[column, 0] in (NUMERIC, TRIMMED, GROUPS, TRIMMED_GROUPS):
            for _ in range(columns[column, 2]):
                powers[column] *= _TEN
    for row in range(rows):
        begin = at
        out[at] = code
        at += 5
        if not is_lines:
            at = _put_word(out, at, width, 2)
        for column in range(width):
            if is_lines:
                if column:
                    out[at] = delimiter
                    at += 1
                if absent[column, row]:
                    at = _put_bytes(out, at, null, 0, len(null))
                    continue
            elif absent[column, row]:
                at = _put_word(out, at, -1, 4)
                continue
            start = at if is_lines else at + 4
            kind = columns[column, 0]
            place = columns[column, 1]
            digits = columns[column, 2]
            if kind == BYTES:
                at = _put_bytes(out, start, data, offsets[place, row], offsets[place, row + 1])
            elif kind == ESCAPED:
                first, last = offsets[place, row], offsets[place, row + 1]
                at = _put_escaped(out, start, data, first, last, escapes)
            else:
                value = words[place, row]
                if kind == INTEGER:
                    at = _put_integer(out, start, value)
                elif kind in (NUMERIC, TRIMMED):
                    power = powers[column]
                    at = _put_numeric(out, start, value, digits, power, kind == TRIMMED)
                elif kind == DATE:
                    at = _put_date(out, start, value)
                elif kind in (TIMESTAMP, TIMESTAMPTZ):
                    at = _put_timestamp(out, start, value)
                    if kind == TIMESTAMPTZ:
                        out[at], out[at + 1], out[at + 2] = 43, 48, 48
                        at += 3
                elif kind == BOOL:
                    out[start] = 116 if value else 102
                    at = start + 1
                elif kind == WORD:
                    at = _put_word(out, start, value, digits)
                else:
                    power = powers[column]
                    at = _put_groups(out, start, value, digits, power, kind == TRIMMED_GROUPS)
            if not is_lines:
                _put_word(out, start - 4, at - start, 4)
        if is_lines:
            out[at] = 10
            at += 1
        _put_word(out, begin + 1, at - begin - 1, 4)
    return at
