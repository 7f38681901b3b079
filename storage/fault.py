"""Faults of the services that storage stands on: whether what was asked for has happened.

`Determinate` failed for sure and may be tried again. `Indeterminate` may have taken effect, or may
still: whoever gets it looks before doing anything else, and deletes nothing that the outcome could
name.
"""

from foreshore.errors import Unavailable


class Determinate(Unavailable):
    """It did not happen."""

    sqlstate = "58030"


class Indeterminate(Unavailable):
    """It may have happened."""

    sqlstate = "58030"
