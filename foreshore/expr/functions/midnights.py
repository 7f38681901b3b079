"""Timestamps as values next to them, with which other types are compared in place of a cast.

    first_date     the first date whose midnight is not before a timestamp
    last_date      the last date whose midnight is not after it
    before_local   a local time before all that are, in a zone, at a timestamptz or later
    after_local    one after all that are at it or earlier

    d >= at    d >= first_date(at)          d > at    d > last_date(at)
    d < at     d < first_date(at)           d <= at   d <= last_date(at)

This holds as no date begins before an earlier one, in any zone: where clocks skip a whole day, two
dates begin at the same moment. Midnights are those of `compared(date,timestamp)`, so a date beyond
all timestamps begins with the last of them. Local times are not in the order of their moments where
clocks are set back; but offsets are less than a day, so two of them differ by less than two days.
"""

from collections.abc import Callable
from datetime import UTC, tzinfo

from foreshore import calendar
from foreshore.expr.functions.function import hidden
from foreshore.expr.functions.temporal import (
    DATE_HIGHEST,
    DATE_LEAST,
    DATE_LOWEST,
    DATE_MOST,
    DAY,
    HIGHEST,
    LEAST,
    LOWEST,
    MOST,
    SECOND,
    data_rows,
    zone_of,
)


def midnight(zone: tzinfo, day: int) -> int:
    """Return the moment with which a finite date is compared."""
    local = day * DAY if day <= MOST // DAY else MOST
    moment = local - calendar.local_offset(zone, local) * SECOND
    return max(LEAST - 1, min(moment, MOST))


def first_date(zone: tzinfo, at: int) -> int:
    """Return the first date whose midnight is not before a timestamp."""
    if at in (LOWEST, HIGHEST):
        return DATE_LOWEST if at == LOWEST else DATE_HIGHEST
    if midnight(zone, DATE_MOST) < at:
        return DATE_HIGHEST
    if midnight(zone, DATE_LEAST) >= at:
        return DATE_LEAST
    day = _local_day(zone, at)
    while midnight(zone, day) < at:
        day += 1
    while midnight(zone, day - 1) >= at:
        day -= 1
    return day


def last_date(zone: tzinfo, at: int) -> int:
    """Return the last date whose midnight is not after a timestamp."""
    if at in (LOWEST, HIGHEST):
        return DATE_LOWEST if at == LOWEST else DATE_HIGHEST
    if midnight(zone, DATE_MOST) <= at:
        return DATE_MOST
    if midnight(zone, DATE_LEAST) > at:
        return DATE_LOWEST
    day = _local_day(zone, at)
    while midnight(zone, day) > at:
        day -= 1
    while midnight(zone, day + 1) <= at:
        day += 1
    return day


def _local_day(zone: tzinfo, at: int) -> int:
    return max(DATE_LEAST, min(_local(zone, at) // DAY, MOST // DAY))


def _local(zone: tzinfo, at: int) -> int:
    return at + calendar.utc_offset(zone, at) * SECOND


def beside_local(zone: tzinfo, at: int, days: int) -> int:
    """Return the local time some days from that of a moment, or the last one on this side."""
    return at if at in (LOWEST, HIGHEST) else max(LEAST, min(_local(zone, at) + days * DAY, MOST))


def _declare(name: str, find: Callable[[tzinfo, int], int]) -> None:
    for type in ("timestamp", "timestamptz"):
        hidden(f"{name}({type})", type, "date", data_rows(lambda at: find(UTC, at)))
    hidden(
        f"{name}(text,timestamptz)",
        "text timestamptz",
        "date",
        data_rows(lambda zone, at: find(zone_of(zone), at)),
    )


_declare("first_date", first_date)
_declare("last_date", last_date)
for _name, _days in (("before_local", -2), ("after_local", 2)):
    hidden(
        f"{_name}(text,timestamptz)",
        "text timestamptz",
        "timestamp",
        data_rows(lambda zone, at, days=_days: beside_local(zone_of(zone), at, days)),
    )
