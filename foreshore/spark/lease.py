"""The holder's side of lease files: keeps files from deletion while another process reads them.

    lease = take(data_dir, lease_ms=600_000)     holds everything
    lease.narrow(["blob/u7/000003-000001.parquet"])
    touch(lease.path)                            in any process: renews it
    lease.end()

A lease that nobody renews or ends is over after `lease_ms`. `storage/lease_file.py` says how the
server reads them.
"""

import os
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from foreshore.storage.lease_file import DIRECTORY, EVERYTHING, LeaseForm

HOLDER = "the PySpark data source"


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease file that this process has made."""

    path: str
    lease_ms: int

    def narrow(self, holds: Iterable[str]) -> None:
        """Hold only these paths within the data directory."""
        with suppress(OSError), open(self.path, "r+b") as file:  # else it holds more, or is over
            file.truncate()
            file.write(_content(tuple(holds), self.lease_ms))

    def end(self) -> None:
        """Hold nothing any more."""
        with suppress(OSError):
            os.unlink(self.path)


def take(data_dir: Path, lease_ms: int) -> Lease | None:
    """Return a lease of all files; None if nothing may be written there."""
    path = data_dir / DIRECTORY / f"{uuid.uuid4()}.json"
    unfinished = path.with_name(f".{path.name}")
    try:
        with open(unfinished, "xb", opener=_private) as file:
            file.write(_content(EVERYTHING, lease_ms))
        unfinished.rename(path)
    except OSError:
        return None
    return Lease(str(path), lease_ms)


def _private(path: str, flags: int) -> int:
    """Open a file that is for this user alone, as all is in a data directory."""
    return os.open(path, flags, 0o600)


def touch(path: str | None) -> None:
    """Renew a lease, from any process that sees the data directory."""
    if path is not None:
        with suppress(OSError):  # it is over, or on another machine: files that go are noticed
            os.utime(path)


def _content(holds: tuple[str, ...], lease_ms: int) -> bytes:
    return msgspec.json.encode(LeaseForm(holds, lease_ms, f"{HOLDER}, process {os.getpid()}"))
