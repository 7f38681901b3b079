"""The protocol between the environment and its ingestion processes."""

from typing import TypeAlias

from foreshore.ids import GlobalId
from foreshore.processes.messages import Hello, Message
from foreshore.source_spec import SourceSpec

WINDOW = 4  # batches of a source that are on their way before one is committed


class StartSource(Message, frozen=True):
    """Read a source from a position on, and write these outputs of it."""

    id: GlobalId
    spec: SourceSpec
    position: dict[str, int]
    outputs: dict[str, GlobalId]  # the relations by reference


class StopSource(Message, frozen=True):
    """Stop to read a source."""

    id: GlobalId


class Committed(Message, frozen=True):
    """The oldest batch of a source that was not committed is durable now."""

    id: GlobalId


class Ingested(Message, frozen=True):
    """A batch; its tables are updates of `outputs`, in that order, rows with `__diff`.

    `before` and `after` have the parts whose position changes; a new part has no entry in `before`.
    """

    id: GlobalId
    outputs: tuple[GlobalId, ...]
    before: dict[str, int]
    after: dict[str, int]


class SourceState(Message, frozen=True):
    """The state of a source: `starting`, `running`, `stalled` with an error, or `finished`."""

    id: GlobalId
    state: str
    error: str | None = None


Command: TypeAlias = Hello | StartSource | StopSource | Committed
Response: TypeAlias = Ingested | SourceState
