"""What Spark's jobs are doing: their stages, and of each how many tasks are done."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StageProgress:
    """A stage of a job, at some moment."""

    group: str | None  # the name of the job's group
    job: int
    stage: int
    name: str
    tasks: int
    active: int
    done: int
    failed: int  # attempts, which were or will be repeated


def stages_of(context: Any, group: str) -> list[StageProgress]:
    """Return the stages of all jobs of a group; it asks the JVM, which knows the last thousand."""
    tracker = context.statusTracker()
    jobs = sorted(tracker.getJobIdsForGroup(group))
    return [stage for job in jobs for stage in _of_job(tracker, group, job)]


def running_stages(context: Any, groups: Iterable[str]) -> list[StageProgress]:
    """Return the stages of all jobs that run, and of which of `groups` each is; it asks the JVM."""
    tracker = context.statusTracker()
    jobs = sorted(tracker.getActiveJobsIds())
    owners = {job: group for group in groups for job in tracker.getJobIdsForGroup(group)}
    return [stage for job in jobs for stage in _of_job(tracker, owners.get(job), job)]


def _of_job(tracker: Any, group: str | None, job: int) -> Iterator[StageProgress]:
    info = tracker.getJobInfo(job)
    for number in info.stageIds if info is not None else ():
        stage = tracker.getStageInfo(number)
        if stage is not None:
            yield StageProgress(
                group, job, number, stage.name, stage.numTasks, stage.numActiveTasks,
                stage.numCompletedTasks, stage.numFailedTasks,
            )  # fmt: skip
