"""Which kernels have been compiled, and for which types: noted in a file of the cache's directory.

A process that finds the note of its own version loads these kernels from the cache, which takes a
third of calling all of them. What the cache has not, or for another processor, is compiled then.

If the cache has all of them, a kernel that is called is loaded by its call in some milliseconds. So
the process need not wait: a thread loads the others meanwhile, a share of the time.
"""

import logging
import os
import pickle
import pkgutil
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from foreshore.compute.flow import kernels
from foreshore.compute.flow.kernels.jit import UNCOMPILED

logger = logging.getLogger(__name__)

NAME = "compiled.pickle"
Noted = Mapping[str, list[Any]]  # the signatures for which each kernel was compiled
SHARE = 3  # the loading thread pauses so many times as long as it works


def load(version: str) -> bool:
    """Load what is noted of a version of the engine; return False if there is no note of it."""
    noted = _noted(version)
    if noted is None:
        return False
    _load(noted, 0)
    return True


def load_later(version: str) -> bool:
    """Load on a thread what is noted; return False if it is not noted, or not all in the cache."""
    noted = _noted(version)
    if noted is None or not _are_in_cache(noted):
        return False
    threading.Thread(target=_load, args=(noted, SHARE), name="kernels", daemon=True).start()
    return True


def is_complete(version: str) -> bool:
    """Whether a version of the engine has to compile nothing, as all is noted and in the cache."""
    noted = _noted(version)
    return UNCOMPILED or (noted is not None and _are_in_cache(noted))


def _load(noted: Noted, share: int) -> None:
    known = _kernels()
    for name, signatures in noted.items():
        for signature in signatures:
            began = time.thread_time()
            known[name].compile(signature)
            time.sleep(share * (time.thread_time() - began))


def _are_in_cache(noted: Noted) -> bool:
    """Whether the cache has the code of all signatures, for this processor."""
    known = _kernels()
    for name, signatures in noted.items():
        cached = known[name]._cache
        code = known[name].targetctx.codegen()
        found = cached._cache_file._load_index()
        if not all(cached._index_key(each, code) in found for each in signatures):
            return False
    return True


def _noted(version: str) -> Noted | None:
    """Return what is noted of a version of the engine, None if there is no note of it."""
    if UNCOMPILED:
        return None
    try:
        noted_of, noted = pickle.loads(_path().read_bytes())  # as trustworthy as the cache is
    except FileNotFoundError:
        return None
    except Exception as error:  # it may name what other versions of libraries have
        logger.info("the note of compiled kernels is not read: %r", error)
        return None
    known = _kernels()
    if noted_of != _full(version) or not noted.keys() <= known.keys():
        return None
    found: Noted = noted
    return found


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
