"""Long computations on threads: they can be interrupted, and few of them run at a time.

Planning is Python, so it holds the interpreter's lock for most of the time that it takes, however
many threads there are: each computation that runs beside the event loop makes the loop wait for a
switch. So a computation runs only in its turn, and gives that up after a slice of time:

    FIRST    the turns in which computations begin; most end within one slice
    LATER    the turn that long computations take one after the other, slice by slice

So a short computation waits for others that begin, and never for a long one.

A computation looks at `REQUESTS` wherever it may stop, where nothing is half done, and calls
`safepoint` if there is one:

    if REQUESTS:
        safepoint()

There it waits for its next turn. It raises Interrupted if its task was cancelled.
"""

import asyncio
from collections.abc import Callable, Hashable
from threading import Event, Lock, get_ident
from time import monotonic
from typing import Final, ParamSpec, TypeVar

from foreshore.deep_trees import DeepThreads
from foreshore.shares import Shares
from foreshore.turn_queue import Turn, TurnQueue

P = ParamSpec("P")
R = TypeVar("R")

SLICE_S: Final = 0.1
LOOK_S: Final = 0.05  # between looks whether a slice is over
FIRST: Final = TurnQueue(2)
LATER: Final = TurnQueue(1)
THREADS: Final = 32  # most of them wait for a turn
OF_OWNER: Final = Shares(8)


class Interrupted(BaseException):
    """Nobody waits for a computation any more. No handler of errors is to hold it up."""


class Computation:
    """One computation, which runs on a thread, and what the loop requests of it.

    A request is a flag that is set before the entry in `REQUESTS`. The computation takes the entry
    out before it looks at the flags, so it misses none.
    """

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._lock = Lock()  # over `_thread` and its entry in `REQUESTS`
        self._thread: int | None = None  # None: it has not begun, or has ended
        self._turns = FIRST
        self._turn: Turn | None = None
        self._began: float | None = None  # when its turn did; None while it waits
        self._slice_is_over = False
        self._is_interrupted = False
        self._woken = Event()

    def run(self) -> object:
        """Return the result of the work; raises its errors, and Interrupted."""
        thread = get_ident()
        with self._lock:
            self._thread = thread
        try:
            self._take_turn()
            return self._work()
        finally:
            with self._lock:
                REQUESTS.pop(thread, None)
                self._thread = None
            self._end_turn()

    def look(self) -> None:
        """Request that the computation gives up its turn if its slice is over and others wait.

        After its first slice it makes room for others that begin in any case.
        """
        began = self._began
        if began is None or monotonic() - began < SLICE_S:
            return
        if self._turns is FIRST or self._turns.is_wanted:
            self._slice_is_over = True
            self._request()

    def interrupt(self) -> None:
        """Request that the computation ends."""
        self._is_interrupted = True
        self._request()
        self._woken.set()

    def _request(self) -> None:
        with self._lock:
            if self._thread is not None:
                REQUESTS[self._thread] = self

    def comply(self) -> None:
        """Do what was requested, on the computation's thread."""
        REQUESTS.pop(get_ident(), None)
        if self._is_interrupted:
            raise Interrupted
        if self._slice_is_over:
            self._end_turn()
            self._slice_is_over = False
            self._turns = LATER
            self._take_turn()

    def _take_turn(self) -> None:
        self._woken.clear()
        turn = self._turn = self._turns.request(self._woken.set)
        while not turn.is_given and not self._is_interrupted:
            self._woken.wait()
        if self._is_interrupted:
            raise Interrupted
        self._began = monotonic()

    def _end_turn(self) -> None:
        self._began = None
        turn, self._turn = self._turn, None
        if turn is not None:
            self._turns.end(turn)


REQUESTS: Final[dict[int, Computation]] = {}  # computations with a request, by thread


def safepoint() -> None:
    """Do what is requested of the computation of this thread, if anything is."""
    computation = REQUESTS.get(get_ident())
    if computation is not None:
        computation.comply()


def are_computing() -> bool:
    """Return whether a computation runs or waits for its turn."""
    return not (FIRST.is_idle and LATER.is_idle)


_THREADS = DeepThreads(THREADS, "planning")


async def run(
    owner: Hashable | None, work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
) -> R:
    """Await `work(*args, **kwargs)` on a thread, where it ends soon after this is cancelled.

    Few computations of one owner have a thread at a time. Those without an owner are not counted.
    """
    if owner is None:
        return await _run(lambda: work(*args, **kwargs))
    async with OF_OWNER.share(owner):
        return await _run(lambda: work(*args, **kwargs))


async def _run(work: Callable[[], R]) -> R:
    loop = asyncio.get_running_loop()
    done: list[R] = []
    computation = Computation(lambda: done.append(work()))
    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal timer
        computation.look()
        timer = loop.call_later(LOOK_S, look)

    timer = loop.call_later(SLICE_S, look)
    try:
        await loop.run_in_executor(_THREADS, computation.run)
    except asyncio.CancelledError:
        computation.interrupt()
        raise
    finally:
        timer.cancel()
    return done[0]
