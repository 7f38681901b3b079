"""Dates and times of `.datetime()` in JSON paths."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, timezone, tzinfo
from typing import Any

from foreshore import calendar
from foreshore.expr.functions.rows import fail

_ISO = re.compile(
    r"(?:(?P<date>[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}))?"
    r"(?:(?P<between>[ T])(?=[0-9]))?"
    r"(?:(?P<time>[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]{1,6})?)"
    r"(?: ?(?P<zone>[+-][0-9]{1,2}(?::[0-9]{1,2})?))?)?"
)
_NAMES = {
    "date": "date",
    "time": "time without time zone",
    "timetz": "time with time zone",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}
_SHORT = {"time": "time", "timetz": "timetz", "date": "date"}


@dataclass(frozen=True, slots=True)
class Moment:
    """A date, time or timestamp: its local value, with the offset of its zone if it has one."""

    kind: str
    at: datetime  # a time is on the first of January of the year 2000

    @property
    def type_name(self) -> str:
        """Return the type as `.type()` does."""
        return _NAMES[self.kind]

    @property
    def text(self) -> str:
        """Return the value as a string of JSON."""
        if self.kind == "date":
            return self.at.date().isoformat()
        text = self.at.isoformat()
        if "." in text:
            head, _, rest = text.partition(".")
            fraction, rest = rest[:6].rstrip("0"), rest[6:]
            text = f"{head}.{fraction}{rest}"
        return (
            text.partition("T")[2]
            if self.kind.startswith("time") and (self.kind in ("time", "timetz"))
            else text
        )


def moment_of(value: Any, template: str | None) -> Moment:
    """Return the moment that a string stands for; raises Failure."""
    if not isinstance(value, str):
        raise fail("22031", "jsonpath item method .datetime() can only be applied to a string")
    if template is not None:
        raise fail("0A000", ".datetime() with a template is not supported")
    found = _ISO.fullmatch(value)
    unknown = fail("22031", f'datetime format is not recognized: "{value}"')
    if found is None or not (found["date"] or found["time"]):
        raise unknown
    if bool(found["between"]) != bool(found["date"] and found["time"]):
        raise unknown
    try:
        return _moment(found)
    except ValueError:
        raise fail("22008", f'date/time field value out of range: "{value}"') from None


def _moment(found: re.Match[str]) -> Moment:
    year, month, day = 2000, 1, 1
    if found["date"]:
        year, month, day = map(int, found["date"].split("-"))
    clock = time()
    if found["time"]:
        whole, _, fraction = found["time"].partition(".")
        hour, minute, second = map(int, whole.split(":"))
        clock = time(hour, minute, second, int(fraction.ljust(6, "0") or 0))
    zone = None
    if found["zone"]:
        east, _, rest = found["zone"][1:].partition(":")
        offset = timedelta(hours=int(east), minutes=int(rest or 0))
        zone = timezone(-offset if found["zone"][0] == "-" else offset)
    kind = ("timestamp" if found["date"] else "time") if found["time"] else "date"
    at = datetime.combine(datetime(year, month, day).date(), clock, zone)
    return Moment(kind + ("tz" if zone else ""), at)


def _in_zone(moment: Moment, zone: tzinfo) -> Moment:
    """Return a local moment as one of `zone`; one of a zone is unchanged."""
    if moment.at.tzinfo is not None:
        return moment
    micros = (moment.at - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    offset = timezone(timedelta(seconds=calendar.local_offset(zone, micros)))
    return Moment(moment.kind, moment.at.replace(tzinfo=offset))


def compared(a: Moment, b: Moment, zone: tzinfo | None = None) -> int | None:
    """Return how two moments compare, None if they do not; raises Failure.

    A moment of a zone and one without compare only in a session's `zone`.
    """
    is_time = a.kind in ("time", "timetz")
    if is_time != (b.kind in ("time", "timetz")):
        return None
    if (a.at.tzinfo is None) != (b.at.tzinfo is None):
        if zone is not None:
            return compared(_in_zone(a, zone), _in_zone(b, zone))
        plain, zoned = (a, b) if a.at.tzinfo is None else (b, a)
        raise fail(
            "0A000",
            f"cannot convert value from {plain.kind} to {zoned.kind} without time zone usage",
        )
    if a.at.tzinfo is None:
        return (a.at > b.at) - (a.at < b.at)
    first, second = a.at.astimezone(UTC), b.at.astimezone(UTC)
    order = (first > second) - (first < second)
    if order or not is_time:
        return order
    offsets = [each.utcoffset() or timedelta() for each in (a.at, b.at)]
    return (offsets[0] < offsets[1]) - (offsets[0] > offsets[1])
