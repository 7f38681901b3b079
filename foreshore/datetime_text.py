"""Date and time input: parses dates, times of day and timestamps as PostgreSQL does.

The text is split into fields (numbers, dates, times, zones, words). The meaning of a field depends
on which parts are still missing. Ambiguous dates are read as month, day, year (DateStyle `ISO,
MDY`).
"""

import re
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Literal, NoReturn

from foreshore import calendar
from foreshore.calendar import DAY, HOUR, MINUTE, SECOND, days_from_civil, days_in_month
from foreshore.digits import is_digits
from foreshore.errors import (
    DataError,
    DatetimeFieldOverflow,
    FeatureNotSupported,
    InvalidDatetimeFormat,
    InvalidParameterValue,
)

Kind = Literal["date", "time", "timetz", "timestamp", "timestamptz"]
DISPLAY = {
    "date": "date",
    "time": "time",
    "timetz": "time with time zone",
    "timestamp": "timestamp",
    "timestamptz": "timestamp with time zone",
}

MONTHS = {
    name[:length]: number
    for number, name in enumerate(
        [
            "january",
            "february",
            "march",
            "april",
            "may",
            "june",
            "july",
            "august",
            "september",
            "october",
            "november",
            "december",
        ],
        1,
    )
    for length in (3, len(name))
} | {"sept": 9}
WEEKDAYS = frozenset((
    "sun", "sunday", "mon", "monday", "tue", "tues", "tuesday", "wed",
    "weds", "wednesday", "thu", "thur", "thurs", "thursday", "fri", "friday", "sat", "saturday",
))  # fmt: skip
_CORE_WORDS = (
    MONTHS.keys() | WEEKDAYS | {"t", "j", "at", "on", "am", "pm", "ad", "bc", "dst", "allballs"}
)
ABBREVIATIONS = {  # hours east of UTC
    "z": 0, "zulu": 0, "utc": 0, "gmt": 0, "uct": 0, "ut": 0, "wet": 0, "west": 1, "bst": 1,
    "cet": 1, "cest": 2, "met": 1, "mest": 2, "eet": 2, "eest": 3, "msk": 3, "msd": 4,
    "est": -5, "edt": -4,
    "cst": -6, "cdt": -5, "mst": -7, "mdt": -6, "pst": -8, "pdt": -7, "akst": -9, "akdt": -8,
    "hst": -10, "ast": -4, "adt": -3, "nst": -3.5, "ndt": -2.5, "sast": 2, "ist": 2, "idt": 3,
    "pkt": 5, "hkt": 8, "sgt": 8, "awst": 8, "jst": 9, "kst": 9, "aest": 10, "aedt": 11,
    "acst": 9.5, "acdt": 10.5, "nzst": 12, "nzdt": 13, "brt": -3, "art": -3, "clt": -4,
}  # fmt: skip

MOST_CHARACTERS = 150  # without white space; the size of PostgreSQL's buffer

_FIELD = re.compile(
    r"""
    (?P<time>[0-9]+:[0-9:]*(?:\.[0-9]*)?)
  | (?P<date>[0-9]+(?P<sep>[-/.])(?:[0-9]+(?P=sep)(?:[0-9]|(?P=sep))*|[a-z](?:[a-z0-9]|(?P=sep))*)
             |[0-9]+[-/][0-9]+)
  | (?P<number>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)
  | (?P<word>[a-z]+)
  | (?P<zone>[+-]\s*[0-9][0-9:.-]*)
  | (?P<special>[+-]\s*[a-z]+)
  | (?P<ignored>[\s,;()'"@&%$#!?=_*|~`^<>{}\[\]\\/]+)
    """,
    re.VERBOSE,
)
_LONG_WORD = re.compile(r"[-/.+0-9][\w/.:+-]*")
_TIME = re.compile(r"([0-9]+):([0-9]+)(?::([0-9]+)(?:\.([0-9]*))?|(?:\.([0-9]*)))?\Z")
_ZONE = re.compile(r"([+-])\s*([0-9]+)(?::([0-9]+))?(?::([0-9]+))?\Z")


