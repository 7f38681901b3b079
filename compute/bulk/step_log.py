"""The last steps of a dataflow: statements by engine, what they read, and why there."""

from collections import deque
from dataclasses import dataclass, field

from foreshore.compute.protocol import StepStatus

KEPT_STEPS = 5


@dataclass(slots=True)
class Work:
    """The work of one engine in a step."""

    statements: int = 0
    anew: int = 0  # statements that computed all anew
    files: int = 0  # read, of so many:
    files_there: int = 0
    bytes: int = 0  # of the files read
    rows: int = 0  # of the results
    seconds: float = 0.0
    why: str | None = None  # of the statement that read most
    _most: int = field(default=-1)

    def add(
        self, bytes: int, files: int, there: int, rows: int, seconds: float, why: str | None
    ) -> None:
        """Add a statement."""
        self.statements += 1
        self.bytes += bytes
        self.files += files
        self.files_there += there
        self.rows += rows
        self.seconds += seconds
        if bytes > self._most:
            self._most, self.why = bytes, why


class StepLog:
    """The work of the last steps. One thread writes, any thread may read `last`."""

    def __init__(self) -> None:
        self._steps = 0
        self._updates = 0
        self._work: dict[str, Work] = {}
        self._kept: deque[tuple[StepStatus, ...]] = deque(maxlen=KEPT_STEPS)

    def begin(self) -> None:
        """Begin a step, or begin it again."""
        self._updates = 0
        self._work = {}

    def received(self, updates: int) -> None:
        """Note updates of an input."""
        self._updates += updates

    def of(self, engine: str) -> Work:
        """Return the work of an engine in this step."""
        return self._work.setdefault(engine, Work())

    def end(self) -> None:
        """Keep what the step took."""
        self._steps += 1
        self._kept.append(
            tuple(
                StepStatus(
                    self._steps,
                    engine,
                    self._updates,
                    work.statements,
                    work.anew,
                    work.files,
                    work.files_there,
                    work.bytes,
                    work.rows,
                    round(1000 * work.seconds),
                    work.why,
                )
                for engine, work in self._work.items()
            )
        )

    @property
    def last(self) -> tuple[StepStatus, ...]:
        """Return the work of the last steps, the oldest first."""
        return tuple(status for step in list(self._kept) for status in step)
