"""Variances and standard deviations: the four aggregates that exist for each type of numbers."""

from typing import NamedTuple


class Spread(NamedTuple):
    """An aggregate: of a sample or of the whole population, and whether it is the square root."""

    name: str
    sample: bool
    root: bool


SPREADS = (
    Spread("var_samp", True, False),
    Spread("var_pop", False, False),
    Spread("stddev_samp", True, True),
    Spread("stddev_pop", False, True),
)
