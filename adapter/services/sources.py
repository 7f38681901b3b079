"""Sources: what statements need of those that run, and of webhooks."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from foreshore.catalog.item import Item
from foreshore.ids import GlobalId
from foreshore.sources.spec import SourceSpec
from foreshore.storage.external.access import Access
from foreshore.storage.ingest.controller import IngestController
from foreshore.storage.ingest.messages import Discovered, OutputRelation
from foreshore.update import Timestamp


class Inputs(Protocol):
    """The relations that some sources read."""

    def relation(self, source: GlobalId) -> GlobalId | None:
        """Return the relation that a source reads, None if it reads an external system."""

    async def answered(self, source: GlobalId, time: Timestamp) -> None:
        """Wait until a source has all that its relation had at a time."""


class Ingestion(Protocol):
    """The sources that read external systems."""

    @property
    def controller(self) -> IngestController:
        """Runs their processes."""

    @property
    def inputs(self) -> Inputs:
        """The relations that some read."""

    async def discovered(self, spec: SourceSpec) -> Discovered:
        """Return the outputs of a source as its external system has them."""

    async def validate(self, access: Access) -> Sequence[tuple[str, str | None]]:
        """Reach an external system; return what it lacks for sources, with hints."""

    async def rows_of(self, spec: SourceSpec, output: OutputRelation) -> pa.Table | None:
        """Return all rows of an output as its system has them now; None if they are too many."""

    async def caught_up(self, id: GlobalId) -> None:
        """Wait until all is durable here that the external system of a source has now."""

    def own_spec(self, item: Item, spec: SourceSpec) -> SourceSpec:
        """Return what a source reads here: in a restored database not by the original's slot."""


@dataclass(slots=True)
class Received:
    """Counts of a webhook since the start of the server; times are in milliseconds."""

    since: int
    requests: int = 0  # whose rows are durable
    bytes: int = 0  # of these
    rows: int = 0
    last_at: int | None = None  # when the last one was
    refused: int = 0
    refused_at: int | None = None
    refusal: str | None = None  # SQLSTATE and message of the last one that was refused
    error: str | None = None  # why none is taken, until somebody acts


class Webhooks(Protocol):
    """The sources to which clients send."""

    def received(self) -> Iterable[tuple[Item, Received]]:
        """Return the webhooks, with what each has received."""

    def counted(self) -> Iterator[tuple[Item, Received]]:
        """Yield the webhooks that have received something."""
