"""Returns memory kept by allocators after a large result.

Arrow's pool and the C library keep freed memory for reuse. Without this, the process would stay as
large as its largest query made it.
"""

import ctypes
import sys
from collections.abc import Callable
from functools import cache

import pyarrow as pa


def give_back() -> None:
    """Return unused memory to the operating system; takes some milliseconds on a thread."""
    pa.default_memory_pool().release_unused()
    _trim()()


@cache
def _trim() -> Callable[[], object]:
    """Return the C library's function to release memory, if it has one: glibc's malloc_trim."""
    if not sys.platform.startswith("linux"):
        return lambda: None
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return (lambda: None) if trim is None else lambda: trim(0)
