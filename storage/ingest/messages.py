"""The protocol between the environment and its ingestion processes.

A process runs the sources of a cluster, or is started for a single `Request`, which it answers.
"""

from typing import TypeAlias

import msgspec

from foreshore.ids import GlobalId
from foreshore.processes.messages import Hello, Message
from foreshore.sources.kafka import Messages
from foreshore.sources.outputs import Output
from foreshore.sources.spec import SourceSpec
from foreshore.storage.external.access import Access, Accesses
from foreshore.storage.external.answers import Done, Refused
from foreshore.types import RelationDesc

WINDOW = 4  # batches of a source that are on their way before one is committed
PART_WINDOW = 4  # parts of a batch that are on their way before one is kept
CONTENTS_WINDOW = 4  # tables of contents on their way before one is taken
PART_BYTES = 8 << 20  # of rows
SCARCE = 0.2  # of the log that a slot may retain: with less left, it is about to be lost
WHOLE_BYTES = 32 << 20  # of the rows of a batch, beyond which it is sent in parts


class OutputRelation(msgspec.Struct, frozen=True):
    """The relation that gets an output: its columns, as they are in its shard, and details.

    `messages` says how messages become its rows, if its source does not.
    """

    id: GlobalId
    desc: RelationDesc
    details: str
    messages: Messages | None = None


# --- to a process ----------------------------------------------------------------------------


class StartSource(Message, frozen=True):
    """Read a source from a position on, and write these outputs of it.

    `run` is another one for each start. Batches and questions name theirs, and so do the answers:
    what is still on its way for an earlier start counts for nothing.
    """

    id: GlobalId
    run: int
    spec: SourceSpec
    position: dict[str, int]
    outputs: dict[str, OutputRelation]  # by reference
    accesses: Accesses


class StopSource(Message, frozen=True):
    """Stop to read a source."""

    id: GlobalId


class Committed(Message, frozen=True):
    """The oldest batch of a run that was not committed is durable."""

    id: GlobalId
    run: int


class PartKept(Message, frozen=True):
    """The oldest part of a run that was not kept has been written to a file."""

    id: GlobalId
    run: int


class Contents(Message, frozen=True):
    """Rows of a relation that a source asked for, as a table with `__diff`, and whether all.

    Those of its input are all changes before `upper`.
    """

    id: GlobalId
    run: int
    request: int
    complete: bool
    error: str | None = None
    upper: int = 0


class AskFurthest(Message, frozen=True):
    """Say how far the external system of a source is now."""

    id: GlobalId
    request: int


class TryNow(Message, frozen=True):
    """Try a source at once that pauses after a failure, as somebody waits for it."""

    id: GlobalId


class Discover(Message, frozen=True):
    """Find out which outputs a source has."""

    spec: SourceSpec
    accesses: Accesses


class Dispose(Message, frozen=True):
    """Remove what a source that was dropped has left in its external system."""

    spec: SourceSpec
    accesses: Accesses


class ReadRows(Message, frozen=True):
    """Read all rows of an output as they are now, if there are no more than `most`."""

    spec: SourceSpec
    output: OutputRelation
    accesses: Accesses
    most: int


class Validate(Message, frozen=True):
    """Try whether an external system can be reached."""

    access: Access


# --- from a process --------------------------------------------------------------------------


class IngestedPart(Message, frozen=True):
    """Rows of a batch that will come, as in `Ingested`; each of them is answered by PartKept.

    All rows of `anew` in earlier parts of this batch do not count. A part of another batch says
    that the one before will not come: the source was tried again.
    """

    id: GlobalId
    run: int
    batch: int
    outputs: tuple[GlobalId, ...]
    anew: tuple[GlobalId, ...] = ()


class Ingested(Message, frozen=True):
    """A batch; its tables are updates of `outputs`, in that order, rows with `__diff`.

    `before` and `after` have the parts whose position changes; a new part has no entry in `before`.
    If it was sent in parts (of rows), all of these have been kept before.
    """

    id: GlobalId
    run: int
    outputs: tuple[GlobalId, ...]
    before: dict[str, int]
    after: dict[str, int]
    batch: int = 0  # its number in the run of this process
    parts: int = 0


