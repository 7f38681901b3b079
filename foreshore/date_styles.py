"""Output of dates and timestamps in the styles of DateStyle, with the order MDY.

ISO         2020-01-02 12:00:00+01
SQL         01/02/2020 12:00:00 CET
Postgres    Thu Jan 02 12:00:00 2020 CET; a date is 01-02-2020
"""

from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo

from foreshore.calendar import (
    DATE_INFINITY,
    DATE_MINUS_INFINITY,
    DAY,
    SECOND,
    TIMESTAMP_INFINITY,
    TIMESTAMP_MINUS_INFINITY,
    civil_from_days,
    format_date,
    format_offset,
    format_time,
    format_timestamp,
    utc_offset,
    zone_abbreviation,
)

_MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
_WEEKDAYS = "Thu Fri Sat Sun Mon Tue Wed".split()  # from 1970-01-01
_SEPARATORS = {"SQL": "/", "Postgres": "-"}


def styled_date(days: int, style: str) -> str:
    """Return a date in the style ISO, SQL or Postgres."""
    if style == "ISO" or days in (DATE_INFINITY, DATE_MINUS_INFINITY):
        return format_date(days)
    year, month, day = civil_from_days(days)
    shown = _SEPARATORS[style].join((f"{month:02}", f"{day:02}", _year(year)))
    return shown + _era(year)


def styled_timestamp(micros: int, style: str, zone: tzinfo | None = None) -> str:
    """Return a timestamp in a style; with `zone`, a UTC timestamp displayed in that zone."""
    if style == "ISO" or micros in (TIMESTAMP_INFINITY, TIMESTAMP_MINUS_INFINITY):
        return format_timestamp(micros, zone)
    suffix = ""
    if zone is not None:
        suffix = " " + _zone_name(zone, micros)
        micros += utc_offset(zone, micros) * SECOND
    days, time = divmod(micros, DAY)
    year, month, day = civil_from_days(days)
    clock = format_time(time)
    if style == "SQL":
        return f"{month:02}/{day:02}/{_year(year)} {clock}{suffix}{_era(year)}"
    weekday = _WEEKDAYS[days % 7]
    return f"{weekday} {_MONTHS[month - 1]} {day:02} {clock} {_year(year)}{suffix}{_era(year)}"


def _year(year: int) -> str:
    return f"{year if year > 0 else 1 - year:04}"


def _era(year: int) -> str:
    return "" if year > 0 else " BC"


def _zone_name(zone: tzinfo, micros: int) -> str:
    if zone is UTC:
        return "UTC"
    if isinstance(zone, ZoneInfo):
        return zone_abbreviation(zone, micros)
    return format_offset(utc_offset(zone, micros))
