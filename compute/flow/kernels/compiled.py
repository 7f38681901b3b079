"""Which kernels have been compiled, and for which types: noted in a file of the cache's directory.

A process that finds the note of its own version loads these kernels from the cache, which takes a
third of calling all of them. What the cache has not, or for another processor, is compiled then.
"""

import logging
import os
import pickle
import pkgutil
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from foreshore.compute.flow import kernels
from foreshore.compute.flow.kernels.jit import UNCOMPILED

logger = logging.getLogger(__name__)

NAME = "compiled.pickle"


def load(version: str) -> bool:
    """Load what is noted of a version of the engine; return False if there is no note of it."""
    if UNCOMPILED:
        return False
    try:
        noted_of, noted = pickle.loads(_path().read_bytes())  # as trustworthy as the cache is
    except FileNotFoundError:
        return False
    except Exception as error:  # it may name what other versions of libraries have
        logger.info("the note of compiled kernels is not read: %r", error)
        return False
    known = _kernels()
    if noted_of != _full(version) or not noted.keys() <= known.keys():
        return False
    for name, signatures in noted.items():
        for signature in signatures:
            known[name].compile(signature)
    return True


def note(version: str) -> None:
    """Note all that has been compiled or loaded in this process."""
    if UNCOMPILED:
        return
    found = {name: each.signatures for name, each in _kernels().items() if each.signatures}
    path = _path()
    new = path.with_name(f"{NAME}.{os.getpid()}")
    try:
        new.write_bytes(pickle.dumps((_full(version), found)))
        new.replace(path)
    except OSError as error:
        logger.info("kernels are called at each start: %s", error)
        with suppress(OSError):
            new.unlink(missing_ok=True)


def _full(version: str) -> tuple[str, ...]:
    import numba

    return version, numba.__version__, np.__version__


def _kernels() -> dict[str, Any]:
    """Return the kernels that are cached, by their names."""
    return {f"{each.__module__}.{each.__name__}": each for each in _cached()}


def _cached() -> Iterator[Any]:
    for info in pkgutil.iter_modules(kernels.__path__, f"{kernels.__name__}."):
        for function in vars(import_module(info.name)).values():
            if hasattr(function, "signatures") and function.stats.cache_path:
                yield function


def _path() -> Path:
    """Return the file of the note, in the directory in which the kernels are cached."""
    return Path(next(_cached()).stats.cache_path) / NAME