def parse_datetime(text: str, kind: Kind, zone: tzinfo, now: int | None) -> int:
    """Return the physical form of `text` parsed as a value of `kind`.

    `zone` is the session's, for local times. `now`, the transaction's time in microseconds, is used
    for words such as `today`. Raises InvalidDatetimeFormat, DatetimeFieldOverflow or
    InvalidParameterValue.
    """
    if is_longer(text, MOST_CHARACTERS):
        _Reader(text, kind, zone, now).bad()
    return _Reader(text, kind, zone, now).read()


def parse_zoned_time(text: str, zone: tzinfo, now: int | None) -> tuple[int, int]:
    """Return the local time of day in microseconds and its offset in seconds, east positive.

    A text without an offset has that of `zone` on the day of `now`. Raises like `parse_datetime`.
    """
    reader = _Reader(text, "timetz", zone, now)
    if is_longer(text, MOST_CHARACTERS):
        reader.bad()
    time = reader.read()
    return time, reader.offset_of_day(time)


def is_longer(text: str, most: int) -> bool:
    """Return whether `text` has more than `most` characters, white space not counted."""
    count, at = 0, 0
    while at < len(text) and count <= most:
        part = text[at : at + 4096]
        count, at = count + sum(map(len, part.split())), at + len(part)
    return count > most


