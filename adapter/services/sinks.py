"""Sinks: what statements need of those that run."""

from typing import Protocol

from foreshore.ids import GlobalId
from foreshore.sinks.spec import SinkSpec
from foreshore.storage.export.controller import ExportController
from foreshore.types import RelationDesc
from foreshore.update import Timestamp


class Exports(Protocol):
    """The sinks of the environment."""

    @property
    def controller(self) -> ExportController:
        """Runs their processes."""

    async def check(self, spec: SinkSpec, desc: RelationDesc) -> None:
        """Raise DatabaseError if a sink could not write these columns to its target."""

    def frontier(self, sink: GlobalId) -> Timestamp | None:
        """Return the time before which the target has all changes; None if it has nothing yet."""

    def has_written(self, sink: GlobalId, time: Timestamp) -> bool:
        """Return whether the target of a sink has all changes up to `time`."""

    async def wait_for(self, sink: GlobalId, time: Timestamp) -> None:
        """Wait until the target has all changes up to `time`; raises UndefinedObject."""

    async def check_relation(self, sink: GlobalId, time: Timestamp) -> None:
        """Raise DataError if the data of a sink's relation has an error; or UndefinedObject."""
