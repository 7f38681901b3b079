"""Compilation of kernels, cached beside the source or in the user's cache directory.

A compiled kernel contains the functions of other files that it calls. So it is compiled anew if any
of these files has changed, not only its own.

While other processes compile the kernels (`flow/compilation.py`), the first call of one waits at
the *gate* until it is in the cache.

With `FORESHORE_UNCOMPILED=1` kernels stay plain Python functions, for tests and debuggers.
"""

import hashlib
import logging
import os
import pickle
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from foreshore.compute.flow.kernels import shipped
from foreshore.compute.flow.kernels.code_files import code_in, has_code, sealed

logger = logging.getLogger(__name__)

UNCOMPILED = os.environ.get("FORESHORE_UNCOMPILED") == "1"

_HERE = Path(__file__).parent
_IMPORTS = re.compile(rf"^from {re.escape(__package__)}\.(\w+) import", re.MULTILINE)

Stamp = tuple[tuple[str, str], ...]


@cache
def imported(module: str) -> frozenset[str]:
    """Return the names of the files of this folder that `module` imports, itself included."""
    found = {module}
    for each in _IMPORTS.findall(_source(module)):
        found |= imported(each)
    return frozenset(found)


@cache
def _source(module: str) -> str:
    return (_HERE / f"{module}.py").read_text()


@cache
def _digest(module: str) -> str:
    return hashlib.sha256(_source(module).encode()).hexdigest()


@cache
def stamp(module: str) -> Stamp:
    """Return digests of the files on which the kernels of `module` depend."""
    return tuple((name, _digest(name)) for name in sorted(imported(module)))


class Gate:
    """Where a thread that calls a kernel for the first time waits while others compile it."""

    def __init__(self) -> None:
        self._wait: Callable[[str], None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether no call has to wait."""
        return self._wait is None

    def close(self, wait: Callable[[str], None]) -> bool:
        """Let first calls call `wait` with the kernel's name; return False if they call another."""
        if self._wait is not None:
            return False
        self._wait = wait
        return True

    def open(self) -> None:
        """Let calls wait no longer."""
        self._wait = None

    def pass_through(self, name: str) -> None:
        """Wait until the kernel `name` can be loaded, or has to be compiled by the caller."""
        if (wait := self._wait) is not None:
            wait(name)


GATE = Gate()
KERNELS: dict[str, Any] = {}  # those that are cached, by module and name, as `rows.hash_keys`

if UNCOMPILED:

    def kernel(function: Any) -> Any:
        """Return the function as it is."""
        return function

    inlined = kernel
else:
    import numba
    from numba.core.caching import FunctionCache, IndexDataCacheFile
    from numba.core.registry import CPUDispatcher

    # Wrappers for callers in Python and C take a quarter of the time of compilation.
    _OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}

    class KernelFiles(IndexDataCacheFile):  # type: ignore[misc]
        """The index and the code of a kernel in numba's cache; what is damaged counts as missing.

        `load` of numba's class returns None after an OSError.
        """

        def _load_index(self) -> Any:
            try:
                return super()._load_index()
            except OSError:
                raise
            except Exception:  # unpickling may raise anything
                logger.warning("index of a kernel is damaged", extra={"path": self._index_path})
                return {}

        def _load_data(self, name: str) -> Any:
            path = Path(self._data_path(name))
            code = code_in(path.read_bytes())
            if code is None:
                logger.warning("code of a kernel is damaged", extra={"path": str(path)})
                raise OSError(f"{path} is damaged")
            return pickle.loads(code)

        def _save_data(self, name: str, data: Any) -> None:
            with self._open_for_write(self._data_path(name)) as file:
                file.write(sealed(self._dump(data)))

        def has_data(self, name: str) -> bool:
            """Whether there is code under a name of the index."""
            return has_code(Path(self._data_path(name)))

    class KernelCache(FunctionCache):  # type: ignore[misc]
        """A kernel's code in numba's cache, else that of the wheel."""

        def __init__(self, function: Any) -> None:
            super().__init__(function)
            self.name = name_of(function)
            self.stamp = stamp(module_of(function))
            base = self._impl.filename_base
            # numba itself looks at the function's own file only.
            self._cache_file = KernelFiles(self._cache_path, base, self.stamp)
            # It writes the index before the code: a process that ends in between must not leave the
            # code of other sources under a name that the index has.
            digest = hashlib.sha256(repr(self.stamp).encode()).hexdigest()[:16]
            self._cache_file._data_name_pattern = f"{base}.{digest}.{{number:d}}.nbc"

        def has(self, types: Any, codegen: Any) -> bool:
            """Whether there is code for arguments of these types."""
            found = self._cache_file._load_index().get(self._index_key(types, codegen))
            if found is not None and self._cache_file.has_data(found):
                return True
            return shipped.has(self.name, self.stamp, types)

        def _load_overload(self, types: Any, target_context: Any) -> Any:
            found = super()._load_overload(types, target_context)
            if found is None:
                code = shipped.load(self.name, self.stamp, types)
                found = None if code is None else self._impl.rebuild(target_context, code)
            return found

    class Kernel(CPUDispatcher):  # type: ignore[misc]
        """A compiled function that passes through the gate when it is not loaded."""

        def enable_caching(self) -> None:
            """Cache what is compiled."""
            self._cache = KernelCache(self.py_func)

        def _compile_for_args(self, *args: Any, **kwargs: Any) -> Any:
            GATE.pass_through(name_of(self.py_func))
            return super()._compile_for_args(*args, **kwargs)

    def module_of(function: Any) -> str:
        """Return the name of a kernel's module in this folder."""
        name: str = function.__module__
        return name.rpartition(".")[2]

    def name_of(function: Any) -> str:
        """Return the name of a kernel: its module and its own."""
        return f"{module_of(function)}.{function.__name__}"

    def kernel(function: Any) -> Any:
        """Return the compiled function; it runs without the interpreter's lock."""
        compiled = Kernel(function, targetoptions={"nopython": True} | _OPTIONS)
        compiled.enable_caching()
        KERNELS[name_of(function)] = compiled
        return compiled

    def inlined(function: Any) -> Any:
        """Return the compiled function, for other kernels to call, not for Python."""
        return numba.njit(no_cpython_wrapper=True, **_OPTIONS)(function)
