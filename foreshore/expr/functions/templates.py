"""Format and parse dates and times by templates: to_char, to_date, to_timestamp.

A template is read as in PostgreSQL: keywords, prefixes (FM) and suffixes (TH, th), quoted text, and
all other text literally. Keywords that are not supported are rejected.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from foreshore import calendar
from foreshore.expr.functions.function import declare
from foreshore.expr.functions.rows import fail
from foreshore.expr.functions.temporal import DAY, HIGHEST, HOUR, LOWEST, MINUTE, SECOND, data_rows

_MONTHS = (
    "January February March April May June July August September October November December".split()
)
_DAYS = "Sunday Monday Tuesday Wednesday Thursday Friday Saturday".split()
_KEYWORDS = (
    "Y,YYY YYYY YYY YY Y IYYY IYY IY I MONTH Month month MON Mon mon MM MI MS DAY Day day DDD DD"
    " DY Dy dy D IDDD ID IW HH24 HH12 HH SSSSS SSSS SS US FF1 FF2 FF3 FF4 FF5 FF6 Q J CC WW W TZH"
    " TZM TZ OF A.M. P.M. a.m. p.m. AM PM am pm A.D. B.C. AD BC a.d. b.c. ad bc RM rm FX"
).split()
_CASED = frozenset("MONTH Month month MON Mon mon DAY Day day DY Dy dy RM rm".split())
_TOKEN = re.compile(
    r'"((?:[^"\\]|\\.)*)"?|(FM|fm)|('
    + "|".join(
        re.escape(k)
        if k in _CASED or "M." in k.upper() or k.upper() in ("AM", "PM", "AD", "BC", "A.D.", "B.C.")
        else f"(?i:{re.escape(k)})"
        for k in sorted(_KEYWORDS, key=len, reverse=True)
    )
    + r")(TH|th)?|(\\?.)",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class Part:
    """A keyword with its modifiers, or literal text."""

    keyword: str | None
    text: str
    fill: bool
    ordinal: str | None


@lru_cache(256)
def parse_template(template: str) -> tuple[Part, ...]:
    """Return the parts of a template."""
    parts: list[Part] = []
    fill = True
    for match in _TOKEN.finditer(template):
        quoted, mode, keyword, ordinal, other = match.groups()
        if mode is not None:
            fill = False
        elif keyword is not None:
            name = keyword if keyword in _CASED or keyword[0] in "aApPbB" else keyword.upper()
            parts.append(Part(name, keyword, fill, ordinal))
            fill = True
        elif quoted is not None:
            parts.append(Part(None, re.sub(r"\\(.)", r"\1", quoted), True, None))
        else:
            parts.append(Part(None, other, True, None))
    return tuple(parts)


def _ordinal(number: str, style: str) -> str:
    value = int(number)
    if value % 100 in (11, 12, 13):
        suffix = "th"
    else:
        suffix = {1: "st", 2: "nd", 3: "rd"}.get(value % 10, "th")
    return suffix.upper() if style == "TH" else suffix


def to_char(micros: int, template: str) -> str | None:
    """Return a timestamp formatted by the template; NULL if it is infinite."""
    if micros in (LOWEST, HIGHEST):
        return None
    moment = _Moment(micros)
    out: list[str] = []
    for part in parse_template(template):
        if part.keyword is None:
            out.append(part.text)
            continue
        text = moment.show(part.keyword, part.fill)
        if part.ordinal is not None and text.strip().lstrip("-").isdigit():
            text += _ordinal(text, part.ordinal)
        out.append(text)
    return "".join(out)


class _Moment:
    def __init__(self, micros: int) -> None:
        self.days, self.time = divmod(micros, DAY)
        self.year, self.month, self.day = calendar.civil_from_days(self.days)
        self.weekday = (self.days + 4) % 7

    def number(self, value: int, width: int, fill: bool) -> str:
        if not fill:
            return str(value)
        return f"-{-value:0{width}}" if value < 0 else f"{value:0{width}}"

    def word(self, text: str, keyword: str, width: int, fill: bool) -> str:
        cased = text.upper() if keyword.isupper() else text.lower() if keyword.islower() else text
        return cased.ljust(width) if fill and width else cased

    def show(self, keyword: str, fill: bool) -> str:
        """Return the text of one keyword."""
        shown_year = self.year if self.year > 0 else 1 - self.year
        hour = self.time // HOUR
        second_micros = self.time % SECOND
        day_of_year = self.days - calendar.days_from_civil(self.year, 1, 1) + 1
        match keyword:
            case "YYYY" | "YYY" | "YY" | "Y":
                width = len(keyword)
                value = shown_year if width == 4 else shown_year % 10**width
                return self.number(value, width, fill)
            case "Y,YYY":
                return f"{shown_year // 1000},{shown_year % 1000:03}"
            case "IYYY" | "IYY" | "IY" | "I" if self.year > 0:
                width = len(keyword)
                return self.number(self.iso()[0] % 10**width, width, fill)
            case "IW":
                return self.number(self.iso()[1], 2, fill)
            case "ID":
                return str(self.weekday or 7)
            case "MM":
                return self.number(self.month, 2, fill)
            case "MONTH" | "Month" | "month":
                return self.word(_MONTHS[self.month - 1], keyword, 9, fill)
            case "MON" | "Mon" | "mon":
                return self.word(_MONTHS[self.month - 1][:3], keyword, 0, fill)
            case "DAY" | "Day" | "day":
                return self.word(_DAYS[self.weekday], keyword, 9, fill)
            case "DY" | "Dy" | "dy":
                return self.word(_DAYS[self.weekday][:3], keyword, 0, fill)
            case "DD":
                return self.number(self.day, 2, fill)
            case "DDD":
                return self.number(day_of_year, 3, fill)
            case "D":
                return str(self.weekday + 1)
            case "WW":
                return self.number((day_of_year - 1) // 7 + 1, 2, fill)
            case "W":
                return str((self.day - 1) // 7 + 1)
            case "Q":
                return str((self.month - 1) // 3 + 1)
            case "CC" if self.year > 0:
                return self.number((self.year + 99) // 100, 2, fill)
            case "J":
                return str(self.days + 2_440_588)
            case "HH24":
                return self.number(hour, 2, fill)
            case "HH12" | "HH":
                return self.number((hour - 1) % 12 + 1, 2, fill)
            case "MI":
                return self.number(self.time // MINUTE % 60, 2, fill)
            case "SS":
                return self.number(self.time // SECOND % 60, 2, fill)
            case "SSSS" | "SSSSS":
                return str(self.time // SECOND)
            case "MS":
                return self.number(second_micros // 1000, 3, fill)
            case "US":
                return self.number(second_micros, 6, fill)
            case "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6":
                width = int(keyword[2])
                return f"{second_micros // 10 ** (6 - width):0{width}}"
            case "AM" | "PM":
                return "PM" if hour >= 12 else "AM"
            case "am" | "pm":
                return "pm" if hour >= 12 else "am"
            case "A.M." | "P.M.":
                return "P.M." if hour >= 12 else "A.M."
            case "a.m." | "p.m.":
                return "p.m." if hour >= 12 else "a.m."
            case "AD" | "BC":
                return "AD" if self.year > 0 else "BC"
            case _:
                raise fail("0A000", f'the template pattern "{keyword}" is not supported')

    def iso(self) -> tuple[int, int]:
        monday = self.days - (self.days + 3) % 7
        year = calendar.civil_from_days(monday + 3)[0]
        first = calendar.days_from_civil(year, 1, 4)
        first -= (first + 3) % 7
        return year, (monday - first) // 7 + 1


# --- reading -----------------------------------------------------------------------------------

_WIDTHS = {
    "YYYY": 4, "MM": 2, "DD": 2, "HH24": 2, "HH12": 2, "HH": 2, "MI": 2, "SS": 2, "MS": 3,
    "US": 6, "DDD": 3,
}  # fmt: skip


def read_template(text: str, template: str) -> tuple[int, int]:
    """Return the days and the microseconds of the day that `text` gives by `template`."""
    fields: dict[str, int] = {}
    half: str | None = None
    at = 0
    parts = parse_template(template)
    for i, part in enumerate(parts):
        if part.keyword is None:
            if part.text.isspace():
                at += len(text) - at - len(text[at:].lstrip())
            elif at < len(text) and (not text[at].isalnum() or text[at] == part.text):
                at += len(part.text)
            continue
        at += len(text) - at - len(text[at:].lstrip())
        keyword = part.keyword
        if keyword.upper() in ("MONTH", "MON"):
            names = _MONTHS if keyword.upper() == "MONTH" else [m[:3] for m in _MONTHS]
            rest = text[at:].lower()
            found = next((m for m in names if rest.startswith(m.lower())), None)
            if found is None:
                raise fail("22007", f'invalid value "{text[at : at + 3]}" for "{keyword}"')
            fields["MM"] = names.index(found) + 1
            at += len(found)
        elif keyword.upper().replace(".", "") in ("AM", "PM"):
            half = text[at : at + len(keyword)].upper().replace(".", "")
            if half not in ("AM", "PM"):
                raise fail("22007", f'invalid value "{text[at : at + 2]}" for "{keyword}"')
            at += len(keyword)
        elif keyword in _WIDTHS:
            # A number extends as far as the next part cannot be a number.
            following = parts[i + 1] if i + 1 < len(parts) else None
            bounded = following is not None and following.keyword is not None
            width = _WIDTHS[keyword] if bounded or keyword != "YYYY" or part.fill else 10
            found_number = re.compile(rf"[+-]?\d{{1,{width}}}").match(text, at)
            if found_number is None:
                if at >= len(text):
                    continue
                raise fail(
                    "22007",
                    f'invalid value "{text[at : at + width]}" for "{keyword}"',
                )
            digits = found_number[0]
            value = int(digits)
            if keyword in ("MS", "US"):
                value = int(digits.ljust(width, "0"))
            fields[keyword] = value
            at = found_number.end()
        else:
            raise fail("0A000", f'the template pattern "{keyword}" is not supported')
    return _assembled(text, fields, half)


def _assembled(text: str, fields: dict[str, int], half: str | None) -> tuple[int, int]:
    year, month, day = fields.get("YYYY", 0), fields.get("MM", 1), fields.get("DD", 1)
    if "YYYY" in fields and year <= 0:
        raise fail("0A000", "years before Christ in templates are not supported")
    if "DDD" in fields:
        days = calendar.days_from_civil(year, 1, 1) + fields["DDD"] - 1
    else:
        if not 1 <= month <= 12 or not 1 <= day <= calendar.days_in_month(year, month):
            raise fail("22008", f'date/time field value out of range: "{text}"')
        days = calendar.days_from_civil(year, month, day)
    hour = fields.get("HH24", 0)
    if "HH12" in fields or "HH" in fields:
        hour = fields.get("HH12", fields.get("HH", 0))
        if not 1 <= hour <= 12:
            raise fail("22007", f'hour "{hour}" is invalid for the 12-hour clock')
        hour = hour % 12 + (12 if half == "PM" else 0)
    minute, second = fields.get("MI", 0), fields.get("SS", 0)
    if hour > 23 or minute > 59 or second > 59:
        raise fail("22008", f'date/time field value out of range: "{text}"')
    micros = fields.get("MS", 0) * 1000 + fields.get("US", 0)
    return days, hour * HOUR + minute * MINUTE + second * SECOND + micros


def _to_date(text: str, template: str) -> int:
    return read_template(text, template)[0]


def _to_timestamp(text: str, template: str) -> int:
    days, micros = read_template(text, template)
    return days * DAY + micros


for _t in ("timestamp", "timestamptz"):
    declare("to_char", f"{_t} text", "text", data_rows(to_char), fallible=True)
declare("to_date", "text text", "date", data_rows(_to_date), fallible=True)
declare("to_timestamp", "text text", "timestamptz", data_rows(_to_timestamp), fallible=True)
