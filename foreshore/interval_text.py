"""Interval input: PostgreSQL's verbose form, SQL's and ISO 8601's."""

import re
from dataclasses import dataclass, field
from typing import NoReturn

from foreshore.calendar import DAY, HOUR, MINUTE, SECOND
from foreshore.datetime_text import fraction_micros, is_longer
from foreshore.digits import is_digits
from foreshore.errors import DataError, InvalidDatetimeFormat
from foreshore.interval_fields import last_field

Interval = tuple[int, int, int]  # months, days, microseconds

_UNIT_WORDS = {
    "micros": "us usec usecs useconds usecond microsecon microsecond microseconds micros",
    "millis": "ms msec msecs mseconds msecond millisecon millisecond milliseconds millis",
    "second": "s sec secs second seconds",
    "minute": "m min mins minute minutes",
    "hour": "h hr hrs hour hours",
    "day": "d day days",
    "week": "w week weeks",
    "month": "mon mons month months",
    "year": "y yr yrs year years",
    "decade": "dec decs decade decades",
    "century": "c cent centuries century",
    "millennium": "mil mils millennia millennium",
    "timezone": "timezone",
}
UNITS = {word: unit for unit, words in _UNIT_WORDS.items() for word in words.split()}
_MONTHS_OF = {"month": 1, "year": 12, "decade": 120, "century": 1200, "millennium": 12000}
_MICROS_OF = {"micros": 1, "millis": 1000, "second": SECOND, "minute": MINUTE, "hour": HOUR}

_SECONDS = ("second", "millis", "micros")  # that a second with a fraction sets
_WORD = 10  # characters of a word that count
MOST_CHARACTERS = 250  # without white space; the size of PostgreSQL's buffer

_INTERVAL_FIELD = re.compile(
    r"""
    \s*(?:
        (?P<sign>[+-])?\s*(?:
            (?P<time>[0-9]+:[0-9]*(?::[0-9]*)?(?:\.[0-9]*)?)
          | (?P<years>[0-9]+)-(?P<months>[0-9]*)(?![0-9.-])
          | (?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE](?P<exponent>[+-]?[0-9]+))?
        )
      | (?P<word>[a-zA-Z]+)
      | (?P<ignored>[@,;()'"&%$#!?=_*|~`^<>{}\[\]\\/]+)
    )\s*
    """,
    re.VERBOSE,
)
_ISO_PART = re.compile(r"([+-]?[0-9]*(?:\.[0-9]*)?)([YMWDHS])")
_ISO = re.compile(r"P([^T]*)(?:T(.*))?\Z")
# The forms without letters, such as P0001-02-03T04:05:06 and P00010203T040506, and their units.
_DATES = (
    re.compile(r"()([0-9]{4})([0-9][0-9])([0-9][0-9])\Z"),
    re.compile(r"([+-]?)([0-9]+(?:\.[0-9]*)?)(?:-([0-9]+)(?:-([0-9]+))?)?\Z"),
)
_TIMES = (
    re.compile(r"()([0-9][0-9])([0-9][0-9])([0-9][0-9](?:\.[0-9]*)?)\Z"),
    re.compile(r"([+-]?)([0-9]+(?:\.[0-9]*)?)(?::([0-9]+)(?::([0-9]+(?:\.[0-9]*)?))?)?\Z"),
)


def parse_interval(text: str, fields: str | None = None) -> Interval:
    """Return the interval in `text`, in PostgreSQL's, SQL's or ISO 8601's form.

    A final number without a unit counts the last of the declared `fields`, or seconds.
    """
    stripped = text.strip()
    if is_longer(stripped, MOST_CHARACTERS):
        _Total(text).bad()
    if stripped.startswith("P"):
        return _parse_iso_interval(text, stripped)
    total, last = _Total(text), last_field(fields)
    pending: tuple[int, int, int] | None = None  # whole, numerator, denominator of a number
    any_field = ago = False
    at = 0
    while at < len(stripped):
        match = _INTERVAL_FIELD.match(stripped, at)
        if match is None or match.end() == at:
            total.bad()
        at = match.end()
        sign = -1 if match["sign"] == "-" else 1
        if match["ignored"]:
            continue
        if match["word"]:
            word = match["word"].lower()[:_WORD]
            if word == "ago" and any_field and pending is None:
                ago = True
                continue
            if ago or word not in UNITS or pending is None:
                total.bad()
            total.add(UNITS[word], *pending)
            pending = None
            continue
        if ago:
            total.bad()
        if pending is not None:
            # A number before a time, or before hours, counts days, as in `1 04:05:06`.
            if match["time"] is None and (match["number"] is None or last != "hour"):
                total.bad()
            total.add("day", *pending)
            pending = None
        any_field = True
        if match["time"] is not None:
            total.add_time(sign, match["time"], fields)
        elif match["years"] is not None:
            months = int(match["months"] or 0)
            if months >= 12:
                total.overflow()
            total.once("month")
            total.months += sign * (int(match["years"]) * 12 + months)
        else:
            pending = total.number(sign, match["number"], match["exponent"])
    if pending is not None:
        total.add(last, *pending)
    if not any_field:
        total.bad()
    return total.finish(-1 if ago else 1)


