"""Compilation of kernels, cached beside the source or in the user's cache directory.

A compiled kernel contains the functions of other files that it calls. So it is compiled anew if any
of these files has changed, not only its own.

With `FORESHORE_UNCOMPILED=1` kernels stay plain Python functions, for tests and debuggers.
"""

import os
import re
from functools import cache
from pathlib import Path
from typing import Any

UNCOMPILED = os.environ.get("FORESHORE_UNCOMPILED") == "1"

_HERE = Path(__file__).parent
_IMPORTS = re.compile(rf"^from {re.escape(__package__)}\.(\w+) import", re.MULTILINE)

Stamp = tuple[tuple[str, int, int], ...]


@cache
def imported(module: str) -> frozenset[str]:
    """Return the names of the files of this folder that `module` imports, itself included."""
    found = {module}
    for each in _IMPORTS.findall((_HERE / f"{module}.py").read_text()):
        found |= imported(each)
    return frozenset(found)


@cache
def stamp(module: str) -> Stamp:
    """Return the times and sizes of the files on which the kernels of `module` depend."""
    stats = [(name, (_HERE / f"{name}.py").stat()) for name in sorted(imported(module))]
    return tuple((name, stat.st_mtime_ns, stat.st_size) for name, stat in stats)


if UNCOMPILED:

    def kernel(function: Any) -> Any:
        """Return the function as it is."""
        return function

    inlined = kernel
else:
    import numba

    # Wrappers for callers in Python and C take a quarter of the time of compilation.
    _OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}

    def kernel(function: Any) -> Any:
        """Return the compiled function; it runs without the interpreter's lock."""
        compiled = numba.njit(cache=True, no_cfunc_wrapper=True, **_OPTIONS)(function)
        # numba itself looks at the function's own file only.
        compiled._cache._cache_file._source_stamp = stamp(function.__module__.rpartition(".")[2])
        return compiled

    def inlined(function: Any) -> Any:
        """Return the compiled function, for other kernels to call, not for Python."""
        return numba.njit(no_cfunc_wrapper=True, no_cpython_wrapper=True, **_OPTIONS)(function)
