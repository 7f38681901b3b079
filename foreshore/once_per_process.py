"""Values that a process makes once, by whichever thread needs one first, and again after a fork.

    @once_per_process()
    def answers_of(limit: int) -> Answers: ...

`lru_cache` alone lets two threads that come first make a value each: neither sees what the other
keeps in its own. Here the second one waits.
"""

import os
from collections.abc import Callable, Hashable
from functools import lru_cache
from threading import RLock
from typing import Generic, TypeVar

T = TypeVar("T")


class OncePerProcess(Generic[T]):
    """A function whose values are kept, for the newest `most` arguments. Thread-safe."""

    def __init__(self, make: Callable[..., T], most: int) -> None:
        self._kept = lru_cache(most)(lambda _, *arguments: make(*arguments))
        self._lock = RLock()  # a finalizer may ask while a value is made
        os.register_at_fork(after_in_child=self._renew_lock)

    def _renew_lock(self) -> None:
        self._lock = RLock()  # another thread of the parent may have held it

    def __call__(self, *arguments: Hashable) -> T:
        """Return the value of this process."""
        with self._lock:
            return self._kept(os.getpid(), *arguments)

    def is_empty(self) -> bool:
        """Whether no value is kept."""
        return not self._kept.cache_info().currsize

    def forget(self) -> None:
        """Keep no value any longer."""
        self._kept.cache_clear()


def once_per_process(most: int = 1) -> Callable[[Callable[..., T]], OncePerProcess[T]]:
    """Return a decorator of functions that makes `OncePerProcess` of them."""
    return lambda make: OncePerProcess(make, most)
