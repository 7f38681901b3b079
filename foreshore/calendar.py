"""The calendar: converts days and microseconds since 1970 to fields and back.

It is the proleptic Gregorian calendar with astronomical years (0 is 1 BC), over PostgreSQL's whole
range. Python's datetime ends at the years 1 and 9999, so this is integer arithmetic. Only time zone
offsets come from `zoneinfo`; outside its range the rules of the 400-year cycle continue.
"""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from foreshore.errors import InvalidParameterValue

DAY = 86_400_000_000  # microseconds
HOUR = 3_600_000_000
MINUTE = 60_000_000
SECOND = 1_000_000

# Physical forms of the infinities.
DATE_INFINITY = 2**31 - 1
DATE_MINUS_INFINITY = -(2**31)
TIMESTAMP_INFINITY = 2**63 - 1
TIMESTAMP_MINUS_INFINITY = -(2**63)
# The first and last finite values: 4714-11-24 BC, the start of Julian days, for both; the last date
# of PostgreSQL, 5874897-12-31; and 294247-01-10 04:00:54.775806, where 64 bits of microseconds end.
DATE_LEAST, DATE_MOST = -2_440_588, 2_145_042_905
TIMESTAMP_LEAST, TIMESTAMP_MOST = -210_866_803_200_000_000, 2**63 - 2
EPOCH_2000 = 946_684_800_000_000

_POSIX_ZONE = re.compile(
    r"(?:<[^>]*>|[A-Za-z]{3,})([+-]?)([0-9]{1,2})(?::?([0-9]{2}))?(?::([0-9]{2}))?\Z"
)
_OFFSET_ZONE = re.compile(r"([+-])?([0-9]{1,2})(?::?([0-9][0-9]))?\Z")
_EPOCH = datetime(1970, 1, 1)
_UTC_NAMES = frozenset(
    ("UTC", "GMT", "Z", "ZULU", "UCT", "UNIVERSAL", "ETC/UTC", "ETC/UCT", "ETC/GMT")
)


def days_from_civil(year: int, month: int, day: int) -> int:
    """Return the days since 1970-01-01 of a date; `day` may be outside its month."""
    year -= month <= 2
    era, yoe = divmod(year, 400)
    doy = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return era * 146_097 + yoe * 365 + yoe // 4 - yoe // 100 + doy - 719_468


def civil_from_days(days: int) -> tuple[int, int, int]:
    """Return year, month, day of the date `days` after 1970-01-01."""
    era, doe = divmod(days + 719_468, 146_097)
    yoe = (doe - doe // 1460 + doe // 36_524 - doe // 146_096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    shifted = (5 * doy + 2) // 153
    day = doy - (153 * shifted + 2) // 5 + 1
    month = shifted + (3 if shifted < 10 else -9)
    return yoe + era * 400 + (month <= 2), month, day


def days_in_month(year: int, month: int) -> int:
    """Return how many days the month has."""
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


@lru_cache(256)
def zone_named(name: str) -> tzinfo:
    """Return the time zone `name`: an IANA name in any case, an offset, or a POSIX zone.

    Raises InvalidParameterValue `time zone "x" not recognized`.
    """
    if name.upper() in _UTC_NAMES:
        return UTC
    if (match := _OFFSET_ZONE.match(name)) is not None:
        sign, hours, minutes = match.groups()
        offset = timedelta(hours=int(hours), minutes=int(minutes or 0))
        if offset < timedelta(hours=24):
            return timezone(-offset if sign == "-" else offset)
    try:
        return ZoneInfo(_canonical_zones().get(name.lower(), name))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        pass
    if (match := _POSIX_ZONE.match(name)) is not None:
        sign, hours, minutes, seconds = match.groups()
        west = timedelta(hours=int(hours), minutes=int(minutes or 0), seconds=int(seconds or 0))
        if west < timedelta(hours=24):  # POSIX counts westwards
            return timezone(west if sign == "-" else -west) if west else UTC
    raise InvalidParameterValue(f'time zone "{name}" not recognized')


@lru_cache(1)
def _canonical_zones() -> dict[str, str]:
    from zoneinfo import available_timezones

    return {name.lower(): name for name in available_timezones()}


def zone_names() -> list[str]:
    """Return the names of all zones, in order."""
    return sorted(_canonical_zones().values())


def _within_python(micros: int) -> datetime:
    """Return a datetime within Python's range with the same zone offsets as `micros` since 1970."""
    days, rest = divmod(micros, DAY)
    year, month, day = civil_from_days(days)
    if not 2 <= year <= 9998:
        days = days_from_civil(2 if year < 2 else 2400 + year % 400, month, day)
    return _EPOCH + timedelta(days=days, microseconds=rest)


def utc_offset(zone: tzinfo, micros: int) -> int:
    """Return the offset of `zone` in seconds, east positive, at `micros` of UTC."""
    if zone is UTC:
        return 0
    at = _within_python(micros).replace(tzinfo=UTC).astimezone(zone)
    offset = at.utcoffset()
    return 0 if offset is None else round(offset.total_seconds())


def zone_abbreviation(zone: tzinfo, micros: int) -> str:
    """Return the abbreviation of a zone's time at `micros` of UTC, such as CET."""
    at = _within_python(micros).replace(tzinfo=UTC).astimezone(zone)
    return at.tzname() or format_offset(utc_offset(zone, micros))


def summer_time(zone: tzinfo, micros: int) -> int:
    """Return the part of the offset in seconds that is summer time, at `micros` of UTC."""
    at = _within_python(micros).replace(tzinfo=UTC).astimezone(zone)
    summer = at.dst()
    return 0 if summer is None else round(summer.total_seconds())


def local_offset(zone: tzinfo, micros: int) -> int:
    """Return the offset in seconds of the local time `micros` in `zone`.

    PostgreSQL uses the smaller offset for ambiguous times: the offset before a skipped time, and
    the offset after a repeated one.
    """
    if zone is UTC:
        return 0
    local = _within_python(micros)
    offsets = (local.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1))
    return min(0 if offset is None else round(offset.total_seconds()) for offset in offsets)


