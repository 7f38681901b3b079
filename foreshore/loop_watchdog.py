"""A watchdog of an event loop: it reports what holds the loop up for more than 50 ms.

    step          a step of a task, a callback, or a method of a protocol takes long
    wait          a step sleeps: it waits for a lock, a file or another process
    interpreter   another thread holds the interpreter's lock (GIL)

A thread looks at the loop's thread each 20 ms. If the loop is in the same step as before, the time
counts that its thread has spent on the processor since, without collections of garbage, or for
which it has slept (`thread_sleep.py`); so a busy machine makes no difference. A step of 75 ms is
found, of 125 ms after a second of rest, one of less than 50 ms never. One that sleeps when the loop
has done nearly nothing before is found from 160 ms on. One that starts a thread sleeps until the
system gives that a processor, which says nothing of the loop and is not reported.

uvloop's handles are in C and cannot be measured one by one. Two looks see the same step if neither
the running task nor the number of protocol callbacks (`protocol_callback`) has changed, and if a
probe that the loop was sent meanwhile was not answered. A loop that has run for a moment and rests
gets one probe, since it may rest within a step; one that has only answered it gets no other.

A call in C that holds the GIL keeps the watchdog waiting, too. It is found by the watchdog's own
delay, without the time in which no processor was free for it. The delay is the loop's if the loop's
thread was on the processor meanwhile, and another thread's otherwise.
"""

import asyncio
import faulthandler
import gc
import logging
import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from threading import get_ident
from time import perf_counter, thread_time
from typing import Any, NamedTuple, TypeVar

from prometheus_client import Counter

from foreshore.run_queue import RunQueue
from foreshore.thread_sleep import ThreadSleep

logger = logging.getLogger(__name__)

LIMIT_S = 0.05
INTERVAL_S = 0.02
IDLE_INTERVAL_S = 0.05  # after so many looks at an idle loop:
MANY_IDLE = 50
CLOSE_S = 0.005  # between looks while a step lasts
IDLE_S = 0.0005  # of the processor between two looks; a loop with less is idle
REST_S = 0.075  # in which a loop with a timer each 100 ms does not rest
ANSWER_S = 0.0001  # of the processor, that a loop takes at most to rest after it has answered
FRAMES = 5
QUIET_S = 10.0  # between two warnings
_FRAME = re.compile(r'  File "(.+)", line (\d+) in (.+)')

STALLS = Counter(
    "foreshore_loop_stalls",
    "Times that the event loop was held up for over 50 ms.",
    ("cause",),
)

F = TypeVar("F", bound=Callable[..., Any])


class Frame(NamedTuple):
    """A line of a function that runs."""

    path: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{Path(self.path).name}:{self.line}"


Stack = tuple[Frame, ...]  # the innermost frame first


@dataclass(frozen=True, slots=True)
class Stall:
    """What has held up a loop: `cause` is "step", "wait" or "interpreter"."""

    cause: str
    seconds: float
    place: str  # the task, and the innermost frames
    stack: Stack = ()  # of the loop's thread, if that is the cause


class Collections:
    """The processor time that collections of garbage have taken, by thread.

    No statement asks for them, and they run on the thread that happens to set one off.
    """

    def __init__(self) -> None:
        self._totals: dict[int, float] = {}
        self._running: tuple[int, float] | None = None  # the thread, and its time at the start
        gc.callbacks.append(self._note)

    def total(self, thread: int, now: float) -> float:
        """Return the seconds that collections have taken on a thread, of which the time is `now`.

        A collection that runs counts.
        """
        running = self._running
        lasts = now - running[1] if running is not None and running[0] == thread else 0.0
        return self._totals.get(thread, 0.0) + lasts

    def close(self) -> None:
        """Stop."""
        gc.callbacks.remove(self._note)

    def _note(self, phase: str, _: dict[str, int]) -> None:
        thread, now = get_ident(), thread_time()
        if phase == "start":
            self._running = thread, now
        else:
            self._totals[thread] = self.total(thread, now)
            self._running = None


class _Callbacks:
    """The number of protocol callbacks of this process."""

    count = 0


