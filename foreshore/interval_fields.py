"""The fields of a declared interval: `interval day to second(3)`.

They determine the unit of a number without one in a constant, and which parts of a value are kept:
those down to the last declared field. PostgreSQL's type modifier stores them as bits above the
digits.
"""

from typing import Any

import numpy as np

_BITS = {"month": 1, "year": 2, "day": 3, "hour": 10, "minute": 11, "second": 12}
_ORDER = ("year", "month", "day", "hour", "minute", "second")
_ALL_FIELDS = 0x7FFF
_ALL_DIGITS = 0xFFFF
_MICROS = {"hour": 3_600_000_000, "minute": 60_000_000}


def last_field(fields: str | None) -> str:
    """Return the unit of a number without one."""
    return "second" if fields is None else fields.split(" to ")[-1]


def truncated(fields: str, months: Any, days: Any, micros: Any) -> tuple[Any, Any, Any]:
    """Return the parts of intervals, single or in arrays, without those below the last field."""
    last = last_field(fields)
    if last == "year":
        months = months - np.fmod(months, 12)
    if last in ("year", "month"):
        days = days * 0
    if last in ("year", "month", "day"):
        micros = micros * 0
    elif last in _MICROS:
        micros = micros - np.fmod(micros, _MICROS[last])
    return months, days, micros


def interval_typmod(fields: str | None, digits: int | None) -> int:
    """Return PostgreSQL's type modifier; -1 if nothing is declared."""
    if fields is None and digits is None:
        return -1
    mask = _ALL_FIELDS
    if fields is not None:
        first, last = fields.split(" to ")[0], last_field(fields)
        spanned = _ORDER[_ORDER.index(first) : _ORDER.index(last) + 1]
        mask = sum(1 << _BITS[field] for field in spanned)
    return mask << 16 | (_ALL_DIGITS if digits is None else digits)


def of_interval_typmod(typmod: int) -> tuple[str | None, int | None]:
    """Return the fields and digits of a type modifier that is not -1."""
    mask, digits = typmod >> 16 & _ALL_FIELDS, typmod & _ALL_DIGITS
    found = [field for field in _ORDER if mask >> _BITS[field] & 1]
    fields = None
    if mask != _ALL_FIELDS and found:
        fields = found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"
    return fields, None if digits == _ALL_DIGITS else digits


def written_fields(fields: str | None, digits: int | None) -> str:
    """Return the declaration that follows the word interval."""
    shown = "" if digits is None else f"({digits})"
    return shown if fields is None else f" {fields}{shown}"
