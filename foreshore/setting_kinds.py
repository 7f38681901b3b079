"""What values a session variable takes: functions that check a value and return it as SHOW does."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from zoneinfo import available_timezones

from foreshore.calendar import zone_named
from foreshore.client_encodings import encoding_named
from foreshore.digits import is_digits
from foreshore.errors import FeatureNotSupported, InvalidParameterValue
from foreshore.sizes import bytes_of, shown
from foreshore.text import truncate_name

Kind = Callable[[str, str], str]  # (name, text) -> canonical text; raises InvalidParameterValue


def _invalid(name: str, text: str) -> InvalidParameterValue:
    return InvalidParameterValue(f'invalid value for parameter "{name}": "{text}"')


def text(name: str, value: str) -> str:
    """Take any text."""
    return value


def object_name(name: str, value: str) -> str:
    """Take the name of an object, cut to 63 bytes as names are in statements."""
    return truncate_name(value)


def fraction(name: str, value: str) -> str:
    """Take a number from 0 to 1."""
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not 0 <= number <= 1:
        raise InvalidParameterValue(f'invalid value for parameter "{name}": "{value}"')
    return f"{number:g}"


_BOOLEANS = ((("true", "yes", "on", "1"), "on"), (("false", "no", "off", "0"), "off"))


def boolean(name: str, value: str) -> str:
    """Take a Boolean in any of PostgreSQL's spellings."""
    word = value.strip().lower()
    if word:
        for spellings, canonical in _BOOLEANS:
            if any(spelling.startswith(word) for spelling in spellings) and word != "o":
                return canonical
    raise InvalidParameterValue(f'parameter "{name}" requires a Boolean value')


@dataclass(frozen=True, slots=True)
class Choice:
    """A kind that takes one of `values`, whatever its case."""

    values: tuple[str, ...]

    def __call__(self, name: str, value: str) -> str:
        """Return the value as it is spelled in `values`."""
        for each in self.values:
            if each.lower() == value.strip().lower():
                return each
        raise InvalidParameterValue(
            f'invalid value for parameter "{name}": "{value}"',
            hint=f"Available values: {', '.join(self.values)}.",
        )


def choice(*values: str) -> Kind:
    """Take one of `values`."""
    return Choice(values)


def ascii_name(name: str, value: str) -> str:
    """Take up to 63 bytes, with `?` for each that is no printable ASCII, as PostgreSQL does."""
    return "".join([chr(b) if 32 <= b <= 126 else "?" for b in truncate_name(value).encode()])


def byte_size(name: str, value: str) -> str:
    """Take a size such as `500MB`, shown in the largest unit in which it is whole; 0 is none."""
    if value.strip() == "0":
        return "0"
    try:
        size = bytes_of(value.strip() + ("B" if is_digits(value.strip()) else ""))
        return shown(size).replace(" bytes", "B").replace(" ", "")
    except ValueError:
        raise InvalidParameterValue(
            f'invalid value for parameter "{name}": "{value}"',
            hint='Valid units for this parameter are "B", "kB", "MB", "GB", and "TB".',
        ) from None


def least_kilobytes(name: str, value: str) -> str:
    """Take a size that PostgreSQL has in kilobytes; -1 is no limit, and 0 allows nothing."""
    number = value.strip()
    if number in ("-1", "0"):
        return number
    return byte_size(name, f"{number}kB" if is_digits(number) else number)


def integer(low: int, high: int) -> Kind:
    """Take a whole number from `low` to `high`."""

    def parse(name: str, value: str) -> str:
        try:
            number = int(value.strip())
        except ValueError:
            raise _invalid(name, value) from None
        if not low <= number <= high:
            raise InvalidParameterValue(
                f'{number} is outside the valid range for parameter "{name}" ({low} .. {high})'
            )
        return str(number)

    return parse


BOUNDED_STALENESS = "bounded staleness "

