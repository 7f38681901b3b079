"""Lenders of engines in this process, in the place of Spark."""

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from foreshore.compute.engine import Evaluator
from foreshore.compute.over_engine import OverEngine
from foreshore.compute.protocol import StageStatus
from foreshore.errors import Unavailable


class Lent:
    """Lends one engine, which is up from the first time on; counts how often."""

    def __init__(self, engine: Evaluator) -> None:
        self.times = 0
        self.is_up = False
        self._engine = engine

    @contextmanager
    def lent(self, work: str) -> Iterator[Evaluator]:
        """Yield the engine."""
        self.times += 1
        self.is_up = True
        yield self._engine

    def stages(self) -> tuple[StageStatus, ...]:
        """Return nothing."""
        return ()

    def close(self) -> None:
        """Do nothing."""


class Absent:
    """Lends nothing, as Spark without Java."""

    is_up = False

    @contextmanager
    def lent(self, work: str) -> Iterator[Evaluator]:
        """Raise Unavailable."""
        raise Unavailable("no Java 17 or later was found")
        yield

    def stages(self) -> tuple[StageStatus, ...]:
        """Return nothing."""
        return ()

    def close(self) -> None:
        """Do nothing."""


class FailingAfter(OverEngine[Evaluator]):
    """Fails when it is asked for more than `parts` of an answer."""

    def __init__(self, engine: Evaluator, parts: int) -> None:
        super().__init__(engine)
        self._parts = parts

    def evaluate_parts(self, *args: Any, **options: Any) -> Generator[pa.Table, None, None]:
        """Yield some parts of the answer and fail."""
        with_parts = self._engine.evaluate_parts(*args, **options)
        for number, part in enumerate(with_parts):
            if number == self._parts:
                break
            yield part
        raise RuntimeError("an executor was lost\nand more lines")

    def evaluate(self, *args: Any, **options: Any) -> pa.Table:
        """Fail."""
        raise RuntimeError("an executor was lost")
