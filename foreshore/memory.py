"""Returns memory kept by allocators after a large result.

Arrow's pool and the C library keep freed memory for reuse. Without this, the process would stay as
large as its largest query made it.
"""

import asyncio
import ctypes
import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from pathlib import Path
from typing import ParamSpec, TypeVar

import pyarrow as pa

from foreshore import blocking
from foreshore.query_memory import QUERY_MEMORY, limit_all_room

P = ParamSpec("P")
R = TypeVar("R")

MUCH = 16 << 20
GROWN = 32 << 20
INTERVAL_SECONDS = 1
LOOKS_AFTER_END = (1, 10, 30)  # at which a process that has grown tries to give memory back
OWN = 32 << 20  # for threads, and what a process takes for itself


def give_back() -> None:
    """Return unused memory to the operating system; takes some milliseconds on a thread."""
    pa.default_memory_pool().release_unused()
    _trim()()


def hold_queries_to(limit: int) -> None:
    """Let queries in this process, which maintains no views, hold `limit` bytes.

    Arrow allocates what any thread can give back then; mimalloc's memory only its own can.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    QUERY_MEMORY.configure(limit)
    limit_all_room()


def giving_back(work: Callable[P, R]) -> Callable[P, R]:
    """Return `work`, after which unused memory is given back if the process has grown by much."""

    @wraps(work)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        before = resident_bytes()
        try:
            return work(*args, **kwargs)
        finally:
            if resident_bytes() - before > MUCH:
                give_back()

    return wrapped


def resident_bytes() -> int:
    """Return the memory that this process has; 0 where the system does not say."""
    try:
        pages = Path("/proc/self/statm").read_bytes().split()[1]
    except OSError:
        return 0
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class Returns:
    """When to give memory back: many small results leave as much behind as a large one."""

    def __init__(self) -> None:
        self._least = self._tried = resident_bytes()
        self._since_end = max(LOOKS_AFTER_END)

    def note_end(self) -> None:
        """Note that a session has ended, and with it, now or a little later, all that it held."""
        self._since_end = 0

    def is_due(self, size: int) -> bool:
        """Whether a process of `size` bytes should give memory back now.

        It should if it has grown by much, and has not tried since it grew or a session ended. What
        is planned for a session that has ended goes on for seconds, so it tries again later.
        """
        self._least = min(self._least, size)
        self._since_end += 1
        is_after_end = self._since_end in LOOKS_AFTER_END
        return size > self._least + GROWN and (is_after_end or size > self._tried + GROWN)

    async def run(self) -> None:
        """Give memory back on a thread whenever that is due, until cancelled."""
        while True:
            await asyncio.sleep(INTERVAL_SECONDS)
            if self.is_due(resident_bytes()):
                await blocking.run(None, give_back)
                self._tried = resident_bytes()


RETURNS = Returns()  # of this process


def physical_bytes() -> int:
    """Return the memory of the machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def own_bytes(process: int | None = None) -> int:
    """Return the memory that a process has without mapped files, which can be dropped.

    That is this process by default; 0 if it has ended.
    """
    try:
        statm = Path(f"/proc/{process or 'self'}/statm").read_bytes()
        _, resident, shared, *_ = statm.split()
    except (OSError, ValueError):
        return 0
    return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def at_most_more(memory: int) -> Iterator[None]:
    """Let allocations fail that would have this process take `memory` bytes more than it has.

    The system counts what may be written, stacks of new threads included, and nothing where it has
    no such limit.
    """
    before = resource.getrlimit(resource.RLIMIT_DATA)
    limit_more(memory)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def limit_more(memory: int) -> None:
    """Let allocations fail from now on as those within `at_most_more` do."""
    status = Path("/proc/self/status")
    if not status.exists():
        return
    (has,) = (line.split()[1] for line in status.read_text().splitlines() if "VmData:" in line)
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    limit = (int(has) << 10) + memory + OWN
    if most != resource.RLIM_INFINITY:
        limit = min(limit, most)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, most))


@cache
def _trim() -> Callable[[], object]:
    """Return the C library's function to release memory, if it has one: glibc's malloc_trim."""
    if not sys.platform.startswith("linux"):
        return lambda: None
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return (lambda: None) if trim is None else lambda: trim(0)
