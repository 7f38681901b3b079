"""Series of integers between bounds that a plan names."""

from typing import NamedTuple

from foreshore.expr.ir import Call, Literal, Scalar

MAX_ROWS = 10_000_000  # of one call
MOST = 1 << 60  # of bounds and steps, so that the end of a series is a bigint


class Series(NamedTuple):
    """The integers from `first` to `last` at most, or at least if `step` is negative."""

    first: int
    last: int
    step: int

    @property
    def length(self) -> int:
        """How many there are."""
        return max(0, (self.last - self.first) // self.step + 1)


def series_of(array: Scalar) -> Series | None:
    """Return the series that `array` is; None if it is none, or its bounds are not literals.

    Such a series has no error.
    """
    if not isinstance(array, Call) or not array.function.startswith("generate_series(int"):
        return None
    bounds = [each.value for each in array.args if isinstance(each, Literal)]
    if len(bounds) < len(array.args) or None in bounds or max(map(abs, bounds)) > MOST:
        return None
    first, last, step = (*bounds, 1)[:3]
    if step == 0 or (found := Series(first, last, step)).length > MAX_ROWS:
        return None
    return found
