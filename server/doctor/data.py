"""Checks of a data directory. They change nothing, but for a file that is written and removed."""

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import msgspec

from foreshore.errors import DatabaseError
from foreshore.processes.file_modes import open_to_others
from foreshore.processes.owner import LOCK_FILE, Holder
from foreshore.server import key_file
from foreshore.server.admission.policy import Policy, Sources
from foreshore.server.doctor.below import Below
from foreshore.server.doctor.finding import Finding, fail, gigabytes, ok, warn

LOW_BYTES, LOW_SHARE = 5 << 30, 0.05  # free space below which is warned
LEAST_BYTES = 256 << 20
SYNCS, SYNC_BYTES = 16, 4096
SLOW_SYNC_SECONDS = 0.02
AHEAD_SECONDS = 60.0  # that files may be ahead of the clock
MOST_SHOWN = 3  # damaged files, or references to nothing


def directory(data_dir: Path, *, group: bool = False) -> Iterator[Finding]:
    """Look at the data directory's existence, owner and permissions; `group` may read it."""
    if not data_dir.exists():
        if os.access(_existing(data_dir), os.W_OK):
            yield ok("data directory", f'"{data_dir}" does not exist yet, and can be made')
        else:
            advice = "Make it, or name another one by --data-dir."
            yield fail("data directory", f'"{data_dir}" cannot be made', advice)
        return
    if not data_dir.is_dir():
        yield fail("data directory", f'"{data_dir}" is no directory', "Name another --data-dir.")
        return
    if not os.access(data_dir, os.R_OK | os.W_OK | os.X_OK):
        advice = f"Run as its owner, or change its permissions: chown -R {os.getuid()} {data_dir}"
        yield fail("data directory", f'"{data_dir}" cannot be read and written', advice)
        return
    if (owner := data_dir.stat().st_uid) != os.geteuid():
        advice = "Run the server as its owner; it does not start as another user."
        yield fail("data directory", f"it belongs to user {owner}", advice)
    elif (opened := open_to_others(data_dir, group=group)) is not None:
        advice = "Start the server, which repairs it, or: chmod -R go= "
        yield fail("data directory", f'others can use "{opened}"', advice + str(data_dir))
    else:
        yield ok("data directory", str(data_dir))


def secrets(file: Path) -> Iterator[Finding]:
    """Look at who may read the key of secrets."""
    if not file.exists():
        yield ok("key of secrets", "not made yet")
    elif file.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        yield warn("key of secrets", f'others may read "{file}"', f"chmod 600 {file}")
    else:
        yield ok("key of secrets", str(file))


def space(data_dir: Path) -> Iterator[Finding]:
    """Look at the free space of the data directory's disk."""
    usage = shutil.disk_usage(_existing(data_dir))
    text = f"{gigabytes(usage.free)} free of {gigabytes(usage.total)}"
    advice = "Free space, or move the data directory (docs/operations.md, Full disk)."
    if usage.free < LEAST_BYTES:
        yield fail("disk space", text, advice)
    elif usage.free < min(LOW_BYTES, LOW_SHARE * usage.total):
        yield warn("disk space", text, advice)
    else:
        yield ok("disk space", text)


def syncs(data_dir: Path) -> Iterator[Finding]:
    """Measure how long a small write takes to be durable, by a file that is removed again."""
    seconds = []
    with tempfile.TemporaryFile(dir=_existing(data_dir), prefix="doctor.") as file:
        for _ in range(SYNCS):
            file.write(os.urandom(SYNC_BYTES))
            file.flush()
            began = time.perf_counter()
            os.fsync(file.fileno())
            seconds.append(time.perf_counter() - began)
    middle = median(seconds)
    text = f"{1000 * middle:.2f} ms, at most {1000 * max(seconds):.2f} ms"
    if middle > SLOW_SYNC_SECONDS:
        advice = "Commits wait for it: use a local SSD, or many clients at a time."
        yield warn("fsync", text, advice)
    else:
        yield ok("fsync", text)


def clock(data_dir: Path) -> Iterator[Finding]:
    """Compare the clock with the times of the data's files."""
    newest = max(
        (file.stat().st_mtime for folder in ("log", ".") for file in (data_dir / folder).glob("*")),
        default=0.0,
    )
    now = time.time()
    if newest > now + AHEAD_SECONDS:
        text = f"files are {newest - now:.0f} s ahead of it"
        advice = "Set the clock (NTP): until it is there, times of commits run ahead of it."
        yield fail("clock", text, advice)
    else:
        yield ok("clock", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)))


def holder(data_dir: Path) -> Holder | None:
    """Return the live server that has the data directory, None if there is none.

    The lock is tried for a moment, which a server that starts meanwhile tolerates.
    """
    try:
        with (data_dir / LOCK_FILE).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return msgspec.json.decode(file.read(), type=Holder)
            return None
    except FileNotFoundError:
        return None


def lock(data_dir: Path) -> Iterator[Finding]:
    """Look for the server that has the data."""
    found = holder(data_dir)
    yield ok("server lock", "no server has the data" if found is None else f"held by {found}")


def contents(data_dir: Path, below: Below) -> Iterator[Finding]:
    """Look at the log, the states of collections and the catalog; no other batch is read."""
    if not (data_dir / "log").exists():
        yield ok("data", "there are none yet")
        return
    found = below.contents(data_dir)
    if found.damages:
        advice = f"foreshore inspect {data_dir} --verify; docs/operations.md, Corrupt files."
        yield fail("data", _some(found.damages), advice)
        return
    torn = found.torn
    text = f"{found.collections} collections, {found.segments} segments of the log"
    yield ok("data", text + (f"; {torn} bytes of a record that was not finished" if torn else ""))
    if found.dangling:
        advice = f"End the server, then: foreshore repair {data_dir}; docs/operations.md, Repair."
        yield fail("catalog", _some(found.dangling), advice)
    else:
        yield ok("catalog", "all that it names exists")


def _some(lines: Sequence[str]) -> str:
    """Return the first of some lines, and how many more there are."""
    more = len(lines) - MOST_SHOWN
    return "; ".join(lines[:MOST_SHOWN]) + (f"; {more} more" if more > 0 else "")


def rules(data_dir: Path, hba_file: Path | None, ident_file: Path | None) -> Iterator[Finding]:
    """Read the rules of who may connect."""
    try:
        policy = Policy(Sources(hba_file, ident_file, data_dir, verifies_clients=True))
        count = len(policy.written())
    except DatabaseError as error:
        detail = "" if error.detail is None else f"; {error.detail}"
        advice = "Mend the file (docs/security.md); a running server goes on with the old rules."
        yield fail("pg_hba.conf", error.message + detail, advice)
        return
    yield ok("pg_hba.conf", f"{count} rules {'built in' if policy.file is None else 'read'}")


def key_of(data_dir: Path) -> Path:
    """Return the file of the key of secrets."""
    return data_dir / key_file.NAME


def _existing(path: Path) -> Path:
    """Return the path, or the nearest folder above it that exists."""
    return next(each for each in (path, *path.parents) if each.is_dir())
