"""Faults of the services that storage stands on: whether what was asked for has happened.

`Determinate` failed for sure and may be tried again. `Indeterminate` may have taken effect, or may
still: whoever gets it looks before doing anything else, and deletes nothing that the outcome could
name.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from foreshore.errors import OutOfDisk, Unavailable, is_disk_full


class Determinate(Unavailable):
    """It did not happen."""

    sqlstate = "58030"


class DiskFull(Determinate, OutOfDisk):
    """It did not happen for want of room, and will not before somebody makes some."""

    sqlstate = "53100"


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Raise DiskFull where there is no room for what the block writes, which leaves nothing."""
    try:
        yield
    except OSError as error:
        if not is_disk_full(error):
            raise
        raise DiskFull(what) from error


class Indeterminate(Unavailable):
    """It may have happened."""

    sqlstate = "58030"
