"""An engine whose troubles a test makes: by files that are there, or not, in a directory.

hold    hydrations wait until it is gone
fail    steps fail until it is gone
"""

import time
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from foreshore.compute.engine import Dataflow, Engine, Input
from foreshore.compute.output import Output
from foreshore.compute.protocol import DataflowDescription
from foreshore.compute.replica.instance import ENGINES
from foreshore.ids import GlobalId


def troubled_engine(directory: Path, options: Mapping[str, str]) -> Engine:
    """Return an embedded engine, in trouble."""
    engine = ENGINES["embedded"](options)
    create = engine.create

    def create_troubled(
        description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> Dataflow:
        dataflow = create(description, schemas)
        hydrate, step = dataflow.hydrate, dataflow.step

        def waiting(inputs: Mapping[GlobalId, Input]) -> Output:
            while (directory / "hold").exists():
                time.sleep(0.01)
            return hydrate(inputs)

        def failing(lower: int, upper: int, deltas: Mapping[GlobalId, pa.Table]) -> Output:
            if (directory / "fail").exists():
                raise OSError("no more threads")
            return step(lower, upper, deltas)

        dataflow.hydrate, dataflow.step = waiting, failing  # type: ignore[method-assign]
        return dataflow

    engine.create = create_troubled  # type: ignore[method-assign]
    return engine
