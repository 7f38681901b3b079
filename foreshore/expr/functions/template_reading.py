"""to_date and to_timestamp: read dates and times by templates, as tolerantly as PostgreSQL."""

import re
from collections.abc import Callable, Sequence
from functools import partial

from foreshore import calendar
from foreshore.digits import is_digits
from foreshore.expr.functions.function import declare, hidden
from foreshore.expr.functions.rows import Failure, fail
from foreshore.expr.functions.template_parts import (
    DAYS,
    DIGITS,
    MONTHS,
    ROMAN_MONTHS,
    Part,
    is_separator,
    parse_template,
)
from foreshore.expr.functions.temporal import (
    DAY,
    HOUR,
    LEAST,
    MINUTE,
    MOST,
    SECOND,
    data_rows,
    zone_of,
)

_NUMBER = re.compile(r"\s*[+-]?\d+", re.ASCII)
_INT = range(-(2**31), 2**31)
_JULIAN_EPOCH = 2_440_588  # of 1970-01-01
_LONGEST_OFFSET = 15  # hours
_GREGORIAN = frozenset("DDD DD D MM MONTH MON RM WW W Y,YYY YYYY YYY YY Y".split())
_ISO = frozenset("IDDD ID IW IYYY IYY IY I".split())
# The field that a keyword sets, and how many digits it takes.
_FIELDS = {
    "HH24": ("hour", 2), "HH12": ("hour", 2), "HH": ("hour", 2), "MI": ("minute", 2),
    "SS": ("second", 2), "SSSS": ("of_day", 4), "SSSSS": ("of_day", 5), "MM": ("month", 2),
    "DDD": ("day_of_year", 3), "IDDD": ("day_of_year", 3), "DD": ("day", 2), "D": ("weekday", 1),
    "ID": ("weekday", 1), "WW": ("week", 2), "IW": ("week", 2), "Q": ("", 1), "CC": ("century", 2),
    "W": ("week_of_month", 1), "J": ("julian", 1), "TZM": ("offset_minutes", 2),
    "YYYY": ("year", 4), "IYYY": ("year", 4), "YYY": ("year", 3), "IYY": ("year", 3),
    "YY": ("year", 2), "IY": ("year", 2), "Y": ("year", 1), "I": ("year", 1),
}  # fmt: skip
_WORDS: dict[str, tuple[str, Sequence[str], Callable[[int], int]]] = {
    "MONTH": ("month", MONTHS, lambda at: at + 1),
    "MON": ("month", [name[:3] for name in MONTHS], lambda at: at + 1),
    "DAY": ("weekday", DAYS, lambda at: at + 1),
    "DY": ("weekday", [name[:3] for name in DAYS], lambda at: at + 1),
    # Longer ones first, as VIII begins with V.
    "RM": ("month", ROMAN_MONTHS[::-1], lambda at: 12 - at),
    **{key: ("pm", ("AM", "PM"), int) for key in ("AM", "PM")},
    **{key: ("pm", ("A.M.", "P.M."), int) for key in ("A.M.", "P.M.")},
    **{key: ("bc", ("AD", "BC"), int) for key in ("AD", "BC")},
    **{key: ("bc", ("A.D.", "B.C."), int) for key in ("A.D.", "B.C.")},
}


