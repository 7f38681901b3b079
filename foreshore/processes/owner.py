"""The owner of a data directory: the server that has its lock, and where it listens.

The lock itself is in server/server_lock.py; a program that wants to open the directory asks here.
"""

import fcntl
import os
from datetime import datetime
from pathlib import Path

import msgspec

LOCK_FILE = "server"
SOCKET_PORT = 6875  # the port in the name of the socket, by which clients find it


class Holder(msgspec.Struct, frozen=True):
    """The server that has a lock, as the lock names it."""

    pid: int
    host: str
    since: datetime
    ending: bool = False
    address: str = ""  # to connect to, once it answers

    def __str__(self) -> str:
        since = self.since.isoformat(" ", "seconds")
        return f"process {self.pid} on host {self.host} since {since}"


def holder_in(text: bytes) -> Holder | None:
    """Return the server that a lock file names; None if it names none."""
    try:
        return msgspec.json.decode(text, type=Holder)
    except msgspec.MsgspecError:
        return None


def owner_of(data_dir: Path) -> Holder | None:
    """Return the live server that has a directory, None if there is none or it is ending.

    A server that has the lock and is not named yet counts as none.
    """
    try:
        file = os.open(data_dir / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = holder_in(os.pread(file, 4096, 0))
        return None if holder is None or holder.ending else holder
    finally:
        os.close(file)
    return None


def socket_name() -> str:
    """Return the name of the server's Unix socket in its directory, as PostgreSQL's clients do."""
    return f".s.PGSQL.{SOCKET_PORT}"
