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

    Nothing is told if nothing has changed, or if the work has no stages.
    """
    if choice is None or choice.engine == "duckdb":
        yield
        return
    loop, told = asyncio.get_running_loop(), ""
    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal told, timer
        timer = loop.call_later(TOLD_SECONDS, look)
        found = shown([each for _, each in stages() if each.work == choice.work])
        if found not in ("", told):
            told = found
            tell(found)

    timer = loop.call_later(TOLD_SECONDS, look)
    try:
        yield
    finally:
        timer.cancel()


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