def protocol_callback(method: F) -> F:
    """Let a method of a protocol, which a loop calls directly, count as a step of its own."""

    def counted(*args: Any) -> Any:
        _Callbacks.count += 1
        return method(*args)

    counted.__name__, counted.__doc__ = method.__name__, method.__doc__
    return counted  # type: ignore[return-value]


Report = Callable[[Stall], None]


class Excluded:
    """The work on a loop's thread that does not count: none."""

    def seconds(self, now: float) -> float:
        """Return the seconds of the thread so far that do not count, given its time now."""
        return 0.0

    def lasts(self) -> bool:
        """Return whether the thread is at such work."""
        return False


class Watchdog:
    """Watches the running loop from `start` to `close`, both called on the loop's thread."""

    def __init__(
        self,
        report: Report | None = None,
        limit_s: float = LIMIT_S,
        excluded: Excluded | None = None,
    ) -> None:
        """Watch with a limit."""
        self._report = report or _report
        self._limit = limit_s
        self._excluded = excluded or Excluded()
        self._closed = threading.Lock()  # released to close
        self._closed.acquire()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start, where the system has clocks of threads."""
        if not hasattr(time, "pthread_getcpuclockid"):
            return
        looking = _Looking(asyncio.get_running_loop(), self._report, self._limit, self._excluded)
        self._thread = threading.Thread(
            target=looking.run, args=(self._closed,), name="watchdog", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop."""
        self._closed.release()
        if self._thread is not None:
            self._thread.join()


