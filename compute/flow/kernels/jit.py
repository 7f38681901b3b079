"""Compilation of kernels, cached beside the source or in the user's cache directory.

With `FORESHORE_UNCOMPILED=1` kernels stay plain Python functions, for tests and debuggers.
"""

import os
from typing import Any

UNCOMPILED = os.environ.get("FORESHORE_UNCOMPILED") == "1"

if UNCOMPILED:

    def kernel(function: Any) -> Any:
        """Return the function as it is."""
        return function

    inlined = kernel
else:
    import numba

    def kernel(function: Any) -> Any:
        """Return the compiled function; it runs without the interpreter's lock."""
        return numba.njit(cache=True, nogil=True, error_model="numpy")(function)

    def inlined(function: Any) -> Any:
        """Return the compiled function, for other kernels to call."""
        return numba.njit(nogil=True, error_model="numpy")(function)
