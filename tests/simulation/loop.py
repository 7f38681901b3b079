"""An event loop whose time is made up and whose every choice follows from a seed.

Time passes only when there is nothing to do, and then at once. Work that is given to threads is
done on the loop instead, after a while that the seed decides; what belongs to one thread stays in
order. So a run is the same each time it is made from the same seed, and an hour takes seconds.

A `Crash`, raised anywhere, ends the loop at once: nothing that was under way is finished.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any


class Crash(SystemExit):
    """The process has ended; asyncio lets it through."""


class Stuck(Exception):
    """Everybody waits, and nothing will ever happen."""


class _Selector(selectors.BaseSelector):
    """Waits by letting time pass; there are no files."""

    def __init__(self) -> None:
        self.now = 0.0
        self._keys: dict[Any, selectors.SelectorKey] = {}

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        number = fileobj if isinstance(fileobj, int) else fileobj.fileno()
        self._keys[fileobj] = selectors.SelectorKey(fileobj, number, events, data)
        return self._keys[fileobj]

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._keys.pop(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck
        self.now += max(timeout, 0.0)
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._keys


class SimulatedLoop(asyncio.SelectorEventLoop):
    """The loop; `now` is where its time, in seconds, begins."""

    def __init__(self, choose: random.Random, now: float = 0.0) -> None:
        self._clock = _Selector()
        self._clock.now = now
        super().__init__(self._clock)
        self.choose = choose
        self.crashed = False
        self._free: dict[int, float] = {}  # when the one thread of an executor is free again

    def time(self) -> float:
        """Return the made-up seconds."""
        return self._clock.now

    def delay(self) -> float:
        """Return how long something takes: mostly little, now and then a lot."""
        most = 0.2 if self.choose.random() < 0.01 else 0.004
        return self.choose.random() * most

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> asyncio.Future[Any]:
        """Have the work done on the loop, after a while."""
        done = self.create_future()
        at = self.time() + self.delay()
        if isinstance(executor, ThreadPoolExecutor) and executor._max_workers == 1:
            at = max(at, self._free.get(id(executor), 0.0) + 1e-6)
            self._free[id(executor)] = at
        self.call_at(at, self._work, done, func, args)
        return done

    def _work(self, done: asyncio.Future[Any], func: Callable[..., Any], args: Any) -> None:
        try:
            result = func(*args)
        except Crash:
            raise
        except BaseException as error:
            if not done.done():
                done.set_exception(error)
        else:
            if not done.done():
                done.set_result(result)
