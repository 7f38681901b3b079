"""Outputs whose inputs have not changed: they are known as far as these are.

Replicas hear a little later that shards have advanced where nothing was published, and then report
what they have reached. A read need not wait for that: what is derived from inputs without changes
has none.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from foreshore.compute.controller.uppers import Uppers
from foreshore.errors import UndefinedObject
from foreshore.ids import GlobalId
from foreshore.storage.controller import StorageController
from foreshore.update import Timestamp

if TYPE_CHECKING:
    from foreshore.compute.controller.maintained import Dataflow

DEEPEST = 32  # views over views that are followed


class UnchangedOutputs:
    """The outputs of a controller's dataflows, `exporters` by export."""

    def __init__(
        self,
        exporters: "Mapping[GlobalId, Dataflow]",
        uppers: Uppers,
        storage: StorageController,
    ) -> None:
        self._exporters = exporters
        self._uppers = uppers
        self._storage = storage

    def advance(self, id: GlobalId) -> None:
        """Advance a collection, and who follows it, as far as its inputs have not changed."""
        dataflow = self._exporters.get(id)
        if dataflow is not None:
            known: dict[GlobalId, Timestamp] = {}
            with suppress(UndefinedObject):  # an input is being dropped, and with it the collection
                self._advance(dataflow, known, DEEPEST)
            if id in known:
                dataflow.writers[id].progress(known[id])

    def _advance(
        self, dataflow: "Dataflow", known: dict[GlobalId, Timestamp], deepest: int
    ) -> None:
        """Advance the indexes of a dataflow, and note in `known` the uppers of its shards."""
        imports = dataflow.description.imports
        if not imports or not deepest or not _follows_inputs(dataflow):
            return
        upper = min([self._upper(each, known, deepest) for each in imports])
        changed = max(map(self._storage.changed, imports))
        for export in dataflow.description.exports:
            id, writer = export.id, dataflow.writers.get(export.id)
            if writer is None:
                if changed <= self._uppers[id] < upper:
                    self._uppers.advance(id, upper)
            elif (
                writer.corrected
                and not writer.stopped
                and changed <= self._storage.upper(id) < upper
            ):
                writer.errors.add(upper, upper, None, initial=False)
                known[id] = upper
        for stream in dataflow.streams:
            if 0 < stream.upper < upper and changed <= stream.upper and not stream.failed:
                stream.progress(upper)

    def _upper(self, shard: GlobalId, known: dict[GlobalId, Timestamp], deepest: int) -> Timestamp:
        """Return the time before which all updates of a shard are known."""
        if shard not in known:
            known[shard] = self._storage.upper(shard)
            dataflow = self._exporters.get(shard)
            if dataflow is not None:
                self._advance(dataflow, known, deepest - 1)
        return known[shard]


def _follows_inputs(dataflow: "Dataflow") -> bool:
    """Whether the output of a dataflow, which is up to date, changes with its inputs alone."""
    description = dataflow.description
    if description.refresh is not None or dataflow.leaving is not None or not dataflow.is_running:
        return False
    return not dataflow.is_timed
