"""Fields of dates and timestamps, as `foreshore/expr/functions/fields.py` defines them."""

import numpy as np

from foreshore.compute.flow.kernels.jit import inlined

(
    YEAR, QUARTER, MONTH, DAY, WEEKDAY, ISO_WEEKDAY, DAY_OF_YEAR, HOUR, MINUTE, SECOND, WEEK,
) = range(11)  # fmt: skip
_DAY, _HOUR, _MINUTE, _SECOND = 86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000
_LOWEST, _HIGHEST = np.int64(-0x8000000000000000), np.int64(0x7FFFFFFFFFFFFFFF)
FIRST = -210_866_803_200_000_000  # the first timestamp, in 4714 BC
_DATE_LOWEST, _DATE_HIGHEST = -(2**31), 2**31 - 1


@inlined
def civil(days):
    """Return the year, month and day of the month of days since 1970."""
    shifted = days + 719_468
    era = shifted // 146_097
    doe = shifted - era * 146_097
    yoe = (doe - doe // 1460 + doe // 36_524 - doe // 146_096) // 365
    doy = doe - (365 * yoe + yoe // 4 - yoe // 100)
    month = (5 * doy + 2) // 153
    day = doy - (153 * month + 2) // 5 + 1
    month = month + 3 if month < 10 else month - 9
    return yoe + era * 400 + (1 if month <= 2 else 0), month, day


@inlined
def from_civil(year, month, day):
    """Return the days since 1970."""
    year = year - (1 if month <= 2 else 0)
    era = year // 400
    yoe = year - era * 400
    doy = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    return era * 146_097 + yoe * 365 + yoe // 4 - yoe // 100 + doy - 719_468


@inlined
def field_of(field, value, is_date):
    """Return a field of a date (days) or a timestamp (microseconds), and whether it is finite.

    Seconds are in microseconds.
    """
    if is_date:
        if value == _DATE_LOWEST or value == _DATE_HIGHEST:
            return np.int64(0), False
        days, micros = value, 0
    else:
        if value == _LOWEST or value == _HIGHEST:
            return np.int64(0), False
        days = value // _DAY
        micros = value - days * _DAY
    if field == HOUR:
        found = micros // _HOUR
    elif field == MINUTE:
        found = micros // _MINUTE % 60
    elif field == SECOND:
        found = micros % _MINUTE
    elif field == WEEKDAY:
        found = (days + 4) % 7
    elif field == ISO_WEEKDAY:
        found = (days + 3) % 7 + 1
    else:
        year, month, day = civil(days)
        if field == YEAR:
            found = year if year > 0 else year - 1
        elif field == QUARTER:
            found = (month - 1) // 3 + 1
        elif field == MONTH:
            found = month
        elif field == DAY:
            found = day
        else:
            found = days - from_civil(year, 1, 1) + 1
    return np.int64(found), True


@inlined
def truncated(field, value):
    """Return a timestamp truncated to a field; it may be before all timestamps."""
    if value == _LOWEST or value == _HIGHEST:
        return value
    if field == SECOND:
        return value // _SECOND * _SECOND
    if field == MINUTE:
        return value // _MINUTE * _MINUTE
    if field == HOUR:
        return value // _HOUR * _HOUR
    days = value // _DAY
    if field == WEEK:
        days -= (days + 3) % 7
    elif field != DAY:
        year, month, _ = civil(days)
        if field == YEAR:
            month = 1
        elif field == QUARTER:
            month = (month - 1) // 3 * 3 + 1
        days = from_civil(year, month, 1)
    return np.int64(days * _DAY)


@inlined
def bin_of(micros, width, origin):
    """Return the beginning of the bin of a timestamp, and 0; 1 or 2 if it fails.

    That is if the timestamp is too far from the origin, or the beginning before all timestamps.
    """
    if micros == _LOWEST or micros == _HIGHEST:
        return micros, 0
    if abs(np.float64(micros) - np.float64(origin)) > 9.223372036854e18:
        return micros, 1
    found = origin + (micros - origin) // width * width
    return found, 2 if found < FIRST else 0
