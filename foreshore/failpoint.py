"""Fail points: named places between two durable steps, where a test can end the process.

    FORESHORE_FAIL_POINT=log.synced:3    end as by SIGKILL when it is reached for the third time

Code calls `reached("log.synced")` after one step is durable and before the next. This does nothing
unless a test requests it: by the variable for a child process, or by `arm` in this process.
"""

import os
import signal
from collections.abc import Callable, Mapping
from types import MappingProxyType

VARIABLE = "FORESHORE_FAIL_POINT"

POINTS: Mapping[str, str] = MappingProxyType(
    {
        "epoch.taken": "the epoch is taken, the log is not claimed",
        "log.claimed": "the log is claimed, the fence is not raised",
        "fence.raised": "the fence is raised, the log is not read",
        "trace.claimed": "a trace is claimed or created, its batches are not checked",
        "segment.made": "a segment's file exists without its opening record",
        "segment.opened": "a segment has its opening record, the log's state does not list it",
        "segment.listed": "the log's state lists a new segment, unlisted ones are not removed",
        "log.written": "a record is written but not synced",
        "log.synced": "a record is synced, the fence is not checked",
        "log.applied": "a record is durable and visible, but not acknowledged",
        "segment.closed": "a segment has its closing record, the next one is not listed",
        "segment.unlisted": "a segment is no longer listed, its file still exists",
        "batch.written": "a batch's file is written but not renamed into place",
        "batch.stored": "a batch is stored, no state names it",
        "batch.named": "a state names a batch, the log still has its updates",
        "batch.merged": "a state names a merged batch, the old ones still exist",
        "batch.deleted": "the file of a batch that no state names is deleted",
        "trace.buried": "a dropped shard is recorded, its files still exist",
        "oracle.reserved": "a range of times is reserved, none is used",
        "sequence.reserved": "a range of numbers is reserved, none is used",
        "sequence.begun": "the start of a new sequence is durable, the catalog lacks it",
        "checkpoint.file": "a file of a checkpoint is stored, no manifest names it",
        "checkpoint.files": "all files of a checkpoint are stored, its manifest is not",
        "checkpoint.named": "a checkpoint is complete, files of the one before still exist",
        "checkpoint.deleted": "a file of an earlier checkpoint is deleted",
        "view.errors": "errors of a view are durable, its shard has not advanced",
        "shard.made": "a shard is created, the catalog lacks it",
        "shard.filled": "a shard has the rows of the table it replaces, the catalog does not know",
        "catalog.committed": "a change of the catalog is durable, nothing has followed from it",
        "shard.dropped": "a shard is dropped that the catalog no longer has",
    }
)

_armed: Callable[[str], None] | None = None


def reached(point: str) -> None:
    """Signal that the fail point `point` of `POINTS` was reached."""
    if _armed is not None:
        _armed(point)


def arm(action: Callable[[str], None] | None) -> None:
    """Call `action` with the name of each fail point reached; None: stop calling it."""
    global _armed
    _armed = action


def kill_at(point: str, time: int = 1) -> Callable[[str], None]:
    """Return an action that ends this process when `point` is reached the `time`-th time."""
    if point not in POINTS:
        raise ValueError(f"there is no fail point {point!r}")
    left = time

    def action(name: str) -> None:
        nonlocal left
        if name == point:
            left -= 1
            if not left:
                os.kill(os.getpid(), signal.SIGKILL)

    return action


if given := os.environ.get(VARIABLE):
    name, _, number = given.partition(":")
    arm(kill_at(name, int(number or 1)))
