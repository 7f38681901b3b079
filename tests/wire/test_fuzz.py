"""Clients that break the protocol hurt neither the server nor another client (`fuzz.py`)."""

import asyncio
import os
import threading
import time
from pathlib import Path
from statistics import median

import psycopg
import pytest

from tests.effort import examples
from tests.harness import Server, serving, until
from tests.wire.fuzz import attacks

AT_ONCE = 8
LONGEST_S = 0.1  # of a look-up meanwhile, where the machine is quiet
GROWTH = 64 << 20  # bytes of memory that caches may still take


def resident(pid: int) -> int:
    """Return the bytes of memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def descriptors(pid: int) -> int:
    """Return how many descriptors a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


class Bystander(threading.Thread):
    """A session that looks up rows all the time, and how long each took."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self.failure: BaseException | None = None
        self._server = server
        self._ends = threading.Event()

    def run(self) -> None:
        try:
            with self._server.connect() as session:
                while not self._ends.wait(0.01):
                    start = time.perf_counter()
                    assert session.execute("SELECT v FROM calm WHERE k = 7").fetchone() == (7,)
                    self.seconds.append(time.perf_counter() - start)
        except BaseException as error:
            self.failure = error

    def end(self) -> None:
        self._ends.set()
        self.join()
        if self.failure is not None:
            raise self.failure


def survive(server: Server, seeds: range) -> list[float]:
    """Attack a server, check that it is as before, and return how long look-ups took meanwhile."""
    assert server.process is not None
    pid = server.process.pid
    with server.connect() as session:
        session.execute("CREATE TABLE IF NOT EXISTS fuzzed (v int)")
        session.execute("CREATE TABLE IF NOT EXISTS calm (k int PRIMARY KEY, v int)")
        session.execute("INSERT INTO calm SELECT i, i FROM generate_series(1, 100) i")
        asyncio.run(attacks(server.port, seeds[: len(seeds) // 10], AT_ONCE))
        sessions = "SELECT count(*) FROM pg_stat_activity"
        until(lambda: session.execute(sessions).fetchone() == (1,), "sessions have ended")
        before = resident(pid), descriptors(pid)
        bystander = Bystander(server)
        bystander.start()
        try:
            asyncio.run(attacks(server.port, seeds[len(seeds) // 10 :], AT_ONCE))
        finally:
            bystander.end()
        until(lambda: session.execute(sessions).fetchone() == (1,), "sessions have ended")
        until(lambda: descriptors(pid) <= before[1] + 2, "descriptors are closed")
        assert resident(pid) - before[0] < GROWTH
    log = server.log.read_text()
    assert "unforeseen error" not in log, log[-4000:]
    assert "Traceback" not in log, log[-4000:]
    assert "internal error" not in log, log[-4000:]
    return bystander.seconds


@pytest.mark.full
def test_server_survives_broken_clients(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        seconds = survive(server, range(examples(1000)))
    assert median(seconds) < LONGEST_S


@pytest.mark.slow
def test_server_survives_many_broken_clients(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        seconds = sorted(survive(server, range(100_000)))
    p99 = seconds[len(seconds) * 99 // 100]
    print(f"look-ups: median {median(seconds) * 1000:.1f} ms, 99% {p99 * 1000:.1f} ms")
    assert p99 < LONGEST_S


@pytest.mark.slow
def test_no_descriptor_is_left_by_many_connections(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server, server.connect() as session:
        assert server.process is not None
        before = descriptors(server.process.pid)
        for _ in range(20_000):
            psycopg.connect(server.url).close()
        sessions = "SELECT count(*) FROM pg_stat_activity"
        until(lambda: session.execute(sessions).fetchone() == (1,), "sessions have ended")
        assert descriptors(server.process.pid) <= before + 2
