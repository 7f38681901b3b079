"""Values and times that a statement's text says, known when it is run."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foreshore.adapter.substitute import fill_scalar, filler
from foreshore.errors import DataError, InvalidParameterValue
from foreshore.expr.evaluate import constant
from foreshore.expr.ir import Scalar, type_of
from foreshore.types import Datum
from foreshore.update import Timestamp

if TYPE_CHECKING:
    from foreshore.adapter.session import Session


def timestamp_of(session: "Session", scalar: Scalar, args: Sequence[Datum]) -> Timestamp:
    """Return the time that a scalar without columns says, in milliseconds."""
    read_ts = session.coordinator.oracle.read_ts()
    value = value_of(session, scalar, args, read_ts)
    if value is None:
        raise InvalidParameterValue("a time is needed, not NULL")
    assert isinstance(value, int), value
    time = value // 1000 if type_of(scalar).name == "timestamptz" else value
    if time < 0:
        raise InvalidParameterValue(f"time {time} is before the beginning of time")
    return time


def value_of(session: "Session", scalar: Scalar, args: Sequence[Datum], time: Timestamp) -> Datum:
    """Return the value of a scalar without columns."""
    replace = filler(args, session.environment_values(time))
    found = constant(fill_scalar(scalar, replace))
    if isinstance(found, str):
        raise DataError.parse(found)
    value: Datum = found.value
    return value
