"""Processor time of this thread: what a bound on the cost of a call is compared with."""

import gc
from collections.abc import Callable
from time import thread_time


def seconds_of(call: Callable[[], object]) -> float:
    """Return the processor time that a call takes on this thread, in seconds.

    Garbage is not collected meanwhile: that takes as long as there are objects of other tests.
    Threads that other tests have left do not count either.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        began = thread_time()
        call()
        return thread_time() - began
    finally:
        if was_enabled:
            gc.enable()