def _parse_iso_interval(text: str, stripped: str) -> Interval:
    total = _Total(text)
    match = _ISO.match(stripped)
    if match is None or stripped == "P":
        total.bad()
    for part, units, forms in (
        (match[1], {"Y": "year", "M": "month", "W": "week", "D": "day"}, _DATES),
        (match[2] or "", {"H": "hour", "M": "minute", "S": "second"}, _TIMES),
    ):
        plain = next((found for form in forms if (found := form.match(part))), None)
        if plain is not None:
            sign, *numbers = plain.groups()
            names = (unit for unit in units.values() if unit != "week")
            for unit, digits in zip(names, numbers, strict=True):
                if digits is not None:
                    total.add(unit, *total.number(-1 if sign == "-" else 1, digits, None))
                sign = ""  # of the first number only
            continue
        at = 0
        while at < len(part):
            found = _ISO_PART.match(part, at)
            if found is None or found[2] not in units or not any(map(is_digits, found[1])):
                total.bad()
            sign = -1 if found[1].startswith("-") else 1
            total.add(units[found[2]], *total.number(sign, found[1].lstrip("+-"), None))
            at = found.end()
    return total.finish(1)


@dataclass(slots=True)
class _Total:
    """The sum of an interval's parts; fractions carry over into the next smaller unit."""

    text: str
    months: int = 0
    days: int = 0
    micros: int = 0
    seen: set[str] = field(default_factory=set)

    def once(self, *units: str) -> None:
        """Raise if one of the units has occurred before."""
        if self.seen.intersection(units):
            self.bad()
        self.seen.update(units)

    def bad(self) -> NoReturn:
        raise InvalidDatetimeFormat(f'invalid input syntax for type interval: "{self.text}"')

    def overflow(self) -> NoReturn:
        raise DataError(f'interval field value out of range: "{self.text}"', sqlstate="22015")

    def number(self, sign: int, digits: str, exponent: str | None) -> tuple[int, int, int]:
        if exponent is not None:
            self.bad()
        whole, _, fraction = digits.partition(".")
        if len(whole) > 19:
            self.overflow()
        return sign * int(whole or 0), sign * int(fraction or 0), 10 ** len(fraction)

    def add(self, unit: str, whole: int, numerator: int, denominator: int) -> None:
        self.once(*(_SECONDS if unit == "second" and numerator else (unit,)))
        if unit in _MICROS_OF:
            size = _MICROS_OF[unit]
            self.micros += whole * size + _divide(numerator * size, denominator)
        elif unit == "day":
            self.days += whole
            self.micros += _divide(numerator * DAY, denominator)
        elif unit == "week":
            self.days += whole * 7
            self.add_days(numerator * 7, denominator)
        elif unit == "month":
            self.months += whole
            self.add_days(numerator * 30, denominator)
        elif unit in _MONTHS_OF:
            size = _MONTHS_OF[unit]
            self.months += whole * size + _divide(numerator * size, denominator)
        else:
            self.bad()

    def add_days(self, numerator: int, denominator: int) -> None:
        """Add a fraction of days; the part below a day becomes time."""
        sign = -1 if numerator < 0 else 1
        whole, rest = divmod(abs(numerator), denominator)
        self.days += sign * whole
        self.micros += sign * _divide(rest * DAY, denominator)

    def add_time(self, sign: int, text: str, fields: str | None = None) -> None:
        self.once("hour", "minute", *_SECONDS)
        parts = text.split(":")
        if len(parts) == 2 and ("." in parts[1] or fields == "minute to second"):  # mm:ss
            parts = ["0", *parts]
        hour, minute = int(parts[0]), int(parts[1] or 0)
        second, _, fraction = (parts[2] if len(parts) > 2 else "0").partition(".")
        if minute > 59 or int(second or 0) > 60:
            self.overflow()
        micros = (
            hour * HOUR + minute * MINUTE + int(second or 0) * SECOND + fraction_micros(fraction)
        )
        self.micros += sign * micros

    def finish(self, sign: int) -> Interval:
        months, days, micros = sign * self.months, sign * self.days, sign * self.micros
        if not -(2**31) <= months < 2**31 or not -(2**31) <= days < 2**31:
            self.overflow()
        if not -(2**63) <= micros < 2**63:
            self.overflow()
        return months, days, micros


def _divide(numerator: int, denominator: int) -> int:
    """Return the quotient rounded to the nearest integer, halves to even."""
    quotient, rest = divmod(numerator, denominator)
    twice = 2 * rest
    return quotient + (twice > denominator or (twice == denominator and quotient % 2 == 1))
