"""Interval arithmetic over whole columns, for values far from the ends of their ranges.

Each function returns None if a row might be out of range or is an error; the functions of
`intervals.py`, which go row by row, then compute all rows. Both give the same values.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from foreshore.expr.functions.function import Kernel, Outcome, Signature
from foreshore.expr.functions.temporal import interval_fields, intervals, nulls

# months and days below 2^30, and microseconds that floats hold exactly
_FEW = 2**30
_EXACT = 2**52

Columns = Callable[..., pa.Array | None]


def by_columns(columns: Columns, rows: Kernel) -> Kernel:
    """Return a kernel that computes by `columns`, or by `rows` where that returns None."""

    def kernel(types: Signature, *arrays: pa.Array) -> Outcome:
        found = columns(*arrays)
        return rows(types, *arrays) if found is None else found

    return kernel


def sum_of(a: pa.Array, b: pa.Array, sign: int = 1) -> pa.Array | None:
    """Return a + sign * b."""
    left, right = interval_fields(a), interval_fields(b)
    if not (_is_ordinary(*left) and _is_ordinary(*right)):
        return None
    months, days, micros = (x + sign * y for x, y in zip(left, right, strict=True))
    return intervals(months, days, micros, nulls(a, b))


def negated(a: pa.Array) -> pa.Array | None:
    """Return -a."""
    months, days, micros = interval_fields(a)
    if not _is_ordinary(months, days, micros):
        return None
    return intervals(-months, -days, -micros, nulls(a))


def scaled(a: pa.Array, factor: pa.Array, *, divide: bool) -> pa.Array | None:
    """Return intervals times floats, or divided by them.

    Fractions of months become days (30 a month), those of days microseconds, as in PostgreSQL's
    `interval_mul`.
    """
    fields = interval_fields(a)
    by = factor.fill_null(1.0).to_numpy(zero_copy_only=False)
    if not _is_ordinary(*fields) or not np.isfinite(by).all() or (divide and (by == 0).any()):
        return None
    with np.errstate(over="ignore"):
        months, days, micros = (x / by if divide else x * by for x in fields)
    if not _is_ordinary(months, days, micros):
        return None
    whole_months, whole_days = np.trunc(months), np.trunc(days)
    month_days = _rounded((months - whole_months) * 30)
    carried = np.trunc(month_days)
    seconds = _rounded((days - whole_days + month_days - carried) * 86400)
    more = np.where(np.abs(seconds) >= 86400, np.trunc(seconds / 86400), 0)
    seconds = seconds - more * 86400
    all_micros = np.rint(micros + seconds * 1_000_000)
    return intervals(whole_months, whole_days + more + carried, all_micros, nulls(a, factor))


def _rounded(x: Any) -> Any:
    """Return numbers rounded to a millionth."""
    return np.rint(x * 1_000_000) / 1_000_000


def _is_ordinary(months: np.ndarray, days: np.ndarray, micros: np.ndarray) -> bool:
    ends = ((months, _FEW), (days, _FEW), (micros, _EXACT))
    return all(not len(x) or (x.min() > -end and x.max() < end) for x, end in ends)
