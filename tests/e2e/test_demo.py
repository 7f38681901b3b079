"""The demo as its user has it: in a terminal, interrupted, killed, and started again."""

from __future__ import annotations

import os
import pty
import re
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.harness import free_port, marked, until
from tests.stopped_process import stop_process

pytestmark = pytest.mark.full


class Demo:
    """A `foreshore demo` in a terminal of its own, over little data; all it starts is known."""

    def __init__(self, folder: Path, *args: str) -> None:
        self.mark = f"FORESHORE_TEST_MARK={secrets.token_hex(8)}"
        self.folder = folder
        self.args = args
        self.port, self.http_port = free_port(), free_port()
        self.said = b""
        self.process: subprocess.Popen[bytes] | None = None
        self._terminal = -1

    @property
    def url(self) -> str:
        return f"postgres://foreshore@127.0.0.1:{self.port}/foreshore"

    def start(self) -> None:
        """Start as the foreground process of a new terminal."""
        name, _, value = self.mark.partition("=")
        self._terminal, terminal = pty.openpty()
        os.set_blocking(self._terminal, False)
        self.said = b""
        self.process = subprocess.Popen(
            [
                # what a login does: a session of its own whose terminal is standard input
                *(sys.executable, "-c", LOGIN),
                *(sys.executable, "-m", "foreshore.server.start", "demo"),
                *("--data-dir", str(self.folder / "data"), "--start", "2013-01-02T12:00:00"),
                *("--pg-listen", f"127.0.0.1:{self.port}"),
                *("--http-listen", f"127.0.0.1:{self.http_port}", *self.args),
            ],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            start_new_session=True,
            env={**os.environ, name: value, "TMPDIR": str(self.folder)},
        )
        os.close(terminal)

    def read(self) -> bytes:
        """Return all that has been said since the start."""
        try:
            while data := os.read(self._terminal, 1 << 16):
                self.said += data
        except OSError:  # nothing more for now, or nobody there any more
            pass
        return self.said

    def says(self, what: bytes) -> None:
        """Wait until it has said something that matches."""
        until(
            lambda: re.search(what, self.read()) is not None or self.over, f"it says {what!r}", 90
        )
        assert re.search(what, self.said), self.said.decode()

    @property
    def over(self) -> bool:
        assert self.process is not None
        return self.process.poll() is not None

    def interrupt(self) -> None:
        """Type Ctrl-C."""
        os.write(self._terminal, b"\x03")

    def ends(self, within_s: float = 20) -> int:
        """Wait until it and all that it started are gone; return its exit status."""
        until(lambda: self.over, "the demo ends", within_s)
        until(lambda: not marked(self.mark), "all that it started ends", within_s)
        assert self.process is not None
        assert b"Traceback" not in self.read(), self.said.decode()
        return self.process.returncode

    def close(self) -> None:
        for pid in marked(self.mark):
            os.kill(pid, signal.SIGKILL)
        if self.process is not None:
            self.process.wait()


LOGIN = """
import fcntl, os, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    demo = Demo(tmp_path, "--no-spark")
    yield demo
    demo.close()


def left_over(demo: Demo) -> list[str]:
    return [path.name for path in demo.folder.iterdir() if path.name != "data"]


def test_its_views_change_between_two_reads_and_ctrl_c_ends_it(demo: Demo) -> None:
    demo.start()
    demo.says(b"console: http://127.0.0.1:%d/" % demo.http_port)
    demo.says(b"end it with Ctrl-C")
    with psycopg.connect(demo.url, autocommit=True) as connection:
        query = "SELECT sum(flights) FROM delay_by_airline"
        first = connection.execute(query).fetchall()
        assert first[0][0] > 0
        until(lambda: connection.execute(query).fetchall() != first, "the view changes")
        with connection.cursor().copy(
            "COPY (SUBSCRIBE TO delay_by_airline WITH (SNAPSHOT = false)) TO STDOUT"
        ) as changes:
            assert len([changes.read_row() for _ in range(4)]) == 4
            demo.interrupt()
            with pytest.raises(psycopg.OperationalError):
                list(changes)
    assert demo.ends() == 0
    assert left_over(demo) == []


@pytest.mark.parametrize("moment", [b"", b"airlines: "])
def test_ctrl_c_ends_it_at_any_moment(demo: Demo, moment: bytes) -> None:
    demo.start()
    if moment:
        demo.says(moment)
    else:  # while the server loads
        until(lambda: len(marked(demo.mark)) == 2, "the server is started")
    demo.interrupt()
    assert demo.ends() == 0
    assert left_over(demo) == []


@pytest.mark.skipif(sys.platform != "linux", reason="what a process has loaded is told by /proc")
def test_ctrl_c_ends_it_while_it_loads_what_it_is_made_of(demo: Demo) -> None:
    demo.start()
    assert demo.process is not None
    maps = Path(f"/proc/{demo.process.pid}/maps")
    until(lambda: "libarrow" in maps.read_text(), "it has begun to load")
    demo.interrupt()
    assert demo.ends() == 130
    assert left_over(demo) == []


def test_sigterm_ends_it(demo: Demo) -> None:
    demo.start()
    demo.says(b"end it with Ctrl-C")
    assert demo.process is not None
    demo.process.terminate()
    assert demo.ends() == 0
    assert left_over(demo) == []


def test_killed_it_takes_the_server_along_and_goes_on_where_it_was(demo: Demo) -> None:
    demo.start()
    demo.says(b"end it with Ctrl-C")
    with psycopg.connect(demo.url, autocommit=True) as connection:
        ((moment,),) = connection.execute("SELECT max(moment) FROM demo_clock").fetchall()
    assert demo.process is not None
    demo.process.kill()
    demo.ends()
    demo.start()
    demo.says(b"end it with Ctrl-C")
    assert b"rows sent" not in demo.said  # nothing is loaded again
    with psycopg.connect(demo.url, autocommit=True) as connection:
        ((later,),) = connection.execute("SELECT max(moment) FROM demo_clock").fetchall()
    assert later >= moment
    demo.interrupt()
    assert demo.ends() == 0


def test_it_says_so_when_its_server_is_killed(demo: Demo) -> None:
    demo.start()
    demo.says(b"end it with Ctrl-C")
    (server,) = [
        pid
        for pid in marked(demo.mark)
        if b"\0serve\0" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]
    os.kill(server, signal.SIGKILL)
    assert demo.ends() == 128 + signal.SIGKILL
    assert b"the server has ended, killed by signal 9" in demo.read()


def test_all_killed_at_once_the_next_start_cleans_up(demo: Demo) -> None:
    demo.start()
    demo.says(b"end it with Ctrl-C")
    for pid in marked(demo.mark):
        stop_process(pid)  # so that none of them can tidy up after another
    for pid in marked(demo.mark):
        os.kill(pid, signal.SIGKILL)
    demo.ends()
    assert left_over(demo), "nothing was left to clean up"
    demo.start()
    demo.says(b"end it with Ctrl-C")
    assert len(left_over(demo)) == 1  # that of the replica that runs now
    demo.interrupt()
    assert demo.ends() == 0
    assert left_over(demo) == []


def test_a_second_one_is_told_that_the_port_is_taken(demo: Demo) -> None:
    demo.start()
    demo.says(b"end it with Ctrl-C")
    second = Demo(demo.folder, *demo.args)
    second.port, second.http_port = demo.port, demo.http_port
    try:
        second.start()
        assert second.ends() == 1
        assert second.said.count(b"\n") == 1
        assert b"Address already in use" in second.said
    finally:
        second.close()
    psycopg.connect(demo.url).close()  # the first one is not disturbed
