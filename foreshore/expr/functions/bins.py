"""date_bin: the beginning of the bin that has a time, of equally long ones from an origin on."""

import numpy as np
import pyarrow as pa

from foreshore.errors import data_error
from foreshore.expr.functions.function import Outcome, Signature, declare
from foreshore.expr.functions.temporal import (
    DAY,
    INTERVAL_RANGE,
    LEAST,
    TIMESTAMP_RANGE,
    column,
    integers,
    interval_fields,
    is_infinite,
    nulls,
)
from foreshore.types import arrow_type

_MONTHS = data_error(
    "0A000", "timestamps cannot be binned into intervals containing months or years"
)
_STRIDE = data_error("22008", "stride must be greater than zero")
_ORIGIN = data_error("22008", "origin out of range")
_MOST_DAYS = (2**63 - 1) // DAY - 1


def _date_bin(types: Signature, stride: pa.Array, stamp: pa.Array, origin: pa.Array) -> Outcome:
    months, days, micros = interval_fields(stride)
    times, origins, mask = integers(stamp), integers(origin), nulls(stride, stamp, origin)
    infinite = is_infinite(times)
    known = ~infinite if mask is None else ~infinite & ~mask
    errors = np.full(len(times), None, object)

    def fail(where: np.ndarray, error: str) -> None:
        errors[known & where & (errors == None)] = error  # noqa: E711 - element by element

    fail(is_infinite(origins), _ORIGIN)
    fail(months != 0, _MONTHS)
    fail(np.abs(days) > _MOST_DAYS, INTERVAL_RANGE)
    widths = np.where(np.abs(days) > _MOST_DAYS, 1, days) * DAY + micros
    fail(widths <= 0, _STRIDE)
    fail(np.abs(times.astype(float) - origins.astype(float)) > 9.223372036854e18, INTERVAL_RANGE)
    sound = known & (errors == None)  # noqa: E711 - element by element
    times_, origins = np.where(sound, times, 0), np.where(sound, origins, 0)
    widths = np.where(sound, widths, 1)
    found = origins + (times_ - origins) // widths * widths
    fail(sound & (found < LEAST), TIMESTAMP_RANGE)
    missing = errors != None  # noqa: E711 - element by element
    values = np.where(infinite, times, found)
    failed = missing.any()
    absent = mask if not failed else missing if mask is None else missing | mask
    result = column(np.where(missing, 0, values), arrow_type(types.result), absent)
    return (result, pa.array(errors, pa.string())) if failed else result


for _t in ("timestamp", "timestamptz"):
    declare("date_bin", f"interval {_t} {_t}", _t, _date_bin, fallible=True)
