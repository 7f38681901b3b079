"""Pause Python's garbage collection while a long text is parsed or planned.

A collection stops all threads, and looks at every young object: at all that a parser has made so
far, hundreds of thousands of objects for a long text. Parsing and planning make no cycles, so they
need none.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, get_ident

_paused = Lock()
_holder: int | None = None  # the thread that holds `_paused`


@contextmanager
def collection_paused() -> Iterator[None]:
    """Collect no garbage during the body, unless another pause ends meanwhile.

    Pauses do not add up: however many texts are being parsed, the end of the first lets garbage be
    collected again.
    """
    if not _pause():
        yield
        return
    try:
        yield
    finally:
        _resume()


@contextmanager
def collection_resumed() -> Iterator[None]:
    """Let garbage be collected while this thread waits for others during its pause, if any."""
    has_paused = _holder == get_ident()
    _resume()
    try:
        yield
    finally:
        if has_paused:
            _pause()


def _pause() -> bool:
    """Pause for this thread; return whether no other pause is on."""
    global _holder
    if not _paused.acquire(blocking=False):
        return False
    _holder = get_ident()
    gc.disable()
    return True


def _resume() -> None:
    """End the pause of this thread, if it has one."""
    global _holder
    if _holder == get_ident():
        _holder = None
        gc.enable()
        _paused.release()
