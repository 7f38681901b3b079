"""Long computations on threads that can be interrupted, and of which few run at once.

Planning is Python, so it holds the interpreter's lock for most of the time that it takes, however
many threads there are: each computation that runs beside the event loop makes the loop wait for a
switch. So a computation that has run for `LONG_S` needs one of `TURNS` to go on.

A computation looks at `ASKED` wherever it may stop, where nothing is half done, and calls `answer`
if something is there:

    if ASKED:
        answer()

The computation of a task that is cancelled raises Interrupted there.
"""

import asyncio
from collections.abc import Callable
from threading import BoundedSemaphore, Lock, get_ident
from typing import Final, ParamSpec, TypeVar

from foreshore.deep_trees import DeepThreads
from foreshore.garbage import collection_resumed

P = ParamSpec("P")
R = TypeVar("R")

LONG_S: Final = 0.1
TURNS: Final = BoundedSemaphore(2)
THREADS: Final = 32  # most of them wait for a turn
LOOK_S: Final = 0.05  # between looks whether a computation that waits for a turn is interrupted


class Interrupted(BaseException):
    """Nobody waits for a computation any more. No handler of errors is to hold it up."""


class _Computation:
    """One computation, and what the loop asks of it.

    A request is a flag that is set before the entry in `ASKED`; the computation takes the entry out
    before it looks at the flags, so it misses none.
    """

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self._lock = Lock()  # over `_thread` and its entry in `ASKED`
        self._thread: int | None = None  # None: it has not begun, or has ended
        self._is_long = False
        self._has_turn = False
        self._is_interrupted = False

    def run(self) -> object:
        """Return what the work gives; raises its errors, and Interrupted."""
        with self._lock:
            self._thread = get_ident()
            if self._is_long:  # it has waited for a thread
                ASKED[self._thread] = self
        try:
            if self._is_interrupted:
                raise Interrupted
            return self._work()
        finally:
            with self._lock:
                ASKED.pop(self._thread, None)
                self._thread = None
            if self._has_turn:
                self._has_turn = False
                TURNS.release()

    def be_long(self) -> None:
        """Have the computation go on only when it is its turn."""
        self._is_long = True
        self._ask()

    def interrupt(self) -> None:
        """Have the computation end."""
        self._is_interrupted = True
        self._ask()

    def _ask(self) -> None:
        with self._lock:
            if self._thread is not None:
                ASKED[self._thread] = self

    def answer(self) -> None:
        """Do what the loop asks, on the computation's thread."""
        ASKED.pop(get_ident(), None)
        if self._is_long and not self._has_turn:
            with collection_resumed():
                while not self._is_interrupted and not self._has_turn:
                    self._has_turn = TURNS.acquire(timeout=LOOK_S)
        if self._is_interrupted:
            raise Interrupted


ASKED: Final[dict[int, _Computation]] = {}  # computations of which something is asked, by thread


def answer() -> None:
    """Do what is asked of the computation of this thread, if anything is."""
    computation = ASKED.get(get_ident())
    if computation is not None:
        computation.answer()


_THREADS = DeepThreads(THREADS, "planning")


async def run(work: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Await `work(*args, **kwargs)` on a thread, where it ends soon after this is cancelled."""
    loop = asyncio.get_running_loop()
    done: list[R] = []
    computation = _Computation(lambda: done.append(work(*args, **kwargs)))
    timer = loop.call_later(LONG_S, computation.be_long)
    try:
        await loop.run_in_executor(_THREADS, computation.run)
    except asyncio.CancelledError:
        computation.interrupt()
        raise
    finally:
        timer.cancel()
    return done[0]
