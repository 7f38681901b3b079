"""The thread of the embedded client's loop."""

import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from foreshore.embedded.database import LoopThread

HANGS_S = 60.0


async def _nothing() -> None:
    pass


class _Cycle:
    """Refers to itself, so that only the collector ends it."""

    def __init__(self, held: object) -> None:
        self.itself, self.held = self, held


def test_generator_is_collected_while_a_coroutine_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A collection of garbage may begin anywhere, and run the end of a generator there."""
    loop, ended = LoopThread(), threading.Event()

    async def end() -> None:
        ended.set()

    def rows() -> Iterator[int]:
        try:
            yield 1
        finally:
            loop.end(end())

    found = rows()
    next(found)
    kept = [_Cycle(found)]
    del found
    begin = asyncio.run_coroutine_threadsafe

    def collect_first(*arguments: Any) -> Any:
        if kept:
            kept.clear()
            gc.collect()
        return begin(*arguments)

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", collect_first)
    user = threading.Thread(target=loop.wait, args=(_nothing(),), daemon=True)
    user.start()
    user.join(HANGS_S)
    assert not user.is_alive()
    assert ended.is_set()
    loop.close()
