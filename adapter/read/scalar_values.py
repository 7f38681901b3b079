"""Values of scalars without columns: arguments of LIMIT, AS OF and their like."""

from foreshore.adapter.session.context import StatementContext
from foreshore.errors import DataError, InvalidParameterValue
from foreshore.expr.evaluate import constant
from foreshore.expr.ir import Scalar, type_of
from foreshore.sql.rewrite.bind_parameters import bind_scalar
from foreshore.types import Datum
from foreshore.update import Timestamp


def value_of(context: StatementContext, scalar: Scalar, time: Timestamp) -> Datum:
    """Return the value of a scalar without columns; `time` is the value of mz_now()."""
    found = constant(bind_scalar(scalar, context.bindings(time)))
    if isinstance(found, str):
        raise DataError.parse(found)
    value: Datum = found.value
    return value


def timestamp_of(
    context: StatementContext, scalar: Scalar, now: Timestamp | None = None
) -> Timestamp:
    """Return the time in a scalar of type mz_timestamp or timestamptz, in milliseconds.

    `now` is the value of mz_now(); None is the newest time. Raises InvalidParameterValue for NULL
    and for times before 1970.
    """
    if now is None:
        now = context.coordinator.oracle.read_ts()
    value = value_of(context, scalar, now)
    if value is None:
        raise InvalidParameterValue("a time is needed, not NULL")
    assert isinstance(value, int), value
    time = value // 1000 if type_of(scalar).name == "timestamptz" else value
    if time < 0:
        raise InvalidParameterValue(f"time {time} is before the beginning of time")
    return time


def row_count_of(context: StatementContext, scalar: Scalar | None, clause: str) -> int | None:
    """Return the number of rows in LIMIT or OFFSET (`clause`); None if there is none.

    Raises InvalidParameterValue if it is negative.
    """
    value = None if scalar is None else value_of(context, scalar, 0)
    if value is None:
        return None
    number = int(str(value))
    if number < 0:
        code = "2201W" if clause == "LIMIT" else "2201X"
        raise InvalidParameterValue(f"{clause} must not be negative", sqlstate=code)
    return number
