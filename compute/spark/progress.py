"""What Spark's jobs are doing: their stages, and of each how many tasks are done."""

from collections.abc import Iterator
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


def stages(context: Any, group: str | None = None) -> list[StageProgress]:
    """Return the stages of the jobs of `group`, or of all jobs that run; it asks the JVM.

    Spark remembers those of the last thousand jobs.
    """
    tracker = context.statusTracker()
    jobs = tracker.getActiveJobsIds() if group is None else tracker.getJobIdsForGroup(group)
    return [stage for job in sorted(jobs) for stage in _of_job(tracker, group, job)]


def _of_job(tracker: Any, group: str | None, job: int) -> Iterator[StageProgress]:
    info = tracker.getJobInfo(job)
    for number in info.stageIds if info is not None else ():
        stage = tracker.getStageInfo(number)
        if stage is not None:
            yield StageProgress(
                group, job, number, stage.name, stage.numTasks, stage.numActiveTasks,
                stage.numCompletedTasks, stage.numFailedTasks,
            )  # fmt: skip
