"""An instance: the engine that a replica runs, and the batches that it reads as files.

Which one it is comes from the controller, once: an engine is never exchanged, as its threads run.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from pathlib import Path

from foreshore import blocking
from foreshore.compute.engine import Engine
from foreshore.compute.protocol import CreateInstance
from foreshore.compute.replica.linear import LinearFirst
from foreshore.compute.transport import SCRATCH_VARIABLE
from foreshore.errors import InvalidParameterValue
from foreshore.storage.blob import open_blob
from foreshore.storage.local_files import LocalFiles

logger = logging.getLogger(__name__)

RESTART_SECONDS = 30.0

EngineFactory = Callable[[Mapping[str, str]], Engine]


def local_files(options: Mapping[str, str]) -> LocalFiles:
    """Return the batches that the environment's blob store has, as files of this machine.

    `blob` and `data_dir` are as the environment was given them.
    """
    blob = open_blob(options.get("blob"), Path(options["data_dir"]))
    return LocalFiles(blob, Path(os.environ[SCRATCH_VARIABLE]) / "batches")


def duckdb_engine(options: Mapping[str, str]) -> Engine:
    """Return the embedded engine, which may read files below `directories`."""
    from foreshore.compute.bulk.duckdb import DuckDbEngine

    return LinearFirst(
        DuckDbEngine(
            directories=[d for d in options.get("directories", "").split(os.pathsep) if d],
            memory_limit=options.get("memory_limit", "2GB"),
            threads=int(options.get("threads", "2")),
            scratch=str(Path(os.environ[SCRATCH_VARIABLE]) / "duckdb"),
            spill_limit=options.get("spill_limit", "16GB"),
        )
    )


def spark_engine(options: Mapping[str, str]) -> Engine:
    """Return Spark's engine, once its session is up; options `spark.…` configure it."""
    from foreshore.compute.bulk.spark import SparkEngine
    from foreshore.compute.bulk.spark_session import SparkOptions

    return SparkEngine(
        SparkOptions(
            scratch=Path(os.environ[SCRATCH_VARIABLE]) / "spark",
            master=options.get("master", "local[*]"),
            memory_mb=int(options.get("memory_mb", "1536")),
            configuration={k: v for k, v in options.items() if k.startswith("spark.")},
        )
    )


ENGINES: dict[str, EngineFactory] = {"embedded": duckdb_engine, "spark": spark_engine}


class Instance:
    """The instance of one replica; belongs to the loop."""

    def __init__(self, engines: Mapping[str, EngineFactory]) -> None:
        self.command: CreateInstance | None = None  # what made it what it is
        self.engine: Engine | None = None  # once it is up
        self.failure: str | None = None  # why it is not
        self.tick_seconds = 0.0
        self._engines = engines
        self._files: LocalFiles | None = None

    @property
    def files(self) -> LocalFiles:
        """Where this process has the files of batches."""
        assert self._files is not None, "no instance has been created"
        return self._files

    def create(self, command: CreateInstance) -> None:
        """Be what the controller wants; `start` is next."""
        assert self.command is None, self.command
        self.command = command
        self._files = local_files(command.options)
        self.tick_seconds = command.tick_seconds

    def move(self, command: CreateInstance) -> None:
        """Work for another database with the same engine; no file that was read is one of it."""
        self.command = command
        self._files = local_files(command.options)

    async def start(self, executor: Executor, tried: Callable[[], None]) -> None:
        """Start the engine, however often it takes; `tried` hears how each attempt has ended."""
        command = self.command
        assert command is not None
        factory = self._engines.get(command.engine)
        while self.engine is None:
            try:
                if factory is None:
                    raise InvalidParameterValue(f'unknown engine "{command.engine}"')
                options = {**command.options, "directories": str(self.files.root)}
                self.engine = await blocking.run(executor, factory, options)
                self.failure = None
            except Exception as error:
                logger.exception("the engine does not start")
                self.failure = str(error)
            tried()
            if self.engine is None:
                await asyncio.sleep(RESTART_SECONDS)

    async def check(self) -> None:
        """Raise Unavailable if the engine has lost what it works with.

        The replica ends by that, to begin anew. What has failed is reported only after this: by
        an engine that was lost it has not been done, and the others or the next replica do it.
        """
        if self.engine is not None:
            await blocking.run(None, self.engine.check)