class _Reader:
    """Reads a text by the parts of a template into fields."""

    def __init__(self, text: str, parts: Sequence[Part]) -> None:
        self.text, self.parts = text, parts
        self.at = 0
        self.fields: dict[str, int] = {}
        self.twelve = self.is_iso = self.is_gregorian = False
        self.year_digits = 0
        self.offset_sign = 0
        self._exact = False  # after FX
        self._skipped = 0  # spaces beyond those of the template

    def read(self) -> None:
        """Read until the text or the template ends."""
        for place, part in enumerate(self.parts):
            if self.at >= len(self.text):
                return
            if not self._exact and part.keyword != "FX" and (part.keyword or place == 0):
                self._skip_spaces()
            if part.is_separator:
                self._separator()
            elif part.keyword is None:
                self._character()
            else:
                self._field(place, part, part.keyword)
                if not self._exact:
                    self._skipped = 0
                    self._skip_spaces()

    def _skip_spaces(self) -> None:
        start = self.at
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        self._skipped += self.at - start

    def _separator(self) -> None:
        if self._exact or is_separator(self.text[self.at : self.at + 1] or "a"):
            self.at += 1
        else:
            self._skipped -= 1

    def _character(self) -> None:
        """Pass over one character, whatever it is, unless a space was passed over before."""
        if not self._exact and self._skipped > 0:
            self._skipped -= 1
        else:
            self.at += 1

    def _field(self, place: int, part: Part, keyword: str) -> None:
        name = keyword.upper()
        self._set_convention(name)
        if name == "FX":
            self._exact = True
        elif name in ("TZ", "OF"):
            raise fail("0A000", f'formatting field "{part.text}" is only supported in to_char')
        elif name in _WORDS:
            self._word(part, name)
        elif name == "TZH":
            self._offset_hours(place, part)
        elif name in ("MS", "US") or name.startswith("FF"):
            digits = 3 if name == "MS" else 6 if name == "US" else int(name[2])
            value, length = self._number(place, part, digits)
            unit = "millis" if name == "MS" else "micros"
            self._set(unit, value * 10 ** max((3 if name == "MS" else 6) - length, 0), part)
            self._skip_ordinal(part)
        elif name == "Y,YYY":
            self._divided_year(part)
        else:
            self._numeric(place, part, name)

    def _set_convention(self, name: str) -> None:
        self.is_iso |= name in _ISO
        self.is_gregorian |= name in _GREGORIAN
        if self.is_iso and self.is_gregorian:
            raise fail("22007", "invalid combination of date conventions")

    def _numeric(self, place: int, part: Part, name: str) -> None:
        field, digits = _FIELDS[name]
        value, length = self._number(place, part, digits)
        if field == "year":
            self.year_digits = digits
            value = _in_century(value) if length < 4 and digits < 4 else value
        if name == "ID":
            value = value % 7 + 1
        if name in ("HH12", "HH"):
            self.twelve = True
        if name == "TZM":
            self.offset_sign = self.offset_sign or 1
        if field:
            self._set(field, value, part)
        self._skip_ordinal(part)

    def _set(self, field: str, value: int, part: Part) -> None:
        if self.fields.get(field, 0) not in (0, value):
            raise fail("22007", f'conflicting values for "{part.text}" field in formatting string')
        self.fields[field] = value

    def _skip_ordinal(self, part: Part) -> None:
        if part.ordinal is not None:
            self.at = min(self.at + 2, len(self.text))

    def _number(self, place: int, part: Part, digits: int) -> tuple[int, int]:
        """Return an integer and the length of its text.

        It has as many digits as the field unless no digits can follow it.
        """
        start = self.at
        while self.at < len(self.text) and self.text[self.at].isspace():
            self.at += 1
        copy = self.text[self.at : self.at + digits]
        if not part.fill or self._ends_digits(place, part):
            found = _NUMBER.match(self.text, self.at)
            digits_text = found[0] if found is not None else ""
        else:
            rest = len(self.text.encode()) - len(self.text[: self.at].encode())
            if rest < digits:
                raise fail("22007", f'source string too short for "{part.text}" formatting field')
            found = _NUMBER.match(copy)
            digits_text = found[0] if found is not None else ""
            if 0 < len(digits_text) < digits:
                raise self._wrong(copy, part)
        if not digits_text:
            raise self._wrong(copy, part)
        self.at += len(digits_text)
        value = int(digits_text) if len(digits_text) < 100 else 2**31
        if value not in _INT:
            raise fail("22008", f'value for "{part.text}" in source string is out of range')
        return value, self.at - start

    def _ends_digits(self, place: int, part: Part) -> bool:
        """Return whether what follows in the template is no digit."""
        if part.ordinal is not None or place + 1 >= len(self.parts):
            return True
        following = self.parts[place + 1]
        if following.keyword is not None:
            return following.keyword not in DIGITS
        return not is_digits(following.text)

    def _wrong(self, text: str, part: Part) -> Failure:
        return fail("22007", f'invalid value "{text}" for "{part.text}"')

    def _word(self, part: Part, name: str) -> None:
        field, words, value_of = _WORDS[name]
        rest = self.text[self.at :].lower()
        for place, word in enumerate(words):
            if rest.startswith(word.lower()):
                self._set(field, value_of(place), part)
                self.at += len(word)
                self.twelve |= field == "pm"
                return
        raise self._wrong((self.text[self.at :].split(None, 1) or [""])[0], part)

    def _offset_hours(self, place: int, part: Part) -> None:
        sign = self.text[self.at : self.at + 1]  # empty at the end of the text
        if sign in ("+", "-", " "):
            self.offset_sign = -1 if sign == "-" else 1
            self.at += 1
        else:
            # A minus may have been taken for a separator.
            before = self.text[self.at - 1 : self.at]
            self.offset_sign = -1 if self._skipped > 0 and before == "-" else 1
        self._set("offset_hours", self._number(place, part, 2)[0], part)

    def _divided_year(self, part: Part) -> None:
        found = re.compile(r"\s*([+-]?\d+),([+-]?\d{1,3})", re.ASCII).match(self.text, self.at)
        if found is None:
            raise fail("22007", 'invalid input string for "Y,YYY"')
        self._set("year", int(found[1]) * 1000 + int(found[2]), part)
        self.year_digits = 4
        self.at = found.end()
        self._skip_ordinal(part)


def _in_century(year: int) -> int:
    """Return a year of fewer than four digits as the one nearest to 2020."""
    for below, added in ((70, 2000), (100, 1900), (520, 2000), (1000, 1000)):
        if year < below:
            return year + added
    return year


def read_template(text: str, template: str) -> tuple[int, int, int | None]:
    """Return the days since 1970, the microseconds of the day, and the offset in seconds."""
    reader = _Reader(text, parse_template(template))
    reader.read()
    outside = fail("22008", f'date/time field value out of range: "{text}"')
    days = _days(reader, outside)
    return days, _time(reader, outside), _offset(reader, outside)


