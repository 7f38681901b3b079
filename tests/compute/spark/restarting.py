"""A Spark engine whose dataflows are saved, and loaded anew, before some of their steps."""

from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa

from foreshore.compute.bulk.spark import SparkEngine
from foreshore.compute.bulk.spark_dataflow import SparkDataflow
from foreshore.compute.checkpoint.state import Reader, Writer
from foreshore.compute.checkpoint.store import CheckpointStore
from foreshore.compute.output import Output
from foreshore.compute.protocol import DataflowDescription
from foreshore.compute.spark.options import SparkOptions
from foreshore.ids import GlobalId
from foreshore.storage.blob import FileBlob
from foreshore.storage.local_files import LocalFiles


class RestartingSpark(SparkEngine):
    """The engine; checkpoints are in `directory`."""

    def __init__(self, options: SparkOptions, directory: Path, random: Random) -> None:
        super().__init__(options)
        self.random = random
        self.restarts = 0
        blob = FileBlob(directory / "blob")
        scratch = directory / "scratch"
        scratch.mkdir()
        self.checkpoints = CheckpointStore(blob, LocalFiles(blob, scratch), scratch, "c", "r")

    def create(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> Any:
        """Return a dataflow that restarts, if it is one that is saved."""
        found = super().create(description, schemas)
        return Restarted(self, description, found) if isinstance(found, SparkDataflow) else found

    def plain(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> SparkDataflow:
        """Return a dataflow that does not restart."""
        found = super().create(description, schemas)
        assert isinstance(found, SparkDataflow)
        return found

    def again(self, dataflow: SparkDataflow, description: DataflowDescription) -> SparkDataflow:
        """Return what is loaded of a dataflow that was saved."""
        self.restarts += 1
        to = Writer()
        dataflow.save(to)
        reader = Reader(self.checkpoints.read(self.checkpoints.write(to.captured)))
        dataflow.close()
        loaded = self.load(description, reader)
        reader.check_all_read()
        assert isinstance(loaded, SparkDataflow)
        return loaded


class Restarted:
    """A dataflow that may restart, or be consolidated, before each step."""

    def __init__(
        self, engine: RestartingSpark, description: DataflowDescription, dataflow: SparkDataflow
    ) -> None:
        self._engine = engine
        self._description = description
        self._dataflow = dataflow

    def step(self, lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> Output:
        """Step, perhaps after a restart."""
        random = self._engine.random
        if random.random() < 0.3 and self._dataflow.maintenance_due:
            self._dataflow.maintain()
        if random.random() < 0.5:
            description = msgspec.structs.replace(self._description, as_of=lower - 1)
            self._dataflow = self._engine.again(self._dataflow, description)
        return self._dataflow.step(lower, upper, deltas)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataflow, name)
