"""The time zones and abbreviations that names and constants of times may use, as rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from foreshore import calendar
from foreshore.datetime_text import ABBREVIATIONS

_HOUR_MICROS = 3_600_000_000
_SUMMER = frozenset(("bst", "idt", "west"))  # that do not end in DT or EST


@dataclass(frozen=True, slots=True)
class ZoneRow:
    """A zone or abbreviation with its offset in seconds, east positive."""

    name: str
    abbreviation: str
    offset: int
    is_summer: bool


@lru_cache(2)
def zones_in(hour: int) -> tuple[ZoneRow, ...]:
    """Return all zones as they are in an hour since 1970; clocks change at the hour or half."""
    at = hour * _HOUR_MICROS
    rows = []
    for name in calendar.zone_names():
        zone = calendar.zone_named(name)
        offset, summer = calendar.utc_offset(zone, at), calendar.summer_time(zone, at)
        rows.append(ZoneRow(name, calendar.zone_abbreviation(zone, at), offset, bool(summer)))
    return tuple(rows)


def abbreviations() -> Iterator[ZoneRow]:
    """Yield the abbreviations with a fixed offset."""
    for word, hours in ABBREVIATIONS.items():
        ends = word.endswith(("dt", "est")) and word not in ("est", "aest")
        summer = word in _SUMMER or ends or word == "msd"
        yield ZoneRow("", word.upper(), round(hours * 3600), summer)
