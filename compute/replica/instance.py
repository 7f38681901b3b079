"""An instance: the engine that a replica runs, and its local batch files.

The controller chooses the engine once; it is never replaced, because its threads keep running.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING

from foreshore import blocking
from foreshore.compute.engine import Engine, SpreadEngine
from foreshore.compute.hydrate.policy import Machines, bulk_memory, mode_of
from foreshore.compute.isolated.apart import LimitedApart
from foreshore.compute.linear_dataflow import LinearFirst
from foreshore.compute.protocol import CreateInstance
from foreshore.errors import InvalidParameterValue
from foreshore.query_memory import QUERY_MEMORY
from foreshore.storage.blob import Blob, open_blob
from foreshore.storage.local_files import LocalFiles

if TYPE_CHECKING:
    from foreshore.compute.hydrate.engines import BulkEngines

logger = logging.getLogger(__name__)

RESTART_SECONDS = 30.0
SECOND_OPINION = "FORESHORE_SECOND_OPINION"  # 1: dataflows are maintained twice, for tests

EngineFactory = Callable[[Mapping[str, str]], Engine]


def local_files(options: Mapping[str, str], scratch: Path) -> LocalFiles:
    """Return the local files of the batches in the environment's blob store.

    `blob` and `data_dir` are the environment's options.
    """
    return LocalFiles(_blob(options), scratch / "batches")


def _blob(options: Mapping[str, str]) -> Blob:
    return open_blob(options.get("blob"), Path(options["data_dir"]))


def load_embedded() -> None:
    """Load the modules of the embedded engine, which takes a second; blocks."""
    import foreshore.compute.flow.engine  # noqa: F401


def flow_engine(options: Mapping[str, str]) -> Engine:
    """Return the embedded engine: operators over arrangements, DuckDB for all else.

    With several `workers` their processes have the arrangements.
    """
    from foreshore.compute.flow.compilation import Compilation
    from foreshore.compute.flow.engine import FlowEngine

    bulk = duckdb_engine({**options, "memory_limit": f"{bulk_memory(options)}B"})
    if (workers := int(options.get("workers", "1"))) > 1:
        from foreshore.compute.workers.engine import WorkersEngine
        from foreshore.compute.workers.pool import Pool

        return WorkersEngine(bulk, Pool(workers))
    compilation = Compilation()
    compilation.begin()
    if os.environ.get(SECOND_OPINION) == "1":
        from foreshore.compute.second_opinion import SecondOpinion

        return SecondOpinion(FlowEngine(bulk, None, compilation), _duckdb(options))
    return FlowEngine(bulk, _bulk_engines(bulk, options), compilation)


def _bulk_engines(local: Engine, options: Mapping[str, str]) -> "BulkEngines":
    """Return DuckDB and Spark, of which hydrations and queries get the cheaper one, or as asked."""
    from foreshore.compute.hydrate.engines import BulkEngines
    from foreshore.compute.hydrate.lend import SparkLender
    from foreshore.compute.spark.options import SparkOptions

    spark = SparkLender(SparkOptions.of(options, Path(options["scratch"]) / "spark"))
    return BulkEngines(local, spark, mode_of(options), Machines.of_options(options))


def duckdb_engine(options: Mapping[str, str]) -> Engine:
    """Return DuckDB, which may read files below `directories`."""
    limit_queries(options)
    return LimitedApart(LinearFirst(_duckdb(options)), _directories(options))


def _directories(options: Mapping[str, str]) -> list[str]:
    return [each for each in options.get("directories", "").split(os.pathsep) if each]


def limit_queries(options: Mapping[str, str]) -> None:
    """Set what queries may hold in this process."""
    if (memory := options.get("query_memory")) is not None:
        QUERY_MEMORY.configure(int(memory))


def _duckdb(options: Mapping[str, str]) -> Engine:
    from foreshore.compute.bulk.duckdb import DuckDbEngine

    return DuckDbEngine(
        directories=_directories(options),
        memory_limit=options.get("memory_limit", "2GB"),
        threads=int(options.get("threads", "2")),
        scratch=str(Path(options["scratch"]) / "duckdb"),
        spill_limit=options.get("spill_limit", "16GB"),
    )


def spark_engine(options: Mapping[str, str]) -> Engine:
    """Return the Spark engine, whose session starts; `spark.…` options configure it."""
    from foreshore.compute.bulk.spark import SparkEngine
    from foreshore.compute.spark.options import SparkOptions

    spark = SparkOptions.of(options, Path(options["scratch"]) / "spark")
    return SparkEngine(spark, _directories(options))


ENGINES: dict[str, EngineFactory] = {
    "embedded": flow_engine,
    "duckdb": duckdb_engine,
    "spark": spark_engine,
}


class Instance:
    """The instance of one replica; belongs to the event loop."""

    def __init__(self, engines: Mapping[str, EngineFactory], scratch: Path) -> None:
        self.command: CreateInstance | None = None  # the command that created it
        self.engine: Engine | None = None  # once it has started
        self.failure: str | None = None  # why it has not started
        self.tick_seconds = 0.0
        self._engines = engines
        self._scratch = scratch
        self._files: LocalFiles | None = None

    @property
    def blob(self) -> Blob:
        """Return the environment's blob store."""
        assert self.command is not None, "no instance has been created"
        return _blob(self.command.options)

    @property
    def files(self) -> LocalFiles:
        """Return the local files of batches of this process."""
        assert self._files is not None, "no instance has been created"
        return self._files

    @property
    def processes(self) -> Sequence[int]:
        """Return the ids of the processes among which the engine spreads its state."""
        return self.engine.processes if isinstance(self.engine, SpreadEngine) else ()

    def create(self, command: CreateInstance) -> None:
        """Prepare the instance that the controller wants; call `start` next."""
        assert self.command is None, self.command
        self.command = command
        self._files = local_files(command.options, self._scratch)
        self.tick_seconds = command.tick_seconds

    def move(self, command: CreateInstance) -> None:
        """Work for another database with the same engine; cached files are not its own."""
        self.command = command
        self._files = local_files(command.options, self._scratch)

    async def start(self, executor: Executor, tried: Callable[[], None]) -> None:
        """Start the engine, retrying as often as needed; call `tried` after each attempt."""
        command = self.command
        assert command is not None
        factory = self._engines.get(command.engine)
        while self.engine is None:
            try:
                if factory is None:
                    raise InvalidParameterValue(f'unknown engine "{command.engine}"')
                options = {
                    **command.options,
                    "directories": str(self.files.root),
                    "scratch": str(self._scratch),
                }
                self.engine = await blocking.run(executor, factory, options)
                self.failure = None
            except Exception as error:
                logger.exception("the engine does not start")
                self.failure = str(error)
            tried()
            if self.engine is None:
                await asyncio.sleep(RESTART_SECONDS)

    async def check(self) -> None:
        """Raise Unavailable if the engine has lost its backend.

        The replica then ends and is restarted. Failures are reported only after this check: a
        failure caused by a lost engine is not a result, and another replica or the next one does
        the work.
        """
        if self.engine is not None:
            await blocking.run(None, self.engine.check)
