"""Limits of memory: of a dataflow, and of a whole replica.

A dataflow that exceeds its limit, or during whose work the replica exceeds its own, is stalled: it
frees its state and stands still until its limit is changed or it is dropped, so that the others go
on. A replica that was killed for its memory would only try the same again.
"""

from collections.abc import Callable, Iterable
from pathlib import Path

from foreshore.errors import DatabaseError
from foreshore.memory import own_bytes
from foreshore.memory_shares import of_replica
from foreshore.sizes import shown

SCARCE = 0.04  # of the machine's memory: less is about to be none
MUCH = 0.25  # of the machine's memory: a replica that has it frees some when that is scarce
CROWDED = 0.5  # of a replica's limit: beyond it, state that is in files is read from there

_MEMORY = Path("/proc/meminfo")
_CGROUPS = Path("/sys/fs/cgroup")


class MemoryLimitExceeded(DatabaseError):
    """A dataflow takes more memory than it may."""

    sqlstate = "53200"

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint=hint)


class MemoryBudget:
    """The memory that a dataflow may use: `limit` in bytes, None if it has none of its own.

    The worker checks; any thread may change the limit or refuse more.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self.refusal: MemoryLimitExceeded | None = None

    def refuse(self, limit: int) -> None:
        """Let the next check fail, because the whole replica takes more than `limit` bytes."""
        self.refusal = MemoryLimitExceeded(
            f"memory limit of the replica ({shown(limit)}) exceeded",
            "Give its cluster more memory (MEMORY LIMIT), move other objects to another cluster,"
            " or drop it.",
        )

    def check(self, used: int) -> None:
        """Raise MemoryLimitExceeded if a dataflow that takes `used` bytes has to stop."""
        if self.refusal is not None:
            raise self.refusal
        if self.limit is not None and used > self.limit:
            self.refusal = MemoryLimitExceeded(
                f"memory limit of {shown(self.limit)} exceeded",
                "Raise it with ALTER ... SET (MEMORY LIMIT = ...), or drop the object.",
            )
            raise self.refusal


class ReplicaMemory:
    """The memory of the replica's process and of its workers, beside its `limit`.

    `workers` returns the workers' process ids.
    """

    def __init__(
        self, limit: int | None = None, workers: Callable[[], Iterable[int]] = tuple
    ) -> None:
        self._workers = workers
        self._machine = machine_bytes()
        self.limit = limit if limit is not None else default_limit(self._machine)

    @property
    def is_exceeded(self) -> bool:
        """Whether it takes too much, or the machine has no more; some 50 us of reading /proc."""
        if self.limit is None:
            return False
        own = self._own()
        if own > self.limit:
            return True
        machine = self._machine
        if machine is None or own < MUCH * machine:
            return False
        available = _of_machine("MemAvailable")
        return available is not None and available < SCARCE * machine

    @property
    def is_crowded(self) -> bool:
        """Whether it takes so much that what can be read from files should be."""
        return self.limit is not None and self._own() > CROWDED * self.limit

    def _own(self) -> int:
        return own_bytes() + sum(map(own_bytes, self._workers()))


def default_limit(machine: int | None) -> int | None:
    """Return the limit of a replica that was given none; None if nothing is known."""
    return None if machine is None else of_replica(machine)


def machine_bytes() -> int | None:
    """Return the memory of the machine, or that of the cgroup if it is less."""
    known = [each for each in (_of_machine("MemTotal"), _of_cgroup()) if each is not None]
    return min(known, default=None)


def _of_machine(name: str) -> int | None:
    try:
        lines = _MEMORY.read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) << 10
    return None


def _of_cgroup() -> int | None:
    """Return the least limit of this process's cgroups, version 2 or 1."""
    try:
        groups = [line.split(":", 2) for line in Path("/proc/self/cgroup").read_text().splitlines()]
    except OSError:
        return None
    found = []
    for _, kinds, path in groups:
        if not kinds:
            files = [_CGROUPS / path.lstrip("/") / "memory.max", _CGROUPS / "memory.max"]
        elif "memory" in kinds.split(","):
            root, name = _CGROUPS / "memory", "memory.limit_in_bytes"
            files = [root / path.lstrip("/") / name, root / name]
        else:
            continue
        for file in files:
            try:
                found.append(int(file.read_text()))
            except (OSError, ValueError):  # not there, or "max"
                continue
    return min(found, default=None)
