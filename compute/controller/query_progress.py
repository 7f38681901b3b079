"""How far a large query is: told to its session every few seconds, as Spark's stages run."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from foreshore.compute.protocol import BulkChoice, StageStatus

TOLD_SECONDS = 10.0  # replicas report their stages every five


@contextmanager
def progress_told(
    choice: BulkChoice | None,
    stages: Callable[[], Iterable[tuple[str, StageStatus]]],
    tell: Callable[[str], None],
) -> Iterator[None]:
    """Tell of the stages, by replica, of the work that `choice` names, for as long as a block runs.

    A report that says what the last one said is left out, as is one of work without stages.
    """
    if choice is None or choice.engine == "duckdb":
        yield
        return
    telling = _Telling(choice.work, stages, tell)
    try:
        yield
    finally:
        telling.timer.cancel()


class _Telling:
    def __init__(
        self,
        work: str,
        stages: Callable[[], Iterable[tuple[str, StageStatus]]],
        tell: Callable[[str], None],
    ) -> None:
        self._work = work
        self._stages = stages
        self._tell = tell
        self._told = ""
        self.timer = asyncio.get_running_loop().call_later(TOLD_SECONDS, self._look)

    def _look(self) -> None:
        self.timer = asyncio.get_running_loop().call_later(TOLD_SECONDS, self._look)
        found = shown([each for _, each in self._stages() if each.work == self._work])
        if found not in ("", self._told):
            self._told = found
            self._tell(found)


def shown(stages: list[StageStatus]) -> str:
    """Return in a line how far some stages are, an empty one if there are none."""
    if not stages:
        return ""
    tasks, done, active, failed = (
        sum(getattr(each, name) for each in stages)
        for name in ("tasks", "completed", "active", "failed")
    )
    again = f", {failed} attempts have failed" if failed else ""
    return f"Spark: {done} of {tasks} tasks are done, {active} run{again}"
