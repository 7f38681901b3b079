"""Loops over lists of any length on the event loop, which let others run in between.

    async for each in in_turns(plan.names):
        ...

What the loop changes must be only its statement's own: other sessions run after each slice of time.
A cancelled task ends there. A short list costs no turn of the loop.

A computation that yields between its steps is a `Steps`. The same computation can run in turns or
without a break.
"""

import asyncio
from collections.abc import AsyncIterator, Generator, Iterable
from time import perf_counter
from typing import Final, TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]  # yields between steps and returns the result

SLICE_S: Final = 0.005


async def in_turns(elements: Iterable[T]) -> AsyncIterator[T]:
    """Yield the elements; others run whenever the body has taken a slice of time."""
    end = perf_counter() + SLICE_S
    for each in elements:
        yield each
        if perf_counter() > end:
            await asyncio.sleep(0)
            end = perf_counter() + SLICE_S


async def run_in_turns(steps: Steps[T]) -> T:
    """Return the result of `steps`; others run whenever they have taken a slice of time."""
    end = perf_counter() + SLICE_S
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: T = ended.value
            return result
        if perf_counter() > end:
            await asyncio.sleep(0)
            end = perf_counter() + SLICE_S


def run_at_once(steps: Steps[T]) -> T:
    """Return the result of `steps`, run without a break."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            result: T = ended.value
            return result
