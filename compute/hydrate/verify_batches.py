"""Verification of batch files by Spark's tasks, for `foreshore inspect --verify`."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from foreshore.compute.spark.options import SparkOptions
from foreshore.compute.spark.service import SparkService
from foreshore.processes.scratch import Scratch
from foreshore.storage.inspection import BatchCheck, Checked, Runner

TASK_BYTES = 256 << 20  # of files, that a task reads one after the other


@contextmanager
def on_spark(master: str) -> Iterator[Runner]:
    """Yield what runs checks on a Spark of its own, which sees the data directory.

    Raises Unavailable if Spark does not start.
    """
    scratch = Scratch()
    service = SparkService(SparkOptions(scratch.path / "spark", master))

    def run(checks: Sequence[BatchCheck]) -> Sequence[Checked]:
        size = sum(check.batch.bytes for check in checks)
        with service.job("verification") as session:
            context = session.sparkContext
            tasks = max(context.defaultParallelism, size // TASK_BYTES)
            spread = context.parallelize(list(checks), max(1, min(tasks, len(checks))))
            found: list[Checked] = spread.map(lambda check: check()).collect()
            return found

    try:
        yield run
    finally:
        service.stop()
        scratch.remove()
