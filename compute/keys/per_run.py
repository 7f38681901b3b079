"""Values computed once from each run of an arrangement, on a thread if the run is large.

A value is computed when it is first asked for, and for each merge of runs that have one.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Generic, Protocol, TypeVar

from foreshore import blocking
from foreshore.compute.arrange.arrangement import Arrangement
from foreshore.compute.arrange.run import Run

LARGE = 65_536  # rows above which hashing and sorting them do not belong on the event loop


class OfRun(Protocol):
    """Something that is made of a run."""

    @property
    def run(self) -> Run:
        """The run."""
        ...


T = TypeVar("T", bound=OfRun)


class PerRun(Generic[T]):
    """The values of `make` for the runs of `arrangement`; owned by the event loop."""

    def __init__(self, arrangement: Arrangement, make: Callable[[Run], T]) -> None:
        self._make = make  # may take long
        self.arrangement = arrangement
        self._made: tuple[T, ...] = ()
        self._complete: tuple[Run, ...] | None = None  # runs of which all is made
        self._preparing = asyncio.Lock()

    def add(self, made: T) -> None:
        """Add what was made of a run that is still there, and forget runs that are not."""
        runs = self.arrangement.runs
        kept = [each for each in self._made if each.run in runs and each.run is not made.run]
        self._made = (*kept, *([made] if made.run in runs else []))

    async def prepare(self, executor: Executor) -> None:
        """Make it of the large runs, on a thread."""
        if not self._missing():
            return
        async with self._preparing:
            while large := [run for run in self._missing() if len(run) > LARGE]:
                self.add(await blocking.run(executor, self._make, large[0]))

    async def made(self, run: Run, executor: Executor) -> T:
        """Return what is made of a run that is not there yet."""
        return await blocking.run(executor, self._make, run)

    def of_all(self) -> tuple[T, ...] | None:
        """Return what is made of all runs; None if that may take long: it has to be prepared."""
        missing, runs = self._missing(), self.arrangement.runs
        if any(len(run) > LARGE for run in missing):
            return None
        for run in missing:
            self.add(self._make(run))
        if len(self._made) > len(runs):
            self._made = tuple(each for each in self._made if each.run in runs)
        assert len(self._made) == len(runs), self.arrangement.name
        self._complete = runs
        return self._made

    def _missing(self) -> Sequence[Run]:
        """Return the runs of which nothing is made yet."""
        if self._complete is self.arrangement.runs:
            return ()
        known = [each.run for each in self._made]
        return [run for run in self.arrangement.runs if run not in known]
