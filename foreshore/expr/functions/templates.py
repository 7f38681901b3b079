"""to_char of dates, times and intervals."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import tzinfo
from typing import Any

from foreshore import calendar
from foreshore.digits import is_digits
from foreshore.expr.functions.function import declare, hidden
from foreshore.expr.functions.rows import fail
from foreshore.expr.functions.template_parts import (
    DAYS,
    MONTHS,
    ROMAN_MONTHS,
    Part,
    parse_template,
)
from foreshore.expr.functions.temporal import (
    DAY,
    HIGHEST,
    HOUR,
    LOWEST,
    MINUTE,
    SECOND,
    data_rows,
    zone_of,
)

Zoned = tuple[int, str]  # seconds east of UTC, abbreviation


def to_char(micros: int, template: str, zoned: Zoned = (0, "")) -> str | None:
    """Return a local time formatted by the template; NULL if it is infinite."""
    if micros in (LOWEST, HIGHEST):
        return None
    return _shown(_Moment(micros, zoned), template)


def to_char_of_moment(name: str, micros: int, template: str) -> str | None:
    """Return a moment formatted by the template in the zone `name`."""
    if micros in (LOWEST, HIGHEST):
        return None
    zone: tzinfo = zone_of(name)
    offset = calendar.utc_offset(zone, micros)
    abbreviation = calendar.zone_abbreviation(zone, micros)
    return to_char(micros + offset * SECOND, template, (offset, abbreviation))


def _of_interval(interval: tuple[int, int, int], template: str) -> str:
    return _shown(_Span(*interval), template)


def _shown(value: "_Fields", template: str) -> str:
    out: list[str] = []
    for part in parse_template(template):
        if part.keyword is None:
            out.append(part.text)
            continue
        text = value.show(part)
        if part.ordinal is not None and is_digits(text.strip().lstrip("-")):
            text += _ordinal(text, part.ordinal)
        out.append(text)
    return "".join(out)


def _ordinal(number: str, style: str) -> str:
    suffix = {"1": "st", "2": "nd", "3": "rd"}.get(number[-1], "th")
    if number[-2:-1] == "1":
        suffix = "th"
    return suffix.upper() if style == "TH" else suffix


def _padded(value: int, width: int, part: Part) -> str:
    """Return a number of `width` digits, or as short as possible after FM."""
    if not part.fill:
        return str(value)
    return f"-{-value:0{width}}" if value < 0 else f"{value:0{width}}"


def _fixed(value: int, width: int, part: Part) -> str:
    """Return a number of `width` characters, its sign included."""
    return f"{value:0{width}}" if part.fill else str(value)


def _rest(value: int, by: int) -> int:
    """Return the remainder with the sign of `value`."""
    return value % by if value >= 0 else -(-value % by)


def _whole(value: int, by: int) -> int:
    """Return the quotient, rounded to zero."""
    return value // by if value >= 0 else -(-value // by)


class _Fields(ABC):
    """The fields of a time or an interval, as text by keyword.

    Remainders have the sign of their number.
    """

    year: int
    month: int
    day: int
    day_of_year: int
    hour: int
    time: int  # microseconds of the day, or of an interval
    is_interval = False

    def show(self, part: Part) -> str:
        """Return the text of one keyword."""
        keyword = part.keyword
        assert keyword is not None
        compute = _CLOCK.get(keyword) or _CALENDAR.get(keyword)
        if compute is not None:
            return compute(self, part)
        return self.dated(keyword, part)

    @abstractmethod
    def dated(self, keyword: str, part: Part) -> str:
        """Return the text of a keyword that only dates have."""

    @property
    def shown_year(self) -> int:
        """Return the year without its era."""
        return self.year if self.is_interval or self.year > 0 else 1 - self.year


class _Moment(_Fields):
    def __init__(self, micros: int, zoned: Zoned) -> None:
        self.days, self.time = divmod(micros, DAY)
        self.hour = self.time // HOUR
        self.year, self.month, self.day = calendar.civil_from_days(self.days)
        self.day_of_year = self.days - calendar.days_from_civil(self.year, 1, 1) + 1
        self.weekday = (self.days + 4) % 7
        self.offset, self.zone = zoned

    def dated(self, keyword: str, part: Part) -> str:
        match keyword.upper():
            case "MONTH":
                return _word(MONTHS[self.month - 1], keyword, 9, part)
            case "MON":
                return _word(MONTHS[self.month - 1][:3], keyword, 0, part)
            case "DAY":
                return _word(DAYS[self.weekday], keyword, 9, part)
            case "DY":
                return _word(DAYS[self.weekday][:3], keyword, 0, part)
            case "D":
                return str(self.weekday + 1)
            case "ID":
                return str(self.weekday or 7)
            case "IDDD":
                return _padded(self.days - self.iso()[2] + 1, 3, part)
            case "IW":
                return _padded(self.iso()[1], 2, part)
            case "IYYY" | "IYY" | "IY" | "I":
                year, width = self.iso()[0], len(keyword)
                shown = year if year > 0 else 1 - year
                return _padded(shown % 10**width if width < 4 else shown, width, part)
            case "J":
                return str(self.days + 2_440_588)
            case "AD" | "BC" | "A.D." | "B.C.":
                era = "AD" if self.year > 0 else "BC"
                return _dotted(era, keyword)
            case "TZ":
                return self.zone if keyword == "TZ" else self.zone.lower()
        sign, (hours, minutes) = "-" if self.offset < 0 else "+", divmod(abs(self.offset) // 60, 60)
        match keyword:
            case "TZH":
                return f"{sign}{hours:02}"
            case "TZM":
                return f"{minutes:02}"
            case "OF":
                return sign + _padded(hours, 2, part) + (f":{minutes:02}" if minutes else "")
        return ""  # FX, which concerns reading

    def iso(self) -> tuple[int, int, int]:
        """Return the year and week of ISO 8601, and the first day of that year."""
        monday = self.days - (self.days + 3) % 7
        year = calendar.civil_from_days(monday + 3)[0]
        first = calendar.days_from_civil(year, 1, 4)
        first -= (first + 3) % 7
        return year, (monday - first) // 7 + 1, first


class _Span(_Fields):
    is_interval = True

    def __init__(self, months: int, days: int, micros: int) -> None:
        self.year, self.month = _whole(months, 12), _rest(months, 12)
        self.day, self.time = days, micros
        self.day_of_year = months * 30 + days
        self.hour = _whole(micros, HOUR)

    def dated(self, keyword: str, part: Part) -> str:
        if keyword in ("IYYY", "IYY", "IY", "I", "IW", "IDDD", "J"):
            raise fail("0A000", f'the template pattern "{keyword}" of intervals is not supported')
        if keyword == "FX":
            return ""
        raise fail("22007", "invalid format specification for an interval value")


def _word(text: str, keyword: str, width: int, part: Part) -> str:
    cased = text.upper() if keyword.isupper() else text.lower() if keyword.islower() else text
    return cased.ljust(width) if part.fill and not part.localized else cased


def _dotted(word: str, keyword: str) -> str:
    """Return a word of two letters in the form of the keyword."""
    text = f"{word[0]}.{word[1]}." if "." in keyword else word
    return text.lower() if keyword.islower() else text


def _half(value: _Fields, part: Part) -> str:
    assert part.keyword is not None
    return _dotted("PM" if _rest(value.hour, 24) >= 12 else "AM", part.keyword)


def _century(value: _Fields, part: Part) -> str:
    if value.is_interval:
        return _padded(_whole(value.year, 100), 2, part)
    return _padded(
        (value.year + 99) // 100 if value.year > 0 else _whole(value.year, 100) - 1, 2, part
    )


def _year(value: _Fields, part: Part) -> str:
    assert part.keyword is not None
    width = len(part.keyword)
    return _padded(_rest(value.shown_year, 10**width), width, part)


def _full_year(value: _Fields, part: Part) -> str:
    return _padded(value.shown_year, 4, part)


def _divided_year(value: _Fields, part: Part) -> str:
    thousands = _whole(value.shown_year, 1000)
    return f"{thousands},{value.shown_year - thousands * 1000:03}"


def _roman(value: _Fields, part: Part) -> str:
    month = value.month
    if not month:  # of an interval of whole years
        if not value.year:
            return ""
        month = 12 if value.year > 0 else 1
    text = ROMAN_MONTHS[month - 1 if month > 0 else month + 12]
    text = text.lower() if part.keyword == "rm" else text
    return text.ljust(4) if part.fill else text


def _quarter(value: _Fields, part: Part) -> str:
    return str(_whole(value.month - 1, 3) + 1) if value.month else ""


def _twelve(value: _Fields, part: Part) -> str:
    return _padded(_rest(value.hour, 12) or 12, 2, part)


def _fraction(digits: int) -> Callable[[Any, Part], str]:
    def shown(value: _Fields, part: Part) -> str:
        micros = _whole(_rest(value.time, SECOND), 10 ** (6 - digits))
        return f"-{-micros:0{digits}}" if micros < 0 else f"{micros:0{digits}}"

    return shown


_Show = Callable[[_Fields, Part], str]
_CLOCK: dict[str, _Show] = {
    "HH24": lambda value, part: _padded(value.hour, 2, part),
    "HH12": _twelve,
    "HH": _twelve,
    "MI": lambda value, part: _padded(_rest(_whole(value.time, MINUTE), 60), 2, part),
    "SS": lambda value, part: _padded(_rest(_whole(value.time, SECOND), 60), 2, part),
    "SSSS": lambda value, part: str(_whole(value.time, SECOND)),
    "SSSSS": lambda value, part: str(_whole(value.time, SECOND)),
    "MS": _fraction(3),
    "US": _fraction(6),
    **{f"FF{digits}": _fraction(digits) for digits in range(1, 7)},
    **dict.fromkeys(("AM", "PM", "am", "pm", "A.M.", "P.M.", "a.m.", "p.m."), _half),
}
_CALENDAR: dict[str, _Show] = {
    "Y,YYY": _divided_year,
    "YYYY": _full_year,
    **dict.fromkeys(("YYY", "YY", "Y"), _year),
    "CC": _century,
    "Q": _quarter,
    "MM": lambda value, part: _padded(value.month, 2, part),
    **dict.fromkeys(("RM", "rm"), _roman),
    "WW": lambda value, part: _fixed(_whole(value.day_of_year - 1, 7) + 1, 2, part),
    "W": lambda value, part: str(_whole(value.day - 1, 7) + 1),
    "DDD": lambda value, part: _fixed(value.day_of_year, 3, part),
    "DD": lambda value, part: _fixed(value.day, 2, part),
}


def _in_utc(micros: int, template: str) -> str | None:
    return to_char(micros, template, (0, "UTC"))


declare("to_char", "timestamp text", "text", data_rows(to_char), fallible=True)
declare("to_char", "timestamptz text", "text", data_rows(_in_utc), fallible=True)
declare("to_char", "interval text", "text", data_rows(_of_interval), fallible=True)
hidden(
    "to_char(text,timestamptz,text)",
    "text timestamptz text",
    "text",
    data_rows(to_char_of_moment),
    fallible=True,
)
