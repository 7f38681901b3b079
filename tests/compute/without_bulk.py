"""The arrangement engine without a bulk engine to leave dataflows to."""

from collections.abc import Mapping

import pyarrow as pa

from foreshore.compute.flow.dataflow import FlowDataflow
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.protocol import DataflowDescription
from foreshore.ids import GlobalId


class WithoutBulk(FlowEngine):
    """The engine, which leaves no dataflow to the bulk engine."""

    def create(
        self, description: DataflowDescription, schemas: Mapping[GlobalId, pa.Schema]
    ) -> FlowDataflow:
        """Return a dataflow; raises Unsupported."""
        return FlowDataflow(description, self._engine, self._collections)
