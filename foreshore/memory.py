"""Memory that the allocators keep after a large result, and how it is given back.

Arrow's pool and the C library keep freed memory for the next use. After a query that needed
hundreds of megabytes for a moment, the process stays as large as it was then.
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
    """Return the C library's way to give back memory, if it has one: glibc's malloc_trim."""
    if not sys.platform.startswith("linux"):
        return lambda: None
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return (lambda: None) if trim is None else lambda: trim(0)
