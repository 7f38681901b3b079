"""The dataflows of a replica, by id, by what they export, and by what they import."""

from foreshore.compute.replica.dataflow import DataflowState
from foreshore.ids import GlobalId


class Registry:
    """The dataflows; `exporters` has subscribers of indexes too."""

    def __init__(self) -> None:
        self.dataflows: dict[GlobalId, DataflowState] = {}
        self.exporters: dict[GlobalId, DataflowState] = {}
        self.importers: dict[GlobalId, list[DataflowState]] = {}

    def add(self, dataflow: DataflowState) -> None:
        """Add a dataflow."""
        self.dataflows[dataflow.id] = dataflow
        for export in dataflow.exports:
            self.exporters[export] = dataflow
        for id in dataflow.queues:
            self.importers.setdefault(id, []).append(dataflow)

    def remove(self, dataflow: DataflowState) -> list[GlobalId]:
        """Remove a dataflow; return what it exported until then."""
        if self.dataflows.get(dataflow.id) is dataflow:
            del self.dataflows[dataflow.id]
        exports = [e for e, r in self.exporters.items() if r is dataflow]
        for export in exports:
            del self.exporters[export]
        self.end_imports(dataflow)
        return exports

    def end_imports(self, dataflow: DataflowState) -> None:
        """Let a dataflow get no further updates."""
        for id in dataflow.queues:
            importers = self.importers.get(id, [])
            if dataflow in importers:
                importers.remove(dataflow)
            if not importers:
                self.importers.pop(id, None)
