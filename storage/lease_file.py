"""Lease files: protect files from deletion while other processes read them.

    leases/<name>   {"holds": ["log", "blob/u7", "blob/s1/000003-000001.parquet"],
                     "lease_ms": 60000, "holder": "the nightly report"}

`holds` lists paths within the data directory; a directory stands for everything below it. A lease
is live while the clock is less than `lease_ms` before or after the file's mtime, so neither a dead
holder nor a changed clock keeps files for ever. Touching the file renews the lease, and removing it
ends the lease. A name that begins with a dot is a lease still being written, which holds nothing
yet.

Any other file there may be a lease being rewritten. It holds everything, for the longest lease
duration.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated

import msgspec

from foreshore.update import Timestamp

DIRECTORY = "leases"
MAX_LEASE_MS = 3_600_000  # the limit for longer leases
MAX_BYTES = 16 << 20
EVERYTHING = ("blob", "log")


class LeaseForm(msgspec.Struct, frozen=True):
    """The contents of a lease file."""

    holds: tuple[str, ...]
    lease_ms: Annotated[int, msgspec.Meta(gt=0)]
    holder: str = ""


@dataclass(frozen=True, slots=True)
class LeaseFile:
    """A lease as found on disk."""

    name: str  # of its file
    renewed: Timestamp
    lease_ms: int
    holds: tuple[str, ...]
    holder: str = ""
    problem: str | None = None  # why it cannot be read; it then holds everything

    def lives(self, now: Timestamp) -> bool:
        """Whether the lease is live at a time."""
        return abs(now - self.renewed) < self.lease_ms


def decode(name: str, renewed: Timestamp, data: bytes) -> LeaseFile:
    """Return the lease that `data` encodes, or an unreadable one."""
    try:
        form = msgspec.json.decode(data, type=LeaseForm)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        return unreadable(name, renewed, str(error))
    return LeaseFile(name, renewed, min(form.lease_ms, MAX_LEASE_MS), form.holds, form.holder)


def unreadable(name: str, renewed: Timestamp, why: str) -> LeaseFile:
    """Return a lease that stands for an unreadable file."""
    return LeaseFile(name, renewed, MAX_LEASE_MS, EVERYTHING, problem=why)


def find_leases(data_dir: Path) -> list[LeaseFile]:
    """Return the leases of a data directory, live or not; blocks.

    Raises OSError if the directory cannot be listed.
    """
    try:
        with os.scandir(data_dir / DIRECTORY) as entries:
            paths = [Path(entry) for entry in entries if entry.is_file(follow_symlinks=False)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [lease for lease in map(_read, sorted(paths)) if lease is not None]


def _read(path: Path) -> LeaseFile | None:
    """Return the lease, None if it was removed meanwhile."""
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
    """Return a predicate: whether one of the leases holds a path of the data directory."""
    held = {PurePosixPath(path) for lease in leases for path in lease.holds}

    def holds(path: str) -> bool:
        file = PurePosixPath(path)
        return file in held or not held.isdisjoint(file.parents)

    return holds
