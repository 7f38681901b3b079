"""Functions that are sources in tests."""

import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa


def numbers(position: int | None, until: str) -> Iterator[tuple[Any, int]]:
    """Yield the numbers below `until`, ten at once as tables, and one at once as dictionaries."""
    following = position or 0
    while following < int(until):
        if following % 20 == 0:
            rows: Any = pa.table({"n": range(following, following + 10)})
            following += 10
        else:
            rows = [{"n": following, "doc": {"of": [following]}}]
            following += 1
        yield rows, following


RELEASED = threading.Event()


def waiting(position: int | None) -> Iterator[tuple[Any, int]]:
    """Wait until all may go on, and yield a row."""
    RELEASED.wait()
    yield {"n": 1}, 1


async def parts(position: dict[str, int] | None) -> AsyncIterator[tuple[Any, dict[str, int]]]:
    """Yield rows of two parts, of which one is taken back."""
    if position is None:
        yield [{"n": 1}, {"n": 2}], {"a": 2}
        yield [{"n": 3}], {"b": 1}
        yield [{"n": 2, "__diff": -1}, {"n": "x"}][:1], {"a": 3}


def flaky(position: int | None, file: str) -> Iterator[tuple[Any, int]]:
    """Fail while there is no file; then yield rows of which one has a wrong value."""
    if not Path(file).exists():
        raise OSError("the device is off")
    for number, value in enumerate(("1", "x", "3")):
        if number >= (position or 0):
            yield {"n": value}, number + 1
