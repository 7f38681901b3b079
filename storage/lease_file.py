"""Lease files: what readers whom the server does not know keep from being deleted.

    leases/<name>   {"holds": ["log", "blob/u7", "blob/s1/000003-000001.parquet"],
                     "lease_ms": 60000, "holder": "the nightly report"}

`holds` has paths within the data directory, a directory standing for all below it. A lease lives
while the clock is less than `lease_ms` away from the file's mtime, to either side, so that whoever
dies, or whatever sets the clock, holds nothing for ever. It is renewed by touching the file, and
ended by removing it. A name that begins with a dot is that of a lease being written, which holds
nothing yet.

Whatever else is found there holds everything, as it may be a lease that is just being rewritten,
for as long as the longest lease.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

import msgspec

from foreshore.update import Timestamp

DIRECTORY = "leases"
MAX_LEASE_MS = 3_600_000  # a longer one is as long as this
MAX_BYTES = 16 << 20
EVERYTHING = ("blob", "log")


class LeaseForm(msgspec.Struct, frozen=True):
    """What a lease file says."""

    holds: tuple[str, ...]
    lease_ms: Annotated[int, msgspec.Meta(gt=0)]
    holder: str = ""


@dataclass(frozen=True, slots=True)
class LeaseFile:
    """A lease as it was found."""

    name: str  # of its file
    renewed: Timestamp
    lease_ms: int
    holds: tuple[str, ...]
    holder: str = ""
    amiss: str | None = None  # why it cannot be read, and so holds everything

    def lives(self, now: Timestamp) -> bool:
        """Whether it holds anything at a time."""
        return abs(now - self.renewed) < self.lease_ms


def decode(name: str, renewed: Timestamp, data: bytes) -> LeaseFile:
    """Return the lease that `data`, whatever it is, stands for."""
    try:
        form = msgspec.json.decode(data, type=LeaseForm)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return unreadable(name, renewed, str(error))
    return LeaseFile(name, renewed, min(form.lease_ms, MAX_LEASE_MS), form.holds, form.holder)


def unreadable(name: str, renewed: Timestamp, why: str) -> LeaseFile:
    """Return what stands for a lease that cannot be read."""
    return LeaseFile(name, renewed, MAX_LEASE_MS, EVERYTHING, amiss=why)


def find_leases(data_dir: Path) -> list[LeaseFile]:
    """Return the leases of a data directory, live or not; blocks.

    Raises OSError if it cannot be seen which there are.
    """
    try:
        with os.scandir(data_dir / DIRECTORY) as entries:
            paths = [Path(entry) for entry in entries if entry.is_file(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [lease for lease in map(_read, sorted(paths)) if lease is not None]


def _read(path: Path) -> LeaseFile | None:
    """Return the lease, None if it has been removed meanwhile."""
    try:
        found = path.lstat()
        renewed = found.st_mtime_ns // 1_000_000
        if path.name.startswith("."):
            return LeaseFile(path.name, renewed, MAX_LEASE_MS, ())
        if found.st_size > MAX_BYTES:
            return unreadable(path.name, renewed, f"it has {found.st_size} bytes")
        return decode(path.name, renewed, path.read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        return unreadable(path.name, renewed, str(error.strerror))


def holding(leases: Iterable[LeaseFile]) -> Callable[[str], bool]:
    """Return what tells of a path within the data directory whether one of the leases holds it."""
    held = {PurePosixPath(path) for lease in leases for path in lease.holds}

    def holds(path: str) -> bool:
        file = PurePosixPath(path)
        return file in held or not held.isdisjoint(file.parents)

    return holds