class _Looking:
    """What the watchdog's thread does."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        report: Report,
        limit: float,
        excluded: Excluded,
    ) -> None:
        self._loop = loop
        self._report = report
        self._limit = limit
        self._excluded = excluded
        self._thread = get_ident()
        self._clock = time.pthread_getcpuclockid(self._thread)
        self._collections = Collections()
        self._sleep = ThreadSleep()
        self._sent = self._answered = self._noted = 0  # probes; answers that were seen
        self._answered_at = 0.0  # by the loop thread's clock
        self._at_rest: float | None = None  # that clock, when the loop had only answered
        self._step: object = None
        self._began = 0.0  # by the loop's clock, when the step was first seen
        self._stack: Stack = ()
        self._lasted = self._slept = 0.0

    def run(self, closed: threading.Lock) -> None:
        """Look until closed."""
        waits, interval, idle_looks = RunQueue(), INTERVAL_S, 0
        waited, before, others = waits.seconds(), self._now(), self._others()
        due = perf_counter() + interval
        while not closed.acquire(timeout=interval):
            delay = perf_counter() - due
            if delay > self._limit:
                delay = _without(delay, waited, waits.seconds())
            now = self._now()
            if delay > self._limit:
                self._delayed(delay, now - before, self._others() - others)
            idle_looks = 0 if now - before > IDLE_S else idle_looks + 1
            lasts = self._look(now, is_idle=idle_looks > 0)
            interval = (
                CLOSE_S if lasts else INTERVAL_S if idle_looks < MANY_IDLE else IDLE_INTERVAL_S
            )
            waited, before, others = waits.seconds(), self._now(), self._others()
            due = perf_counter() + interval
        self._ended()
        self._collections.close()
        self._sleep.close()
        waits.close()

    def _now(self) -> float:
        """Return the time of the processor that counts."""
        spent = time.clock_gettime(self._clock)
        return spent - self._collections.total(self._thread, spent) - self._excluded.seconds(spent)

    def _others(self) -> float:
        """Return the time of the processor that the other threads have had."""
        return time.process_time() - time.clock_gettime(self._clock) - thread_time()

    def _delayed(self, delay: float, loops: float, others: float) -> None:
        """Report what held the interpreter's lock for `delay` seconds.

        `loops` and `others` are the processor time of the loop's thread and of others meanwhile.
        """
        if loops > self._limit and loops > others:
            self._lasted = self._slept = 0.0  # the same step is not reported twice
            self._step = None
            self._tell("step", loops, stack_of(self._thread))
        elif others > self._limit:
            places = ", ".join(_other_places(self._thread))
            self._report_stall(Stall("interpreter", min(delay, others), places))

    def _look(self, now: float, *, is_idle: bool) -> bool:
        """Compare with the last look; return whether the next one should be soon."""
        step = (asyncio.current_task(self._loop), _Callbacks.count, self._answered)
        rests = self._sleep.look()
        if step == self._step and self._sent != self._answered and self._loop.is_running():
            self._lasted = now - self._began
            if rests > CLOSE_S and self._sleep.could_not_run() and not self._excluded.lasts():
                self._slept = max(self._slept, rests)
            lasted = max(self._lasted, self._slept)
            if lasted > self._limit / 2 and (not self._stack or lasted < self._limit):
                self._stack = stack_of(self._thread)
            return True
        self._ended()
        self._step, self._began, self._stack = step, now, ()
        if self._noted != self._answered:
            self._noted = self._answered
            if self._sleep.spent - self._answered_at < ANSWER_S:
                self._at_rest = self._sleep.spent
        may_wait = rests > REST_S and self._sleep.spent != self._at_rest
        if self._sent == self._answered and (may_wait or not is_idle):
            self._sent += 1
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._answer)
            return may_wait
        return False

    def _answer(self) -> None:
        self._answered_at = thread_time()
        self._answered += 1

    def _ended(self) -> None:
        """Report the step that has ended, if it has taken long."""
        lasted = max(self._lasted, self._slept)
        if lasted > self._limit:
            cause = "step" if lasted == self._lasted else "wait"
            if cause == "step" or not _starts_thread(self._stack):
                self._tell(cause, lasted, self._stack)
        self._lasted = self._slept = 0.0

    def _tell(self, cause: str, seconds: float, stack: Stack) -> None:
        task = self._step[0] if isinstance(self._step, tuple) else None
        name = getattr(task.get_coro(), "__qualname__", "") if task is not None else ""
        frames = " < ".join(str(each) for each in stack[:FRAMES])
        place = f"{name} at {frames}" if name else frames
        self._report_stall(Stall(cause, seconds, place, stack))

    def _report_stall(self, stall: Stall) -> None:
        STALLS.labels(stall.cause).inc()
        self._report(stall)


class Warnings:
    """Writes stalls to the log: not more than one in ten seconds."""

    def __init__(self) -> None:
        self._last = -QUIET_S
        self._left_out = 0

    def note(self, stall: Stall) -> None:
        """Log a stall, or count it for the next one."""
        now = perf_counter()
        if now - self._last < QUIET_S:
            self._left_out += 1
            return
        extra = {
            "cause": stall.cause,
            "ms": round(stall.seconds * 1000),
            "place": stall.place,
            "left_out": self._left_out,
        }
        self._last, self._left_out = now, 0
        logger.warning("the event loop was held up", extra=extra)


REPORTS: list[Report] = [Warnings().note]  # of all watchdogs that have no report of their own


def _report(stall: Stall) -> None:
    for each in REPORTS:
        each(stall)


def _without(delay: float, before: float | None, after: float | None) -> float:
    """Return a delay without the waits for a processor; 0 where these are not known."""
    return 0.0 if before is None or after is None else delay - (after - before)


def _starts_thread(stack: Stack) -> bool:
    """Return whether a thread waits in Thread.start."""
    return any(Path(f.path).name == "threading.py" and f.function == "start" for f in stack[:3])


def stack_of(thread: int) -> Stack:
    """Return the frames of a running thread.

    faulthandler reads them while no thread runs. Following the frames of a running thread from
    Python crashes now and then, as they end meanwhile.
    """
    return _stacks().get(thread, ())


def _other_places(thread: int) -> list[str]:
    """Return the innermost frame of each thread but this one and `thread`."""
    own = get_ident()
    found = _stacks().items()
    return [str(stack[0]) for ident, stack in found if stack and ident not in (own, thread)]


def _stacks() -> dict[int, Stack]:
    with TemporaryFile("w+") as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        sections = file.read().split("\n\n")
    found: dict[int, Stack] = {}
    for section in sections:
        head, *lines = section.splitlines() or [""]
        match = re.search(r"[Tt]hread (0x[0-9a-f]+) ", head)
        if match is not None:
            matches = (_FRAME.match(line) for line in lines if "<frozen importlib" not in line)
            found[int(match[1], 16)] = tuple(Frame(m[1], int(m[2]), m[3]) for m in matches if m)
    return found
