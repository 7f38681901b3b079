"""How deep a tree may be that is walked by recursion, and threads whose stacks hold that.

Trees of syntax and plans are as deep as their text is nested, and views stand on one another. Each
level takes a few frames of Python, which are counted, and where the recursion goes through C, as in
`map(walk, inputs)`, some of the thread's stack, which nobody watches: a stack that is full ends the
process. `tests/foreshore/test_deep_trees.py` shows that the stacks hold the frames.
"""

import sys
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, ParamSpec, TypeVar

from foreshore.error_frames import clear_frames

P = ParamSpec("P")
R = TypeVar("R")

FRAMES: Final = 20_000  # on one thread; Python's default is 1,000
FRAMES_OF_WORKERS: Final = 10_000  # of processes of Spark, whose stacks have 8 MB
STACK_BYTES: Final = 96 << 20  # of address space: what is not used takes no memory


def allow_depth(frames: int = FRAMES) -> None:
    """Raise Python's recursion limit to `frames`, by default the depth of plans."""
    if sys.getrecursionlimit() < frames:
        sys.setrecursionlimit(frames)


_starting = threading.Lock()  # the size of new stacks is of the whole process


def run_on_deep_stack(work: Callable[[], R]) -> R:
    """Do the work of a process on a thread on which trees of any allowed depth may be walked.

    The main thread only waits, and ends the process if it is interrupted.
    """
    allow_depth()
    result: Future[R] = Future()

    def run() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    start_deep_thread(run, "main")
    return result.result()


def start_deep_thread(work: Callable[[], None], name: str) -> None:
    """Start a thread on which trees of any allowed depth may be walked; no end waits for it."""
    with _starting:
        before = threading.stack_size(STACK_BYTES)
        try:
            threading.Thread(target=work, name=name, daemon=True).start()
        finally:
            threading.stack_size(before)


class DeepThreads(ThreadPoolExecutor):
    """Threads on which trees of any allowed depth may be walked, compared and destroyed.

    Those that work has half made when it fails are destroyed there.
    """

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Have a thread do it; it is started here if there is none yet."""
        with _starting:
            before = threading.stack_size(STACK_BYTES)
            try:
                return super().submit(_clearing_frames, fn, *args, **kwargs)
            finally:
                threading.stack_size(before)


def _clearing_frames(fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    try:
        return fn(*args, **kwargs)
    except BaseException as error:
        clear_frames(error)
        del fn, args, kwargs  # this frame is the error's, too
        raise
