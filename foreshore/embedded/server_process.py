"""The database of a program: a server as its child, on a Unix socket in the data directory.

The child's standard input is a pipe that this process holds and never writes to. When this process
ends, however it ends, the child reads the end of the pipe, lets running statements end and ends
itself. What was committed is durable by then, so an end at any moment loses nothing.
"""

import atexit
import contextlib
import logging
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from foreshore.embedded.errors import add_notes
from foreshore.errors import LockFileExists, Unavailable
from foreshore.processes.owner import Holder, owner_of

logger = logging.getLogger(__name__)

START_SECONDS = 120.0
END_SECONDS = 30.0
LINES_KEPT = 50  # of the server's log, for the error if it does not start
READY = "foreshore ready: "
COMMAND = (
    sys.executable,
    "-P",
    "-m",
    "foreshore.server.start",
    "serve",
    "--lifeline",
    "--python-functions",
)
_CRITICAL = re.compile(r".* CRITICAL \S+: (.*)")


class ServerProcess:
    """A server that this process has started. Its log goes to Python's, at the level DEBUG."""

    def __init__(
        self,
        data_dir: Path,
        options: Sequence[str],
        listen: str | None,
        folder: Path | None = None,
    ) -> None:
        """Start the server and wait until it answers; raises LockFileExists or Unavailable.

        `folder` has the data directory, and is removed with the server, at the latest when this
        process ends.
        """
        self.data_dir = data_dir
        self._folder, self._owner = folder, os.getpid()
        if folder is not None:
            atexit.register(self.close)
        check_free(data_dir)
        command = [
            *COMMAND,
            *("--data-dir", str(data_dir), "--socket-dir", str(data_dir)),
            *("--pg-listen", listen or "none", "--http-listen", "none"),
            *options,
        ]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,  # an interrupt from the terminal is for this process
        )
        os.register_at_fork(after_in_child=self._let_go)
        self.url: str | None = None
        self._lines: deque[str] = deque(maxlen=LINES_KEPT)
        self._answers = threading.Event()
        self._threads = [
            threading.Thread(target=work, name="foreshore server", daemon=True)
            for work in (self._read_output, self._read_log)
        ]
        for thread in self._threads:
            thread.start()
        try:
            self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """The exit status; None while it runs."""
        return self._process.poll()

    def close(self) -> None:
        """End the server, after the statements that are running, and wait for its end."""
        if os.getpid() != self._owner:
            return
        process = self._process
        if process.stdin is not None and not process.stdin.closed:
            with contextlib.suppress(OSError):  # it has ended
                process.stdin.close()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            logger.warning("the server does not end and is killed", extra={"pid": process.pid})
            process.kill()
            process.wait()
        if self._folder is not None:
            atexit.unregister(self.close)
            shutil.rmtree(self._folder, ignore_errors=True)

    def kill(self) -> None:
        """End the server by SIGKILL, as a crash would, and wait for its end."""
        self._process.kill()
        self._process.wait()
        self.close()

    def _let_go(self) -> None:
        """Close the copy of the pipe that a child of this process has by a fork."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()  # the object too: its number may get another meaning
        atexit.unregister(self.close)  # the server and its directory are the parent's

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while not self._answers.wait(0.05):
            if self._process.poll() is not None:
                for thread in self._threads:
                    thread.join(5)
                if not self._answers.is_set():
                    raise self._failure()
            if time.monotonic() > deadline:
                raise Unavailable(f"the server did not answer within {START_SECONDS:g} s")

    def _failure(self) -> Exception:
        """Return the error for a server that has ended before it answered."""
        holder = owner_of(self.data_dir)
        if holder is not None:
            return in_use(self.data_dir, holder)
        said = [found[1] for line in self._lines if (found := _CRITICAL.match(line))]
        return Unavailable(
            said[-1] if said else f"the server ended with status {self._process.returncode}",
            detail=None if said else "\n".join(self._lines) or None,
        )

    def _read_output(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(READY):
                self.url = line.removeprefix(READY).strip()
                self._answers.set()

    def _read_log(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines.append(line.rstrip())
            logger.debug("%s", line.rstrip())


def check_free(data_dir: Path) -> None:
    """Raise LockFileExists if a live server has a directory."""
    holder = owner_of(data_dir)
    if holder is not None:
        raise in_use(data_dir, holder)


def in_use(data_dir: Path, holder: Holder) -> LockFileExists:
    """Return the error for a directory that a server has."""
    error = LockFileExists(
        f'data directory "{data_dir}" is in use by another server',
        detail=f"It is {holder}.",
        hint=f'Use it by foreshore.connect("{data_dir}"), or end that process first.',
    )
    add_notes(error)
    return error
