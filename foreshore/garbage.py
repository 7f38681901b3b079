"""Pause Python's garbage collection while a long text is parsed or planned.

A collection stops all threads, and looks at every young object: at all that a parser has made so
far, hundreds of thousands of objects for a long text. Parsing and planning make no cycles, so they
need none.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_paused = Lock()


@contextmanager
def collection_paused() -> Iterator[None]:
    """Collect no garbage during the body, unless another pause ends meanwhile.

    Pauses do not add up: however many texts are being parsed, the end of the first lets garbage be
    collected again.
    """
    if not _paused.acquire(blocking=False):
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        _paused.release()
