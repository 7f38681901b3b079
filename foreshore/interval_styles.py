"""Interval output in the styles of IntervalStyle; `calendar.format_interval` is that of `postgres`.

postgres            1 year 2 mons -3 days +04:05:06
postgres_verbose    @ 1 year 2 mons -3 days 4 hours 5 mins 6 secs
sql_standard        +1-2 -3 +4:05:06
iso_8601            P1Y2M-3DT4H5M6S
"""

from collections.abc import Callable
from typing import NamedTuple

from foreshore.calendar import HOUR, MINUTE, SECOND, format_interval


class _Fields(NamedTuple):
    """An interval's fields, each with its sign; `seconds` are microseconds."""

    years: int
    months: int
    days: int
    hours: int
    minutes: int
    seconds: int

    @classmethod
    def of(cls, months: int, days: int, micros: int) -> "_Fields":
        sign = -1 if micros < 0 else 1
        hours, rest = divmod(abs(micros), HOUR)
        minutes, seconds = divmod(rest, MINUTE)
        year_sign = -1 if months < 0 else 1
        years, months = divmod(abs(months), 12)
        return cls(
            *(year_sign * years, year_sign * months, days),
            *(sign * hours, sign * minutes, sign * seconds),
        )


def _seconds(micros: int, *, padded: bool) -> str:
    whole, fraction = divmod(abs(micros), SECOND)
    text = f"{whole:02}" if padded else str(whole)
    return f"{text}.{fraction:06}".rstrip("0") if fraction else text


def _sql_standard(months: int, days: int, micros: int) -> str:
    fields = _Fields.of(months, days, micros)
    negative, positive = any(f < 0 for f in fields), any(f > 0 for f in fields)
    if not (negative or positive):
        return "0"
    dated, timed = bool(months), bool(days or micros)
    years, month, day, hours, minutes, seconds = map(abs, fields)
    time = f"{hours}:{minutes:02}:{_seconds(seconds, padded=True)}"
    if (negative and positive) or (dated and timed):
        signs = ("-" if part < 0 else "+" for part in (months, days, micros))
        return "{}{}-{} {}{} {}{}".format(
            *(next(signs), years, month), *(next(signs), day), *(next(signs), time)
        )
    sign = "-" if negative else ""
    if dated:
        return f"{sign}{years}-{month}"
    return f"{sign}{day} {time}" if day else f"{sign}{time}"


def _iso_8601(months: int, days: int, micros: int) -> str:
    if not (months or days or micros):
        return "PT0S"
    years, month, day, hours, minutes, seconds = _Fields.of(months, days, micros)
    parts = [f"{n}{unit}" for n, unit in ((years, "Y"), (month, "M"), (day, "D")) if n]
    if micros:
        parts.append("T")
        parts += [f"{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M")) if n]
        if seconds:
            parts.append(f"{'-' if seconds < 0 else ''}{_seconds(seconds, padded=False)}S")
    return "P" + "".join(parts)


def _postgres_verbose(months: int, days: int, micros: int) -> str:
    fields = _Fields.of(months, days, micros)
    first = next((field for field in fields if field), 0)
    if not first:
        return "@ 0"
    sign = -1 if first < 0 else 1
    parts = ["@"]
    for value, unit in zip(fields[:5], ("year", "mon", "day", "hour", "min"), strict=True):
        if value:
            value *= sign
            parts.append(f"{value} {unit}{'' if value == 1 else 's'}")
    if seconds := fields.seconds * sign:
        shown = _seconds(seconds, padded=False)
        parts.append(f"{'-' if seconds < 0 else ''}{shown} sec{'' if shown == '1' else 's'}")
    return " ".join([*parts, *(["ago"] if sign < 0 else [])])


STYLES: dict[str, Callable[[int, int, int], str]] = {
    "postgres": format_interval,
    "postgres_verbose": _postgres_verbose,
    "sql_standard": _sql_standard,
    "iso_8601": _iso_8601,
}
