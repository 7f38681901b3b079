"""Clients that break the protocol hurt neither the server nor another client (`fuzz.py`)."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import psycopg
import pytest

from tests.effort import examples
from tests.harness import ROOT, Server, serving, until
from tests.starvation import Starvation

LONGEST_S = 0.1  # of a look-up meanwhile, beyond what the machine owed
GROWTH = 64 << 20  # bytes of memory that caches may still take


def resident(pid: int) -> int:
    """Return the bytes of memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors(pid: int) -> int:
    """Return how many descriptors a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def tasks(server: Server) -> int:
    """Return how many tasks the event loop of a guarded server has."""
    assert server.process is not None
    before = server.log.stat().st_size
    os.kill(server.process.pid, signal.SIGUSR2)

    def said() -> re.Match[bytes] | None:
        return re.search(rb"tasks of the loop: (\d+)\n", server.log.read_bytes()[before:])

    until(lambda: said() is not None, "the server has counted its tasks")
    found = said()
    assert found is not None
    return int(found[1])


def attacked(server: Server, seeds: range) -> list[float]:
    """Attack a server from a process at a low priority; return how long look-ups took meanwhile.

    What counts is the time beyond that for which the loop's thread of the server, and this one, had
    no processor to run on.
    """
    assert server.process is not None
    seconds: list[float] = []
    attack = [*(sys.executable, "-m", "tests.wire.fuzz"), *map(str, (server.port, *ends(seeds)))]
    with (
        server.connect() as session,
        subprocess.Popen(["nice", "-n", "5", *attack], cwd=ROOT) as attacker,
    ):
        try:
            while attacker.poll() is None:
                starvation, began = Starvation(server.process.pid, of_loop=True), time.monotonic()
                assert session.execute("SELECT v FROM calm WHERE k = 7").fetchone() == (7,)
                seconds.append(time.monotonic() - began - starvation.seconds())
                time.sleep(0.01)
        finally:
            attacker.kill()
    assert attacker.returncode == 0
    return seconds


def ends(seeds: range) -> tuple[int, int]:
    """Return the first seed, and the one after the last."""
    return seeds.start, seeds.stop


def survive(server: Server, seeds: range) -> list[float]:
    """Attack a server, check that it is as before, and return how long look-ups took meanwhile."""
    assert server.process is not None
    pid = server.process.pid
    with server.connect() as session:
        session.execute("CREATE TABLE IF NOT EXISTS fuzzed (v int)")
        session.execute("CREATE TABLE IF NOT EXISTS calm (k int PRIMARY KEY, v int)")
        session.execute("INSERT INTO calm SELECT i, i FROM generate_series(1, 100) i")
        sessions = "SELECT count(*) FROM pg_stat_activity"
        attacked(server, seeds[: len(seeds) // 10])
        until(lambda: session.execute(sessions).fetchone() == (1,), "sessions have ended")
        before = resident(pid), descriptors(pid), tasks(server)
        seconds = attacked(server, seeds[len(seeds) // 10 :])
        until(lambda: session.execute(sessions).fetchone() == (1,), "sessions have ended")
        until(lambda: descriptors(pid) <= before[1] + 2, "descriptors are closed")
        until(lambda: tasks(server) <= before[2] + 2, "tasks have ended")
        until(lambda: resident(pid) - before[0] < GROWTH, "memory is freed")
        print(f"grown by {(resident(pid) - before[0]) / 1e6:.1f} MB of {before[0] / 1e6:.1f}")
    log = server.log.read_text()
    assert "unforeseen error" not in log, log[-4000:]
    assert "Traceback" not in log, log[-4000:]
    assert "internal error" not in log, log[-4000:]
    return seconds


@pytest.mark.full
def test_server_survives_broken_clients(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        seconds = survive(server, range(examples(1000)))
    assert median(seconds) < LONGEST_S


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_server_survives_many_broken_clients(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        seconds = sorted(survive(server, range(100_000)))
    p99 = seconds[len(seconds) * 99 // 100]
    print(f"look-ups: median {median(seconds) * 1000:.1f} ms, 99% {p99 * 1000:.1f} ms")
    assert p99 < LONGEST_S


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_descriptor_is_left_by_many_connections(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server, server.connect() as session:
        assert server.process is not None
        before = descriptors(server.process.pid)
        for _ in range(20_000):
            psycopg.connect(server.url).close()
        sessions = "SELECT count(*) FROM pg_stat_activity"
        until(lambda: session.execute(sessions).fetchone() == (1,), "sessions have ended")
        assert descriptors(server.process.pid) <= before + 2