def format_offset(seconds: int) -> str:
    """Return an offset as ISO output has it: +02, -03:30, +00:19:32."""
    sign = "-" if seconds < 0 else "+"
    minutes, second = divmod(abs(seconds), 60)
    hour, minute = divmod(minutes, 60)
    text = f"{sign}{hour:02}"
    if minute or second:
        text += f":{minute:02}"
    return f"{text}:{second:02}" if second else text


def format_date(days: int) -> str:
    """Return a date in ISO style."""
    if days == DATE_INFINITY:
        return "infinity"
    if days == DATE_MINUS_INFINITY:
        return "-infinity"
    year, month, day = civil_from_days(days)
    if year > 0:
        return f"{year:04}-{month:02}-{day:02}"
    return f"{1 - year:04}-{month:02}-{day:02} BC"


def format_time(micros: int) -> str:
    """Return a time of day, with as few fractional digits as possible."""
    seconds, fraction = divmod(micros, SECOND)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    text = f"{hour:02}:{minute:02}:{second:02}"
    return f"{text}.{fraction:06}".rstrip("0") if fraction else text


def format_timestamp(micros: int, zone: tzinfo | None = None) -> str:
    """Return a timestamp in ISO style: with `zone`, a UTC timestamp displayed in that zone."""
    if micros == TIMESTAMP_INFINITY:
        return "infinity"
    if micros == TIMESTAMP_MINUS_INFINITY:
        return "-infinity"
    suffix = ""
    if zone is not None:
        offset = utc_offset(zone, micros)
        micros += offset * SECOND
        suffix = format_offset(offset)
    days, time = divmod(micros, DAY)
    date, era, _ = format_date(days).partition(" BC")
    return f"{date} {format_time(time)}{suffix}{era}"


def format_interval(months: int, days: int, micros: int) -> str:
    """Return an interval in the style `postgres`: `1 year 2 mons -3 days +04:05:06.7`."""
    parts: list[str] = []
    negative = False  # whether the previous part was negative: the next one then shows a plus sign
    years, months = int(months / 12), months - 12 * int(months / 12)
    for value, unit in ((years, "year"), (months, "mon"), (days, "day")):
        if value:
            sign = "+" if negative and value > 0 else ""
            parts.append(f"{sign}{value} {unit}{'' if value == 1 else 's'}")
            negative = value < 0
    if micros or not parts:
        sign = "-" if micros < 0 else "+" if negative else ""
        parts.append(sign + format_time(abs(micros)))
    return " ".join(parts)
