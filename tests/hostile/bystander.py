"""An honest client beside a hostile one: nothing the latter does may disturb it.

    with bystanders(tmp_path / "data") as server, undisturbed(server):
        ...    # something hostile, by the role `hostile`, which may only log in

The honest client is a process of its own (`honest.py`), so what the hostile one costs this process
is not counted.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from math import ceil
from pathlib import Path
from tempfile import TemporaryFile

import psycopg

from tests.harness import ROOT, Server, indexed, until
from tests.hostile.honest import MACHINE, Sample, prepare, samples
from tests.loop_guard import REFERENCE_S

P99_S = 0.1
MOST_S = 0.5
GROWTH = 100 << 20  # bytes that may be left when the hostile client has gone
FRESH = 200 << 20  # bytes of a helper process that was started meanwhile
FEWEST = 20  # statements of each kind
TRIED = ("select", "look-up", "login")
OFTEN_S = 0.2


@contextmanager
def bystanders(data_dir: Path, *args: str) -> Iterator[Server]:
    """Run a server that has what honest clients need; it is as guarded as `serving`'s.

    Its end fails if the event loop was held up, unless that was looked at before.
    """
    server = Server(data_dir, args)
    try:
        server.start()
        with server.connect() as connection:
            prepare(connection)
            indexed(connection, "honest_view")
        yield server
    finally:
        server.stop()


def hostile_url(server: Server) -> str:
    """Return where the role that may only log in connects to."""
    return server.url.replace("foreshore@", "hostile@")


@contextmanager
def honest(server: Server, clients: int) -> Iterator["Honest"]:
    """Run honest clients for the length of a block."""
    assert server.process is not None
    with TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.hostile.honest"]
            + [str(each) for each in (server.port, server.process.pid, clients)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=said,
        )
        try:
            yield Honest(said.fileno(), process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            try:
                process.wait(90)
            finally:
                process.kill()


class Honest:
    """Honest clients that run, and what they have measured."""

    def __init__(self, said: int, process: subprocess.Popen[bytes]) -> None:
        self._said = said
        self._process = process

    def samples(self, since: float = 0.0) -> list[Sample]:
        """Return the statements that have ended, at a time or later."""
        assert self._process.poll() is None, "the honest clients have ended"
        size = os.fstat(self._said).st_size
        lines = os.pread(self._said, size, 0).decode().splitlines(keepends=True)
        return [each for each in samples(lines) if each.began + each.seconds >= since]

    def until_each(self, count: int, since: float) -> None:
        """Wait until each kind of statement has run so often since a time."""

        def enough() -> bool:
            found = [each.kind for each in self.samples(since)]
            return all(found.count(kind) >= count for kind in TRIED)

        until(enough, f"{count} statements of each kind have run", 120.0)


@contextmanager
def undisturbed(server: Server, p99_s: float = P99_S, most_s: float = MOST_S) -> Iterator[None]:
    """Check that an honest client does not notice the body, and that nothing is left of it.

    Fails if SELECT 1, a look-up or a login took longer beyond what the machine owed, had a wrong
    answer or none, if the process died, or if its memory is not back a while after the body.
    """
    assert server.process is not None
    pid = server.process.pid
    with honest(server, 1) as clients:
        clients.until_each(FEWEST, 0.0)
        before, began = resident(server), time.monotonic()
        yield
        clients.until_each(FEWEST, began)
        found = clients.samples(began)
    assert server.process.poll() is None, "the server died"
    assert server.process.pid == pid
    wrong = [each for each in found if each.wrong]
    assert not wrong, wrong
    took = [each.seconds for each in found if each.kind == MACHINE]
    slower = max(1.0, quantile(took, 0.5) / REFERENCE_S)
    for kind in TRIED:
        seconds = [each.seconds for each in found if each.kind == kind]
        shown = f"{kind}: {spread(seconds)}, the machine is {slower:.1f} times slower than idle"
        print(shown)
        beyond = sum(each >= p99_s * slower for each in seconds)
        assert beyond <= max(1, len(seconds) // 100), shown  # the longest of few is no percentile
        assert max(seconds) < most_s * slower, shown
    until(lambda: growth(before, resident(server)) < GROWTH, "the memory is back")


def quantile(seconds: list[float], share: float) -> float:
    """Return what so large a share of the times are at most."""
    return sorted(seconds)[max(0, ceil(share * len(seconds)) - 1)]


def spread(seconds: list[float]) -> str:
    """Return how times are spread, as text."""
    if not seconds:
        return "none"
    p50, p99 = quantile(seconds, 0.5), quantile(seconds, 0.99)
    return (
        f"{len(seconds)} times, p50 {p50 * 1e3:.1f} ms, p99 {p99 * 1e3:.1f} ms, "
        f"max {max(seconds) * 1e3:.1f} ms"
    )


def resident(server: Server) -> dict[int, int]:
    """Return the bytes of memory of each process of a server."""
    found = {}
    for pid in server.processes():
        try:
            pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
        except OSError:  # it has ended
            continue
        found[pid] = int(pages) * os.sysconf("SC_PAGE_SIZE")
    return found


def growth(before: dict[int, int], after: dict[int, int]) -> int:
    """Return by how many bytes processes have grown; a new one may have FRESH."""
    return sum(max(0, size - before.get(pid, FRESH)) for pid, size in after.items())


def tried(url: str) -> bool:
    """Whether a connection can be made."""
    try:
        psycopg.connect(url).close()
    except psycopg.Error:
        return False
    return True
