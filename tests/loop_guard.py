"""No step of an environment's event loop takes 50 ms of the processor, or sleeps for so long.

`foreshore/loop_watchdog.py` finds those that do. A server and its ingestion (`guarded_server.py`)
say in the log which were slow. In this process the limit is wider: the test, and replicas without a
process of their own, work on the same loop. What the test itself does there, such as calling a
bucket or writing a table, does not count.
"""

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import thread_time

import foreshore
from foreshore import adapter, catalog, compute, server, sql, storage
from foreshore.loop_watchdog import LIMIT_S, Excluded, Stack, Stall, Watchdog

SHARED_LIMIT_S = 0.5
REFERENCE_S = 0.0015  # what `reference` takes on an idle machine
MARK = "slow callback: "
OWN = ("step", "wait")  # causes that are not another thread's
TESTS = str(Path(__file__).parent) + os.sep
LAYERS = (foreshore, server, adapter, sql, catalog, compute, storage)
PRODUCT = tuple(place + os.sep for layer in LAYERS for place in layer.__path__)
LOOP = str(Path(asyncio.__file__).parent) + os.sep


class SlowCallbacks(Excluded):
    """What has held up loops of this process, each from `watch` to `unwatch`."""

    def __init__(self) -> None:
        self._found: dict[asyncio.AbstractEventLoop, tuple[Watchdog, list[str]]] = {}
        self._apart = 0.0
        self._began: float | None = None

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take note of what is slow on `loop`, which runs, from now on."""
        if loop in self._found:
            return
        notes: list[str] = []

        def note(stall: Stall) -> None:
            counts = stall.cause in OWN and not is_of_test(stall.stack)
            if counts and is_slow(stall.seconds, SHARED_LIMIT_S):
                notes.append(f"{stall.cause} of {stall.seconds:.3f} s in {stall.place}")

        watchdog = Watchdog(note, SHARED_LIMIT_S, self)
        watchdog.start()
        self._found[loop] = watchdog, notes

    def unwatch(self, loop: asyncio.AbstractEventLoop) -> list[str]:
        """Return what has been slow on `loop`, and take no more notes."""
        found = self._found.pop(loop, None)
        if found is None:
            return []
        watchdog, notes = found
        watchdog.close()
        return notes

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Do not count the body, in which a test has the product do work that no client asks for."""
        if self._began is not None:
            yield
            return
        began = self._began = thread_time()
        try:
            yield
        finally:
            self._apart += thread_time() - began
            self._began = None

    def seconds(self, now: float) -> float:
        """Return the seconds of the bodies of `apart` so far."""
        began = self._began
        return self._apart + (now - began if began is not None else 0.0)

    def lasts(self) -> bool:
        """Return whether such a body runs."""
        return self._began is not None


SLOW = SlowCallbacks()


def is_of_test(stack: Stack) -> bool:
    """Return whether a test, or what it has called, was running, and nothing of the product."""
    for frame in stack:
        if frame.path.startswith(TESTS):
            return True
        if frame.path.startswith((*PRODUCT, LOOP)):
            return False
    return False


def report(stall: Stall) -> None:
    """Say in the log of a server or of ingestion what was slow; other threads may be."""
    if stall.cause in OWN and is_slow(stall.seconds):
        text = f"{MARK}{stall.cause} of {stall.seconds:.3f} s in {stall.place}"
        print(text, file=sys.stderr, flush=True)


def is_slow(seconds: float, limit_s: float = LIMIT_S) -> bool:
    """Whether a callback that has just taken so long would be slow on a machine with no load.

    Where others share caches and cores, the same work takes more of the processor's time: as much
    more as what is measured here, and where more is to be run than there are cores up to twice
    that, since what is measured here needs little memory.
    """
    slower = max(1.0, reference() / REFERENCE_S) * (2 if _is_crowded() else 1)
    return seconds > limit_s * slower


def _is_crowded() -> bool:
    """Whether more is to be run than there are cores, now or over the last minute."""
    cores = os.cpu_count() or 1
    if os.getloadavg()[0] > 1.5 * cores:
        return True
    try:  # the average follows within a minute only
        runnable = int(Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
    except OSError:
        return False
    return runnable > cores


def reference() -> float:
    """Return the processor time that a known piece of work takes now."""
    began = thread_time()
    table: dict[int, tuple[int, str]] = {}
    for i in range(20_000):
        table[i % 97] = (i, str(i))
    return thread_time() - began
