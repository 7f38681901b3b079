"""A disk that is really full: a file system of few bytes, in a mount namespace of its own.

No privileges are needed where user namespaces are permitted. The namespace is held by a shell, which
takes commands from a pipe; servers enter it when they start, and the files outlive them. Tests reach
them through `/proc`, but for what follows symbolic links itself, as SQLite does.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.harness import NOT_INSTALLED, Server, program

ENTER = "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"  # stays the process that was started
BALLAST = "ballast"


class SmallDisk:
    """A file system of `megabytes` at `path`, as processes within its namespace see it."""

    def __init__(self, path: Path, megabytes: int) -> None:
        """Mount it; skips the test where that is not permitted."""
        path.mkdir(parents=True)
        self.path = path
        self._enter = program("nsenter")
        self._shell = subprocess.Popen(
            [program("unshare"), "--user", "--map-root-user", "--mount", "sh"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.seen = Path(f"/proc/{self._shell.pid}/root{path}")
        if not self._do(f"mount -t tmpfs -o size={megabytes}m none '{path}'"):
            self.close()
            pytest.skip(f"{NOT_INSTALLED}user namespaces with a tmpfs")

    def _do(self, command: str) -> bool:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        with suppress(BrokenPipeError):
            self._shell.stdin.write(f"{command} && echo done || echo failed\n")
            self._shell.stdin.flush()
        return self._shell.stdout.readline() == "done\n"

    def close(self) -> None:
        """Let go of it; when its last server has ended its files are gone."""
        assert self._shell.stdin is not None
        with suppress(BrokenPipeError):
            self._shell.stdin.close()
        self._shell.wait(30)

    def inside(self, *arguments: str) -> tuple[str, ...]:
        """Return arguments for Python which let it run with `arguments` within the namespace."""
        target = f"--target={self._shell.pid}"
        enter = (self._enter, "--user", "--mount", "--preserve-credentials", target)
        return ("-c", ENTER, *enter, sys.executable, *arguments)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Return what became of `foreshore` with `arguments`."""
        return subprocess.run(
            [sys.executable, *self.inside("-m", "foreshore.server.main", *arguments)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def server(self, *args: str) -> Server:
        """Return a server, not started, whose data directory is on this disk."""
        return Server(self.path / "data", args, self.inside("-m", "foreshore.server.main"))

    def resize(self, megabytes: int) -> None:
        """Make the disk larger or smaller."""
        assert self._do(f"mount -o remount,size={megabytes}m '{self.path}'")

    @property
    def free_bytes(self) -> int:
        """How much room there is."""
        found = os.statvfs(self.seen)
        return found.f_bavail * found.f_frsize

    def fill(self, leaving: int = 0) -> None:
        """Let somebody else's file take the room that there is, but for `leaving` bytes."""
        with (self.seen / BALLAST).open("ab", buffering=0) as file, suppress(OSError):
            while (room := self.free_bytes - leaving) >= 4096:
                file.write(bytes(min(room, 1 << 20)))

    def make_room(self) -> None:
        """Remove that file."""
        (self.seen / BALLAST).unlink(missing_ok=True)


@contextmanager
def small_disk(path: Path, megabytes: int) -> Iterator[SmallDisk]:
    """Have a small disk for the length of a block."""
    disk = SmallDisk(path, megabytes)
    try:
        yield disk
    finally:
        disk.close()
