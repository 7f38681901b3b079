"""time with time zone: text and stored forms.

A value is a local time of day in microseconds and an offset in seconds, east positive. It is stored
as 12 bytes: the time in UTC (which may lie outside of the day), then the offset counted westwards.
The order of these bytes is PostgreSQL's: by the moment of the day, then the western offset last.

    >>> zoned_time_text(stored_zoned_time(36_000_000_000, 3600))
    '10:00:00+01'
"""

from foreshore import calendar
from foreshore.calendar import DAY, SECOND

_TIMES, _OFFSETS = 2**63, 2**31


def stored_zoned_time(micros: int, offset: int) -> bytes:
    """Return the datum of a local time of day at an offset in seconds, east positive."""
    utc = micros - offset * SECOND
    return (utc + _TIMES).to_bytes(8, "big") + (_OFFSETS - offset).to_bytes(4, "big")


def zoned_time_of(datum: bytes) -> tuple[int, int]:
    """Return the local time of day in microseconds, and the offset in seconds, east positive."""
    offset = _OFFSETS - int.from_bytes(datum[8:], "big")
    return int.from_bytes(datum[:8], "big") - _TIMES + offset * SECOND, offset


def at_offset(datum: bytes, offset: int) -> bytes:
    """Return the same moment of the day at another offset."""
    utc = int.from_bytes(datum[:8], "big") - _TIMES
    return stored_zoned_time((utc + offset * SECOND) % DAY, offset)


def zoned_time_text(datum: bytes) -> str:
    """Return the text of a datum: `10:00:00.5-03:30`."""
    micros, offset = zoned_time_of(datum)
    return calendar.format_time(micros) + calendar.format_offset(offset)
