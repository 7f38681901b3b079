"""Threads and children that are there, and wait for a processor, are known to starve."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.starvation import Starvation

TOLD = all(Path("/proc/thread-self", each).exists() for each in ("schedstat", "children"))
SPIN = """
import os, time
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
input()
end = time.monotonic() + 0.5
while time.monotonic() < end:
    pass
print(flush=True)
input()
"""


@pytest.mark.skipif(not TOLD, reason="this system does not tell it")
def test_children_on_one_processor_starve_until_they_end() -> None:
    children = [
        subprocess.Popen(
            [sys.executable, "-c", SPIN],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(2)
    ]
    starvation = Starvation(os.getpid())
    for child in children:
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.flush()
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    assert starvation.seconds() > 0.2
    afterwards = Starvation(os.getpid())
    for child in children:
        child.kill()
        child.communicate()
    assert afterwards.seconds() >= 0