def _time(reader: _Reader, outside: Failure) -> int:
    given = reader.fields
    of_day = given.get("of_day", 0)
    hour = given.get("hour") or of_day // 3600
    minute = given.get("minute") or of_day // 60 % 60
    second = given.get("second") or of_day % 60
    if reader.twelve:
        if not 1 <= hour <= 12:
            raise fail("22007", f'hour "{hour}" is invalid for the 12-hour clock')
        hour = hour % 12 + 12 * given.get("pm", 0)
    micros = given.get("millis", 0) * 1000 + given.get("micros", 0)
    if not (0 <= hour < 24 and 0 <= minute < 60 and 0 <= second < 60 and 0 <= micros < SECOND):
        raise outside
    return hour * HOUR + minute * MINUTE + second * SECOND + micros


def _offset(reader: _Reader, outside: Failure) -> int | None:
    if not reader.offset_sign:
        return None
    hours, minutes = (reader.fields.get(f"offset_{unit}", 0) for unit in ("hours", "minutes"))
    if not (0 <= hours <= _LONGEST_OFFSET and 0 <= minutes < 60):
        raise outside
    return reader.offset_sign * (hours * 3600 + minutes * 60)


def _year(reader: _Reader) -> int:
    """Return the year, where 0 is 1 BC; 0 if there is none."""
    given = reader.fields
    year, century, bc = (given.get(name, 0) for name in ("year", "century", "bc"))
    if bc:
        century = -century
    if year and century and reader.year_digits <= 2:
        within = year % 100
        if within:
            return (
                within + (century - 1) * 100 if century >= 0 else (century + 1) * 100 - within + 1
            )
        return century * 100 + (century < 0)
    if year:
        year = -year if bc else year
        return year + 1 if year < 0 else year
    if century:
        return (century - 1) * 100 + 1 if century >= 0 else century * 100 + 1
    return 0


def _days(reader: _Reader, outside: Failure) -> int:
    given = reader.fields
    year, month, day = _year(reader), 1, 1
    known = {"year"} if given.get("year") or given.get("century") else set()
    if given.get("julian"):
        year, month, day = calendar.civil_from_days(given["julian"] - _JULIAN_EPOCH)
        known = {"year", "month", "day"}
    of_year = given.get("day_of_year", 0)
    if given.get("week"):
        if reader.is_iso:
            week_day = (given["weekday"] - 2) % 7 if given.get("weekday") else 0
            at = _first_iso_day(year) + (given["week"] - 1) * 7 + week_day
            year, month, day = calendar.civil_from_days(at)
            known = {"year", "month", "day"}
        else:
            of_year = (given["week"] - 1) * 7 + 1
    in_month = (given["week_of_month"] - 1) * 7 + 1 if given.get("week_of_month") else 0
    if in_month or given.get("day"):
        day = in_month or given["day"]
        known |= {"day"}
    if given.get("month"):
        month = given["month"]
        known |= {"month"}
    if of_year and (month <= 1 or day <= 1):
        if not year and not given.get("bc"):
            raise fail("22007", "cannot calculate day of year without year information")
        first = _first_iso_day(year) if reader.is_iso else calendar.days_from_civil(year, 1, 1)
        of = calendar.civil_from_days(first + of_year - 1)
        if reader.is_iso:
            year, month, day = of
        else:
            if of[0] != year:
                raise outside
            month, day = of[1] if month <= 1 else month, of[2] if day <= 1 else day
        known = {"year", "month", "day"} if reader.is_iso else known | {"month", "day"}
    if ("month" in known and not 1 <= month <= 12) or ("day" in known and not 1 <= day <= 31):
        raise outside
    if len(known) == 3 and day > calendar.days_in_month(year, month):
        raise outside
    return calendar.days_from_civil(year, month, day)


def _first_iso_day(year: int) -> int:
    """Return the Monday of the first week of a year of ISO 8601."""
    fourth = calendar.days_from_civil(year, 1, 4)
    return fourth - (fourth + 3) % 7


def _to_date(text: str, template: str) -> int:
    days = read_template(text, template)[0]
    if not calendar.DATE_LEAST <= days <= calendar.DATE_MOST:
        raise fail("22008", f'date out of range: "{text}"')
    return days


def _to_timestamp(zone: str | None, text: str, template: str) -> int:
    days, micros, offset = read_template(text, template)
    local = days * DAY + micros
    if offset is None and zone is not None:
        offset = calendar.local_offset(zone_of(zone), local)
    found = local - (offset or 0) * SECOND
    if not LEAST <= found <= MOST:
        raise fail("22008", "timestamp out of range")
    return found


declare("to_date", "text text", "date", data_rows(_to_date), fallible=True)
declare(
    "to_timestamp",
    "text text",
    "timestamptz",
    data_rows(partial(_to_timestamp, None)),
    fallible=True,
)
hidden(
    "to_timestamp(text,text,text)",
    "text text text",
    "timestamptz",
    data_rows(_to_timestamp),
    fallible=True,
)
