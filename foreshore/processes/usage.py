"""The processor time and memory of processes and their descendants on this machine."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

_USER_TIME, _SYSTEM_TIME = 11, 12  # fields of /proc/PID/stat after the name
MOST_PROCESSES = 256  # of one that are looked at


class Usage(msgspec.Struct, frozen=True):
    """Processor time since the start in nanoseconds, and resident memory in bytes."""

    cpu_ns: int
    memory_bytes: int


def usage_of(pid: int) -> Usage | None:
    """Return what a process and its children take; None if it has ended, or is not known."""
    found = [each for process in _family(pid) if (each := _usage(process)) is not None]
    if not found:
        return None
    return Usage(sum(each.cpu_ns for each in found), sum(each.memory_bytes for each in found))


def _family(pid: int) -> Iterator[int]:
    waiting, seen = [pid], 0
    while waiting and seen < MOST_PROCESSES:
        process = waiting.pop()
        seen += 1
        yield process
        for tasks in Path(f"/proc/{process}/task").glob("*/children"):
            with suppress(OSError):  # it ended
                waiting += [int(each) for each in tasks.read_text().split()]


def _usage(pid: int) -> Usage | None:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return None
    ticks = int(fields[_USER_TIME]) + int(fields[_SYSTEM_TIME])
    per_second = os.sysconf("SC_CLK_TCK")
    return Usage(ticks * 1_000_000_000 // per_second, pages * os.sysconf("SC_PAGE_SIZE"))
