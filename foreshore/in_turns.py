"""Loops over lists of any length on the event loop, which let others run in between.

    async for each in in_turns(plan.names):
        ...

What the loop changes must be only its statement's own: other sessions run after each slice of time.
A cancelled task ends there. A short list costs no turn of the loop.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from time import perf_counter
from typing import Final, TypeVar

T = TypeVar("T")

SLICE_S: Final = 0.005


async def in_turns(elements: Iterable[T]) -> AsyncIterator[T]:
    """Yield the elements; others run whenever the body has taken a slice of time."""
    end = perf_counter() + SLICE_S
    for each in elements:
        yield each
        if perf_counter() > end:
            await asyncio.sleep(0)
            end = perf_counter() + SLICE_S
