"""Presence: from when on and until when the rows of a temporal filter are there."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FOREVER = np.int64((1 << 63) - 1)

Ints = npt.NDArray[np.int64]
Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Presence:
    """For each update of a row the times from which on and until which it counts.

    `enters` are the updates that count at all, `leaves` those of them that do not stay.
    """

    begins: Ints
    ends: Ints
    enters: Bits
    leaves: Bits


def presence(times: Ints, conditions: Iterable[tuple[str, Ints, Bits | None]]) -> Presence:
    """Return the presence of updates at `times`.

    A condition compares the time, on the left, with a bound for each row, which the last part says
    is NULL; None: no bound is. A row with such a bound is never there.
    """
    begins, ends = times, np.full(len(times), FOREVER)
    for operator, bounds, is_null in conditions:
        if operator in ("gt", "le"):
            bounds = np.where(bounds < FOREVER, bounds + 1, FOREVER)
        if operator in ("ge", "gt"):
            begins = np.maximum(begins, bounds)
        else:
            ends = np.minimum(ends, bounds)
        if is_null is not None:
            ends = np.where(is_null, 0, ends)
    enters = begins < ends
    return Presence(begins, ends, enters, enters & (ends < FOREVER))
