"""Which kernels have been compiled, and the compilation of the others.

`signatures.txt` has for each kernel the types of its arguments, in the order in which a first view
needs them. So kernels are compiled without being called, by several processes side by side: each
takes one that is not in the cache and that no other process compiles, by a lock in the cache's
directory.

A kernel in the cache is loaded by its first call in some milliseconds. So nobody need wait for all:
a thread loads them meanwhile, a share of the time.
"""

import fcntl
import os
import pkgutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from foreshore.compute.flow import kernels
from foreshore.compute.flow.kernels import shipped
from foreshore.compute.flow.kernels.jit import GATE, KERNELS, UNCOMPILED

SIGNATURES = Path(__file__).with_name("signatures.txt")
LOCKS = "compiling.lock"  # byte i is locked while the kernel of line i is compiled
SHARE = 3  # the loading thread pauses so many times as long as it works

Types = tuple[Any, ...]


@cache
def signatures() -> Mapping[str, Types]:
    """Return the types of the arguments of each kernel, in the order of need."""
    from numba.core import types

    known = {**vars(types), "bool": types.boolean, "__builtins__": {}}
    lines = [line.removesuffix(")").partition("(") for line in SIGNATURES.read_text().splitlines()]
    return {name: eval(f"({arguments},)", known) for name, _, arguments in lines}


def is_complete() -> bool:
    """Whether nothing has to be compiled, as all is in the cache."""
    return UNCOMPILED or all(map(_is_in_cache, signatures()))


def compile_missing(
    tell: Callable[[str], None] = lambda _: None, requested: SimpleQueue[str] | None = None
) -> None:
    """Compile what is not in the cache; return when all is.

    `tell` is called with the name of each kernel that is in the cache. Kernels that are `requested`
    meanwhile go first.
    """
    if UNCOMPILED:
        return
    waiting, elsewhere = list(signatures()), []
    while waiting:
        _move_to_front(waiting, requested)
        name = waiting.pop(0)
        if _compile(name, wait=False):
            tell(name)
        else:
            elsewhere.append(name)
    for name in elsewhere:
        _compile(name, wait=True)
        tell(name)


def _move_to_front(waiting: list[str], requested: SimpleQueue[str] | None) -> None:
    while requested is not None:
        try:
            name = requested.get_nowait()
        except Empty:
            return
        if name in waiting:
            waiting.remove(name)
            waiting.insert(0, name)


def _compile(name: str, *, wait: bool) -> bool:
    """Compile a kernel if the cache has it not; return False if another process is doing it."""
    if _is_in_cache(name):
        return True
    with _locked(list(signatures()).index(name), wait=wait) as locked:
        if locked and not _is_in_cache(name):
            _kernels()[name].compile(signatures()[name])
    return locked


@contextmanager
def _locked(number: int, *, wait: bool) -> Iterator[bool]:
    """Hold the lock of a kernel; give False if another process holds it.

    Where no file can be made, several processes compile the same.
    """
    try:
        file = os.open(_cache_directory() / LOCKS, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError:
        yield True
        return
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, number)
        locked = True
    except OSError:
        locked = False
    try:
        yield locked
    finally:
        os.close(file)


def load_all() -> None:
    """Load all kernels."""
    if not UNCOMPILED:
        for name, types in signatures().items():
            _kernels()[name].compile(types)


def load_later() -> None:
    """Load all kernels on a thread, a share of the time, those not in the cache when they are."""
    if not UNCOMPILED:
        threading.Thread(target=_load_slowly, name="kernels", daemon=True).start()


def _load_slowly() -> None:
    for name, types in signatures().items():
        GATE.pass_through(name)
        if _is_in_cache(name):
            began = time.thread_time()
            _kernels()[name].compile(types)
            time.sleep(SHARE * (time.thread_time() - began))


def _is_in_cache(name: str) -> bool:
    """Whether the code of a kernel is in the cache or in the wheel, for this processor."""
    each = _kernels()[name]
    there: bool = each._cache.has(signatures()[name], each.targetctx.codegen())
    return there


def ship(folder: Path) -> None:
    """Write all kernels of the cache into a folder, for wheels (`kernels/shipped.py`)."""
    from numba.core.serialize import dumps

    for name, types in signatures().items():
        each = _kernels()[name]
        key = each._cache._index_key(types, each.targetctx.codegen())
        code = dumps(each._cache._cache_file.load(key))
        shipped.save(folder, name, each._cache.stamp, types, code)


@cache
def _kernels() -> Mapping[str, Any]:
    """Return the kernels that are cached, by their names."""
    for info in pkgutil.iter_modules(kernels.__path__, f"{kernels.__name__}."):
        import_module(info.name)
    return KERNELS


def _cache_directory() -> Path:
    return Path(next(iter(_kernels().values())).stats.cache_path)