_UNITS = {"us": 0.001, "ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"\s*(-?[0-9]+(?:\.[0-9]+)?)\s*([a-z]*)\s*\Z")


@lru_cache(256)
def milliseconds(value: str) -> int | None:
    """Return `value`, a number with an optional unit, in milliseconds; None if it is not one."""
    match = _DURATION.match(value.lower())
    if match is None or (match[2] or "ms") not in _UNITS:
        return None
    span = float(match[1]) * _UNITS[match[2] or "ms"]
    return round(span) if math.isfinite(span) else None


def isolation(name: str, value: str) -> str:
    """Take an isolation level, or `bounded staleness` and a time span."""
    words = value.strip().lower()
    if words.startswith(BOUNDED_STALENESS):
        return BOUNDED_STALENESS + duration(name, words.removeprefix(BOUNDED_STALENESS))
    return choice(*LEVELS, "bounded staleness <duration>")(name, value)


def least_duration(name: str, value: str) -> str:
    """Take a time span from which on something is done, or -1 for never."""
    return "-1" if value.strip() == "-1" else duration(name, value)


def duration(name: str, value: str) -> str:
    """Take a time span, shown in the largest unit that divides it."""
    ms = milliseconds(value)
    if ms is None:
        raise InvalidParameterValue(
            f'invalid value for parameter "{name}": "{value}"',
            hint='Valid units for this parameter are "us", "ms", "s", "min", "h", and "d".',
        )
    if not -(2**31) <= ms < 2**31:
        raise InvalidParameterValue(
            f'invalid value for parameter "{name}": "{value}"', hint="Value exceeds integer range."
        )
    if ms < 0:
        raise InvalidParameterValue(
            f'{ms} ms is outside the valid range for parameter "{name}" (0 .. 2147483647)'
        )
    if ms == 0:
        return "0"
    for unit in ("d", "h", "min", "s"):
        if ms % _UNITS[unit] == 0:
            return f"{ms // int(_UNITS[unit])}{unit}"
    return f"{ms}ms"


def retention(name: str, value: str) -> str:
    """Take a time span of any length, shown as it is given."""
    ms = milliseconds(value)
    if ms is None or ms < 0:
        raise InvalidParameterValue(
            f'invalid value for parameter "{name}": "{value}"',
            hint='Valid units for this parameter are "us", "ms", "s", "min", "h", and "d".',
        )
    return value.strip() if ms else "0"


def seconds(name: str, value: str) -> str:
    """Take a time span of whole seconds, which is also what a number without a unit is."""
    return duration(name, f"{value}s" if is_digits(value.strip().lstrip("+-")) else value)


_STYLES = {"iso": "ISO", "default": "ISO", "sql": "SQL", "postgres": "Postgres"}
_ORDERS = ("mdy", "us", "noneuro", "noneuropean")
_OTHER_WORDS = ("german", "dmy", "euro", "european", "ymd")


def datestyle(name: str, value: str) -> str:
    """Take a style, and the only supported order of fields; PostgreSQL's others are refused."""
    style = "ISO"
    for word in filter(None, re.split(r"[,\s]+", value.strip().lower())):
        if word in _OTHER_WORDS:
            raise FeatureNotSupported(f'date style "{value}" is not supported')
        if word not in _STYLES and word not in _ORDERS:
            raise _invalid(name, value)
        style = _STYLES.get(word, style)
    return f"{style}, MDY"


def encoding(name: str, value: str) -> str:
    """Take the name of an encoding, in any spelling, and return PostgreSQL's."""
    found = encoding_named(value)
    if found is None:
        raise _invalid(name, value)
    return found


_ZONES = {zone.lower(): zone for zone in available_timezones()}
LONGEST_ZONE = 255  # characters, as in PostgreSQL
_HOURS = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)\Z")
_CLOCK = re.compile(r"([+-]?)([0-9]{1,3}):([0-5][0-9])\Z")


def timezone(name: str, value: str) -> str:
    """Take a zone of the IANA data base, or hours east of Greenwich as PostgreSQL shows them.

    `UTC+3`, `<-03>+03` and `+03:00` count westwards, as in PostgreSQL and POSIX.
    """
    word = value.strip()
    if len(word) > LONGEST_ZONE:
        raise _invalid(name, value)
    if word.lower() in ("default", "local"):
        return "UTC"
    zone = _ZONES.get(word.lower())
    if zone is not None:
        return zone
    if _HOURS.match(word) is not None and abs(float(word)) < 168:
        return fixed_zone(round(float(word) * 60))
    clock = _CLOCK.match(word)
    if clock is not None and int(clock[2]) < 168:  # westwards, as in POSIX
        minutes = int(clock[2]) * 60 + int(clock[3])
        return fixed_zone(minutes if clock[1] == "-" else -minutes)
    try:
        zone_named(word)
    except InvalidParameterValue:
        raise _invalid(name, value) from None
    return word


def fixed_zone(minutes: int) -> str:
    """Return the zone that is so many minutes east of Greenwich, as PostgreSQL shows it."""
    hours, rest = divmod(abs(minutes), 60)
    amount = f"{hours:02}" + (f":{rest:02}" if rest else "")
    east, west = ("+", "-") if minutes >= 0 else ("-", "+")
    return f"<{east}{amount}>{west}{amount}"


LEVELS = (
    "read uncommitted",
    "read committed",
    "repeatable read",
    "serializable",
    "strict serializable",
)
MESSAGES = ("debug5", "debug4", "debug3", "debug2", "debug1", "log", "notice", "warning", "error")
DEBUG_TO_ERROR = (
    "debug5",
    "debug4",
    "debug3",
    "debug2",
    "debug1",
    "info",
    "notice",
    "warning",
    "error",
)
SEVERITIES = (*DEBUG_TO_ERROR, "log", "fatal", "panic")
