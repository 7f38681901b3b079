"""Processes that stand still.

A kernel gives SIGSTOP to one thread, which stops the others once it is scheduled: until then a
process with several threads works on, on a busy machine for a quarter of a second and more. A
replica, whose event loop runs beside its main thread, has answered a query meanwhile.
"""

import os
import signal
from pathlib import Path


def stop_process(pid: int) -> None:
    """Let a process stand still, and return when all of its threads do, or it has ended."""
    os.kill(pid, signal.SIGSTOP)
    while any(state not in "TtZX" for state in _states(pid)):
        os.sched_yield()


def _states(pid: int) -> list[str]:
    """Return the states of a process's threads; none if it has ended."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except FileNotFoundError:
        return []
    states = []
    for thread in threads:
        try:
            stat = (thread / "stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        states.append(stat.rpartition(")")[2].split()[0])
    return states
