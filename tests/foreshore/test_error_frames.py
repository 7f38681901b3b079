"""The thread that raises an error frees the variables of its frames."""

import asyncio
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from foreshore import blocking, interruptible
from foreshore.deep_trees import DeepThreads
from foreshore.error_frames import clear_frames


class Tree:
    """An object that records which thread frees it."""

    def __init__(self, freed: list[int]) -> None:
        weakref.finalize(self, lambda: freed.append(threading.get_ident()))


def fails(freed: list[int], how: Callable[[], None]) -> None:
    """Make a tree, and fail."""
    tree = Tree(freed)
    how()
    raise AssertionError(tree)


def at_once() -> None:
    """Fail."""
    raise ValueError("wrong")


def because_of_another() -> None:
    """Fail as something else has failed."""
    try:
        at_once()
    except ValueError as error:
        raise KeyError("unknown") from error


def while_handling() -> None:
    """Fail while another error is handled."""
    try:
        at_once()
    except ValueError:
        at_once()


@pytest.mark.parametrize("how", [at_once, because_of_another, while_handling])
@pytest.mark.parametrize("run", [blocking.run, interruptible.run])
def test_errors_of_threads_hold_nothing(run: Callable[..., Any], how: Callable[[], None]) -> None:
    """Neither those of work nor those of a computation; they still tell where they came from."""
    freed: list[int] = []

    async def failing() -> None:
        asyncio.get_running_loop().set_default_executor(DeepThreads(1))
        with pytest.raises((ValueError, KeyError)) as raised:
            await run(None, fails, freed, how)
        assert len(freed) == 1
        assert freed[0] != threading.get_ident()
        assert how.__name__ in "".join(traceback.format_exception(raised.value))

    asyncio.run(failing())


def test_what_still_runs_keeps_its_variables() -> None:
    """A generator that waits, and a caller that handles the error, go on."""
    errors: list[ValueError] = []

    def numbers() -> Iterator[int]:
        try:
            at_once()
        except ValueError as error:
            errors.append(error)
        yield from (1, 2)

    def handled() -> list[int]:
        before = [0]
        try:
            at_once()
        except ValueError as error:
            clear_frames(error)
        return before

    found = []
    for i in numbers():
        clear_frames(errors[0])
        found.append(i)
    assert handled() + found == [0, 1, 2]
