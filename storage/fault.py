"""Faults of the services under storage, by whether the request may have taken effect.

`Determinate`: it failed for sure and may be retried. `Indeterminate`: it may have taken effect, or
may still do so. The caller has to look before it does anything else, and must not delete anything
that the outcome could name.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from foreshore.errors import InternalError, OutOfDisk, Unavailable, is_disk_full


class Determinate(Unavailable):
    """The request had no effect."""

    sqlstate = "58030"


class DiskFull(Determinate, OutOfDisk):
    """The request had no effect because the disk is full; a retry fails until there is room."""

    sqlstate = "53100"


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Raise DiskFull if there is no room for a write of the block, which then has no effect."""
    try:
        yield
    except OSError as error:
        if not is_disk_full(error):
            raise
        raise DiskFull(what) from error


class Indeterminate(Unavailable):
    """The request may have taken effect."""

    sqlstate = "58030"


class Unwritable(InternalError):
    """A write that does not fit its shard or cannot be encoded; it had no effect."""
