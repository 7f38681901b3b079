"""Deadlines do not count the time for which a thread has waited for a processor."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from foreshore.run_queue import Deadline, RunQueue


class Waits(RunQueue):
    """Waits that a test sets."""

    now: float | None = 5.0

    def seconds(self) -> float | None:
        return self.now


def test_waits_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("foreshore.run_queue.time.monotonic", lambda: now)
    waits = Waits()
    deadline = Deadline(3, waits)
    now += 10
    assert deadline.left() == -7
    waits.now = 13.0
    assert deadline.left() == 1


def test_all_time_counts_where_waits_are_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("foreshore.run_queue.time.monotonic", lambda: now)
    waits = Waits()
    waits.now = None
    deadline = Deadline(3, waits)
    now += 4
    assert deadline.left() == -1


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not tell")
def test_waits_of_threads_and_processes_are_read() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        ended = RunQueue(process.pid)
        assert ended.seconds() is not None
    assert ended.seconds() is None
    for waits in (RunQueue(), RunQueue(os.getpid())):
        first = waits.seconds()
        assert first is not None
        assert first <= (waits.seconds() or 0)
        waits.close()
        assert waits.seconds() is None
