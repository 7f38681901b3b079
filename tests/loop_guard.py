"""No callback of an environment's event loop takes longer than 50 ms of the processor.

What counts is the processor time of the loop's thread, so that a busy machine makes no difference.
A server, whose loop is uvloop's, has the steps of its tasks measured (`guarded_server.py`) and says
in its log which were slow. In this process asyncio's handles are measured, with a wider limit: the
test, and replicas without a process of their own, work on the same loop.
"""

import asyncio
import faulthandler
import gc
import os
import re
from collections.abc import Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from contextvars import Context
from pathlib import Path
from tempfile import TemporaryFile
from threading import Thread, get_ident
from time import perf_counter, sleep, thread_time
from typing import Any

LIMIT_S = 0.05
SHARED_LIMIT_S = 0.5
REFERENCE_S = 0.0015  # what `reference` takes on an idle machine
MARK = "slow callback: "
_FRAME = re.compile(r'  File "(.+)", line (\d+) in ')

Report = Callable[[str, float], None]


class Collections:
    """The processor time that collections of garbage have taken, which no statement asks for.

    They run on the thread that happens to set one off.
    """

    def __init__(self) -> None:
        self._totals: dict[int, float] = {}  # by thread
        self._began = 0.0
        gc.callbacks.append(self._note)

    @property
    def total(self) -> float:
        """Return the processor time, in seconds, that collections have taken on this thread."""
        return self._totals.get(get_ident(), 0.0)

    def _note(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began = thread_time()
        else:
            thread = get_ident()
            self._totals[thread] = self._totals.get(thread, 0.0) + thread_time() - self._began


class SlowCallbacks:
    """The slow callbacks of loops of this process, each from `watch` to `unwatch`."""

    def __init__(self) -> None:
        self._found: dict[asyncio.AbstractEventLoop, list[str]] = {}
        self._apart = 0.0
        self._collections = Collections()

    def watch(self, loop: asyncio.AbstractEventLoop) -> None:
        """Take note of what is slow on `loop` from now on."""
        _measure_handles(self)
        self._found.setdefault(loop, [])

    def unwatch(self, loop: asyncio.AbstractEventLoop) -> list[str]:
        """Return what has been slow on `loop`, and take no more notes."""
        return self._found.pop(loop, [])

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Do not count the body, in which a test does work of its own."""
        began = thread_time()
        try:
            yield
        finally:
            self._apart += thread_time() - began

    def run(self, run: Callable[[asyncio.Handle], None], handle: asyncio.Handle) -> None:
        """Run a callback, and note it if it was slow."""
        before = thread_time() - self._apart - self._collections.total
        run(handle)
        took = thread_time() - self._apart - self._collections.total - before
        if took > SHARED_LIMIT_S and is_slow(took, SHARED_LIMIT_S):
            found = self._found.get(handle._loop)  # type: ignore[attr-defined]
            if found is not None:
                found.append(f"{took:.3f} s in {handle!r}")


def _measure_handles(slow: SlowCallbacks) -> None:
    run = asyncio.Handle._run
    if getattr(run, "is_measured", False):
        return

    def measured(self: asyncio.Handle) -> None:
        slow.run(run, self)

    measured.is_measured = True  # type: ignore[attr-defined]
    asyncio.Handle._run = measured  # type: ignore[method-assign]


SLOW = SlowCallbacks()


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


class StackSampler(Thread):
    """Samples the stack of a thread's step that takes long, to say where it was."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._thread = get_ident()
        self._began: float | None = None
        self._stack = ""

    def step_begins(self) -> None:
        """Sample the step that begins now."""
        self._began, self._stack = perf_counter(), ""

    def step_ends(self) -> str:
        """Return the innermost frames of the step that ends now, if it was sampled."""
        self._began = None
        return self._stack

    def run(self) -> None:
        """Sample until the process ends."""
        while True:
            sleep(LIMIT_S / 2)
            began = self._began
            if began is not None and perf_counter() - began > LIMIT_S / 2:
                self._stack = " < ".join(innermost(self._thread, 5))


def innermost(thread: int, count: int) -> list[str]:
    """Return the innermost frames of a running thread, each as file:line.

    faulthandler reads them while no thread runs. Following the frames of a running thread from
    Python crashes now and then, as they end meanwhile.
    """
    with TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        sections = file.read().split("\n\n")
    start = f"Thread {thread:#018x} "
    lines = next((each.splitlines() for each in sections if each.startswith(start)), [])
    found = (_FRAME.match(line) for line in lines[1 : count + 1])
    return [f"{Path(each[1]).name}:{each[2]}" for each in found if each]


class Measured(Coroutine[Any, Any, Any]):
    """A coroutine of which each step is measured."""

    def __init__(
        self,
        inner: Coroutine[Any, Any, Any],
        report: Report,
        sampler: StackSampler,
        collections: Collections,
    ) -> None:
        self._inner = inner
        self._report = report
        self._sampler = sampler
        self._collections = collections
        self.__name__ = getattr(inner, "__qualname__", repr(inner))
        self.__qualname__ = self.__name__

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()

    def send(self, value: Any) -> Any:
        return self._step(self._inner.send, value)

    def throw(self, *error: Any) -> Any:
        return self._step(self._inner.throw, *error)

    def close(self) -> None:
        self._inner.close()

    def _step(self, step: Callable[..., Any], *args: Any) -> Any:
        began, collected = thread_time(), self._collections.total
        self._sampler.step_begins()
        try:
            return step(*args)
        finally:
            stack, collected = self._sampler.step_ends(), self._collections.total - collected
            took = thread_time() - began - collected
            if took > LIMIT_S and is_slow(took):
                self._report(f"{self.__name__} at {stack}", took)


def measure_tasks(loop: asyncio.AbstractEventLoop, report: Report) -> None:
    """Report the steps of the loop's tasks that take too long; to be called on its thread."""
    sampler, collections = StackSampler(), Collections()
    sampler.start()

    def factory(
        loop: asyncio.AbstractEventLoop,
        inner: Coroutine[Any, Any, Any] | Generator[Any, None, Any],
        *,
        context: Context | None = None,
    ) -> "asyncio.Task[Any]":
        assert isinstance(inner, Coroutine), inner
        return asyncio.Task(
            Measured(inner, report, sampler, collections), loop=loop, context=context
        )

    loop.set_task_factory(factory)
