"""The stored form of the values of enum types.

A value is stored as its rank, a blank, and the label that it had when it was added:

    CREATE TYPE mood AS ENUM ('sad', 'ok')      bn sad, cn ok
    ALTER TYPE mood ADD VALUE 'fine' BEFORE 'ok'    bt fine

So the order of the stored texts is the order of the type, equal values are identical, and a value
is read without its type. A rank is a fraction in base 26 with the digits a to z, and does not end
in a: between two ranks there is always another one.
"""

from collections.abc import Sequence

_DIGITS = "abcdefghijklmnopqrstuvwxyz"
_BASE = len(_DIGITS)


def first_values(labels: Sequence[str]) -> tuple[str, ...]:
    """Return the stored forms of the labels of a new type."""
    width = 1
    while _BASE**width <= len(labels) + 1:
        width += 1
    return tuple(f"{_number(i + 1, width)}n {label}" for i, label in enumerate(labels))


def value_between(below: str | None, above: str | None, label: str) -> str:
    """Return the stored form of a label added between two values; None is beyond all."""
    low = "" if below is None else below.partition(" ")[0]
    high = None if above is None else above.partition(" ")[0]
    return f"{_between(low, high)} {label}"


def label_of(value: str) -> str:
    """Return the label that a value had when it was added."""
    return value.partition(" ")[2]


def _number(number: int, width: int) -> str:
    digits = ""
    for _ in range(width):
        number, digit = divmod(number, _BASE)
        digits = _DIGITS[digit] + digits
    return digits


def _between(low: str, high: str | None) -> str:
    """Return a fraction between two; `low` is 0 if empty, `high` 1 if None."""
    digits = ""
    while True:
        place = len(digits)
        a = _DIGITS.index(low[place]) if place < len(low) else 0
        b = _DIGITS.index(high[place]) if high is not None and place < len(high) else _BASE
        if high is not None and place >= len(high):
            b = 0
        if b - a > 1:
            return digits + _DIGITS[(a + b) // 2]
        digits += _DIGITS[a]
        if a != b:
            high = None  # whatever follows is below `high`
