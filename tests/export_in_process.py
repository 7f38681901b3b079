"""A launcher whose export process is a worker on the environment's event loop."""

from foreshore.storage.export.messages import Command
from foreshore.storage.export.worker import Worker
from tests.ingest_in_process import IngestInProcess, InProcess


class ExportInProcess(IngestInProcess):
    """Starts such workers; `last` is the one that was started last."""

    def _made(self) -> InProcess:
        return InProcess(Worker(), Command)