@dataclass(slots=True)
class _Reader:
    """The fields of one text, filled in as they are parsed."""

    text: str
    kind: Kind
    zone: tzinfo
    now: int | None
    year: int | None = None
    month: int | None = None
    day: int | None = None
    two_digit_year: bool = False
    bc: bool = False
    time: int | None = None  # microseconds of the day
    half: str | None = None  # am, pm
    offset: int | None = None  # seconds east of UTC
    zone_name: str | None = None
    special: str | None = None
    days: int | None = None  # set if a Julian day or a word gives the whole date
    expects_time: bool = False
    numbers: list[str] = field(default_factory=list)

    def bad(self) -> NoReturn:
        raise InvalidDatetimeFormat(
            f'invalid input syntax for type {DISPLAY[self.kind]}: "{self.text}"'
        )

    def overflow(self, *, order: bool = False) -> NoReturn:
        raise DatetimeFieldOverflow(
            f'date/time field value out of range: "{self.text}"',
            hint='Perhaps you need a different "datestyle" setting.' if order else None,
        )

    # --- fields --------------------------------------------------------------------------

    def read(self) -> int:
        lowered = self.text.strip().lower()
        at = 0
        found = False
        while at < len(lowered):
            match = _FIELD.match(lowered, at)
            if match is None:
                self.bad()
            name = match.lastgroup if match.lastgroup != "sep" else "date"
            value = match[0]
            at = match.end()
            if name == "ignored":
                continue
            found = True
            match name:
                case "time":
                    self.read_time(value)
                case "date":
                    if self.is_of_day and self.time is not None:
                        self.bad()
                    self.read_date(value)
                case "number":
                    at = self.read_number(value, lowered, at)
                case "word":
                    longer = _LONG_WORD.match(lowered, at)
                    if longer is not None and (longer[0][0] in "-/." or value not in _CORE_WORDS):
                        value, at = value + longer[0], longer.end()
                    self.read_word(value)
                case "zone":
                    self.read_zone(value)
                case _:
                    self.read_special(re.sub(r"\s", "", value))
        if not found:
            self.bad()
        return self.finish()

    @property
    def is_of_day(self) -> bool:
        return self.kind in ("time", "timetz")

    @property
    def has_date(self) -> bool:
        return self.days is not None or None not in (self.year, self.month, self.day)

    def read_time(self, value: str) -> None:
        match = _TIME.match(value)
        if match is None or self.time is not None:
            self.bad()
        hour, minute, second, fraction, minute_fraction = match.groups()
        if minute_fraction is not None:  # mm:ss.ffffff
            hour, minute, second, fraction = "0", hour, minute, minute_fraction
        self.set_time(int(hour), int(minute), int(second or 0), fraction or "")

    def set_time(self, hour: int, minute: int, second: int, fraction: str) -> None:
        micros = fraction_micros(fraction)
        whole = hour * HOUR + minute * MINUTE + second * SECOND + micros
        if hour > 24 or minute > 59 or second > 60 or whole > DAY:
            self.overflow()
        self.time = whole
        self.expects_time = False

    def read_date(self, value: str) -> None:
        if self.has_date:  # hhmmss-zz
            digits, sign, rest = re.split(r"([-/.])", value, maxsplit=1)
            if sign != "-" or self.time is not None:
                self.bad()
            self.read_run_together(digits)
            self.read_zone(sign + rest)
            return
        parts = re.findall(r"[0-9]+|[a-z]+", value)
        for part in [p for p in parts if p.isalpha()]:
            if part not in MONTHS or self.month is not None:
                self.bad()
            self.month = MONTHS[part]
        for part in parts:
            if not is_digits(part):
                continue
            if len(part) == 3 and self.year is not None and self.month is None:
                self.set_day_of_year(self.year, int(part))
            else:
                self.read_date_number(part)
        if not self.has_date:
            self.bad()

    def read_number(self, value: str, lowered: str, end: int) -> int:
        """Parse a number; return the next position, because a time may include what follows."""
        if self.special == "j":
            self.special = None
            self.days = int(float(value)) - 2_440_588
            return end
        if self.expects_time or ((self.has_date or self.is_of_day) and self.time is None):
            follows = re.compile(r"\s*(am|pm)\b").match(lowered, end)
            if len(value) <= 2 and follows is not None and self.has_date:
                self.set_time(int(value), 0, 0, "")
                return end
            if len(value.partition(".")[0]) >= 4 or self.expects_time:
                self.read_run_together(value)
                return end
            self.bad()
        if self.is_of_day:
            self.bad()
        digits, point, fraction = value.partition(".")
        is_first = not self.has_date and self.year is None
        if point and is_first and len(digits) >= 3 and len(fraction) == 3:
            self.set_day_of_year(int(digits), int(fraction))
        elif point:
            self.bad()
        elif len(digits) >= 6 and not self.has_date:
            self.read_run_together(digits)
        else:
            self.read_date_number(digits)
        return end

    def read_run_together(self, value: str) -> None:
        digits, _, fraction = value.partition(".")
        if not is_digits(digits):
            self.bad()
        if not (self.has_date or fraction or self.expects_time or self.is_of_day):
            if len(digits) == 6:
                self.year, self.two_digit_year = int(digits[:2]), True
                self.month, self.day = int(digits[2:4]), int(digits[4:])
                return
            if len(digits) >= 8:
                self.year = int(digits[:-4])
                self.month, self.day = int(digits[-4:-2]), int(digits[-2:])
                return
        if self.time is not None:
            self.bad()
        if len(digits) == 6:
            self.set_time(int(digits[:2]), int(digits[2:4]), int(digits[4:]), fraction)
        elif len(digits) == 4 and not fraction:
            self.set_time(int(digits[:2]), int(digits[2:]), 0, "")
        elif len(digits) <= 2 and not fraction and self.expects_time:
            self.set_time(int(digits), 0, 0, "")
        else:
            self.bad()

    def set_day_of_year(self, year: int, day_of_year: int) -> None:
        if not 1 <= day_of_year <= 366:
            self.bad()
        days = days_from_civil(year, 1, day_of_year)  # of the next year, if this one has only 365
        self.year, self.month, self.day = calendar.civil_from_days(days)

    def read_date_number(self, digits: str) -> None:
        """Use the number for the missing part of the date: year first if long, else MDY."""
        value = int(digits)
        if self.year is None and (len(digits) >= 3 or self.month is not None is not self.day):
            if len(digits) == 3 and self.month is None and self.day is None:
                self.bad()
            self.year = value
            self.two_digit_year = len(digits) <= 2
        elif self.month is None:
            self.month = value
        elif self.day is None:
            self.day = value
        else:
            self.bad()

    def read_word(self, word: str) -> None:
        if word in ("t", "at"):
            self.expects_time = word == "t"
            if word == "t" and not self.has_date and not self.is_of_day:
                self.bad()
        elif word in ("on", "the", "of"):
            if word != "on":
                self.bad()
        elif word in ("now", "today", "tomorrow", "yesterday", "epoch", "infinity", "inf"):
            self.read_special(word)
        elif word == "allballs" and self.time is None:
            self.time, self.offset = 0, 0
        elif self.is_of_day and (word in MONTHS or word in WEEKDAYS):
            self.bad()
        elif word in MONTHS and self.month is None and self.days is None:
            self.month = MONTHS[word]
        elif word in MONTHS and self.day is None and self.year is None and self.month is not None:
            self.day, self.month = self.month, MONTHS[word]  # 8 January
        elif word in WEEKDAYS:
            pass
        elif word in ("am", "pm"):
            self.half = word
        elif word in ("a.m.", "p.m."):
            self.half = word[0] + "m"
        elif word in ("bc", "ad"):
            self.bc = word == "bc"
        elif word == "j":
            self.special = "j"
        elif word == "dst" and self.offset is not None:
            self.offset += 3600
        elif re.match(r"[a-z]{3,9}[-/.][0-9]", word) and not self.has_date:
            self.read_date(word)
        else:
            self.read_zone_name(word)

    def read_special(self, word: str) -> None:
        if self.special is not None or word not in (
            "now", "today", "tomorrow", "yesterday", "epoch",
            "infinity", "inf", "-infinity", "-inf", "+infinity", "+inf",
        ):  # fmt: skip
            self.bad()
        self.special = word

    def read_zone(self, value: str) -> None:
        match = _ZONE.match(value)
        if match is None or (self.kind == "date" and self.time is None and not self.has_date):
            self.bad()
        sign, hours, minutes, seconds = match.groups()
        if minutes is None and len(hours) > 2:  # hhmm, hmm, hhmmss
            hours, minutes = hours[:-2], hours[-2:]
        hour, minute, second = int(hours), int(minutes or 0), int(seconds or 0)
        if hour > 15 or minute > 59 or second > 59:
            raise DataError(f'time zone displacement out of range: "{self.text}"', sqlstate="22009")
        east = hour * 3600 + minute * 60 + second
        east = -east if sign == "-" else east
        if self.zone_name is not None:  # UTC+3, with POSIX's sign
            self.offset, self.zone_name = -east, None
        elif self.offset is None:
            self.offset = east
        else:
            self.bad()

    def read_zone_name(self, word: str) -> None:
        if self.offset is not None or self.zone_name is not None:
            self.bad()
        if word in ABBREVIATIONS:
            self.offset = round(ABBREVIATIONS[word] * 3600)
            return
        try:
            calendar.zone_named(word)
        except InvalidParameterValue:
            if "/" in word:
                raise InvalidParameterValue(f'time zone "{word}" not recognized') from None
            self.bad()
        self.zone_name = word

    # --- the whole ------------------------------------------------------------------------

    def finish(self) -> int:
        if self.special is not None:
            return self.finish_special()
        if self.half is not None:
            if self.time is None:
                self.bad()
            if self.time >= 13 * HOUR:
                self.overflow()
            hour = self.time // HOUR
            self.time += (12 * HOUR if self.half == "pm" and hour != 12 else 0) - (
                12 * HOUR if self.half == "am" and hour == 12 else 0
            )
        if self.is_of_day:
            if self.time is None or (
                self.zone_name is not None and not self.has_date and "/" in self.zone_name
            ):
                self.bad()
            return self.time
        days = self.date()
        if self.kind == "date":
            if not calendar.DATE_LEAST <= days <= calendar.DATE_MOST:
                raise DatetimeFieldOverflow(f'date out of range: "{self.text}"')
            return days
        micros = days * DAY + (self.time or 0)
        if self.kind == "timestamptz":
            micros -= SECOND * self.offset_at(micros)
        if not calendar.TIMESTAMP_LEAST <= micros <= calendar.TIMESTAMP_MOST:
            raise DatetimeFieldOverflow(f'timestamp out of range: "{self.text}"')
        return micros

    def offset_at(self, local: int) -> int:
        if self.offset is not None:
            return self.offset
        zone = self.zone if self.zone_name is None else calendar.zone_named(self.zone_name)
        return calendar.local_offset(zone, local)

    def offset_of_day(self, time: int) -> int:
        """Return the offset of a time of day: the one given, of the date given, or of today."""
        if self.offset is not None:
            return self.offset
        zone = self.zone if self.zone_name is None else calendar.zone_named(self.zone_name)
        fixed = zone.utcoffset(None)
        if fixed is not None:
            return round(fixed.total_seconds())
        if self.has_date:
            return self.offset_at(self.date() * DAY + time)
        if self.zone_name is not None:  # its offset depends on the date
            self.bad()
        if self.now is None:
            raise FeatureNotSupported(
                "a time with time zone without an offset is not supported here",
                hint="Write the offset, as in '10:00+01'.",
            )
        today = (self.now + SECOND * calendar.utc_offset(zone, self.now)) // DAY
        return calendar.local_offset(zone, today * DAY + time)

    def date(self) -> int:
        if self.days is not None:
            return self.days
        if self.year is None or self.month is None or self.day is None:
            self.bad()
        year, month, day = self.year, self.month, self.day
        if self.two_digit_year and not self.bc:
            year += 2000 if year < 70 else 1900
        if self.bc:
            if year == 0:
                self.overflow()
            year = 1 - year
        elif year <= 0:
            self.overflow()
        if not 1 <= month <= 12 or not 1 <= day <= 31:
            self.overflow(order=True)
        if day > days_in_month(year, month):
            self.overflow()
        if year > 5_874_898:
            raise DatetimeFieldOverflow(f'{self.kind} out of range: "{self.text}"')
        return days_from_civil(year, month, day)

    def finish_special(self) -> int:
        word = self.special or ""
        if "inf" in word:
            if self.is_of_day or self.has_date or self.time is not None:
                self.bad()
            low = word.startswith("-")
            if self.kind == "date":
                return calendar.DATE_MINUS_INFINITY if low else calendar.DATE_INFINITY
            return calendar.TIMESTAMP_MINUS_INFINITY if low else calendar.TIMESTAMP_INFINITY
        if word == "j" or self.has_date:
            self.bad()
        if word == "epoch":
            if self.is_of_day or self.time is not None:
                self.bad()
            return 0
        if self.is_of_day and word != "now":
            self.bad()
        if self.now is None:
            raise FeatureNotSupported(f'the input "{word}" is not supported here')
        local = self.now + SECOND * calendar.utc_offset(self.zone, self.now)
        if word == "now":
            if self.time is not None:
                self.bad()
            match self.kind:
                case "date":
                    return local // DAY
                case "time" | "timetz":
                    return local % DAY
                case "timestamp":
                    return local
                case _:
                    return self.now
        if self.is_of_day:
            self.bad()
        self.special = None
        self.days = local // DAY + {"today": 0, "tomorrow": 1, "yesterday": -1}[word]
        return self.finish()


def fraction_micros(digits: str) -> int:
    """Return the microseconds of the digits after the point, rounded half to even."""
    return round(int(digits) * SECOND / 10 ** len(digits)) if digits else 0