class SourceState(Message, frozen=True):
    """The state of a source: `starting`, `running`, `stalled` with an error, or `finished`."""

    id: GlobalId
    state: str
    error: str | None = None


class NextTry(Message, frozen=True):
    """A source that has stalled is tried again in so many seconds."""

    id: GlobalId
    seconds: float


class OutputCounts(msgspec.Struct, frozen=True):
    """What is known of an output in the process; see `connector.OutputReport`."""

    messages: int = 0
    snapshot_known: int | None = None
    snapshot_staged: int | None = None
    ceased: str | None = None
    waits: str | None = None


class SlotState(msgspec.Struct, frozen=True):
    """A replication slot of a source, as its server tells: amounts of its log in bytes.

    `behind` is what was written after that which is durable here, `retained` what is kept for the
    slot, and `safe` what may still be written until the slot is lost; None: there is no limit.
    `status` is PostgreSQL's `wal_status`.
    """

    name: str
    behind: int
    retained: int
    status: str | None = None
    safe: int | None = None

    @property
    def warning(self) -> str | None:
        """Return what threatens the slot; None if nothing is known to."""
        if self.status in ("unreserved", "lost"):
            return f'the replication slot "{self.name}" is {self.status}: rows are read again soon'
        if self.safe is not None and self.safe < SCARCE * (self.safe + self.retained):
            return (
                f'the replication slot "{self.name}" is lost after {max(self.safe, 0)} further'
                " bytes of log: raise max_slot_wal_keep_size upstream"
            )
        return None


class Reported(Message, frozen=True):
    """What is known of a source beside its batches, by outputs; sent when it has changed.

    `again` says why all rows are, or were last, read again.
    """

    id: GlobalId
    run: int
    outputs: dict[GlobalId, OutputCounts]
    known: dict[str, int]
    slot: SlotState | None = None
    again: str | None = None


class AskContents(Message, frozen=True):
    """A source that has nothing on its way asks for the present rows of a relation of its own.

    With `columns` it gets only so many of the first columns.
    """

    id: GlobalId
    run: int
    request: int
    output: GlobalId
    columns: int | None = None


class AskInput(Message, frozen=True):
    """A source asks for the changes of the relation that it reads, from `frontier` on.

    It gets those of one interval as soon as there are any; None: the contents, from which all
    begins. With `contents` it gets the contents before `frontier` at once.
    """

    id: GlobalId
    run: int
    request: int
    frontier: int | None
    contents: bool


class ContentsTaken(Message, frozen=True):
    """One more table of contents is taken, so that another may be sent."""

    id: GlobalId
    run: int
    request: int


class Furthest(Message, frozen=True):
    """How far an external system was when it was asked, or why that is not known.

    A source of a kind that `can_say` may know it later.
    """

    id: GlobalId
    request: int
    position: dict[str, int]
    error: str | None = None
    can_say: bool = True


class Discovered(Message, frozen=True):
    """The outputs of a source, and the source with what was found out about it."""

    spec: SourceSpec
    outputs: dict[str, Output]


class RowsRead(Message, frozen=True):
    """The rows of an output, as a table with `__diff`; none if there are too many."""


class Validated(Message, frozen=True):
    """An external system was reached; what it lacks for sources only, as messages with hints."""

    lacks: tuple[tuple[str, str | None], ...] = ()


Request: TypeAlias = Discover | Dispose | ReadRows | Validate
Answer: TypeAlias = Discovered | RowsRead | Validated | Done | Refused
Command: TypeAlias = (
    Hello
    | StartSource
    | StopSource
    | Committed
    | PartKept
    | Contents
    | AskFurthest
    | TryNow
    | Request
)
Response: TypeAlias = (
    IngestedPart
    | Ingested
    | SourceState
    | NextTry
    | Reported
    | AskContents
    | AskInput
    | ContentsTaken
    | Furthest
)
