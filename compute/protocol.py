"""The protocol between the environment and its replicas: commands one way, responses the other.

Each message is a msgspec struct, told apart by its tag, and the Arrow tables that go with it
(`foreshore.compute.transport` makes frames of both). A replica is told of dataflows, of what they
import as of one time, and from then on by `Feed` of every later update of the shards that it
imports; it tells how far its exports have come and what they are.

All replicas of a cluster are sent the same commands. What a command means depends on nothing but
those before it, so that a replica that starts late is brought up to date by the same ones,
compacted (`foreshore.compute.controller.history`).
"""

from typing import TypeAlias

import msgspec

from foreshore.expr.ir import Finishing, Literal, Relation, Scalar
from foreshore.ids import GlobalId

STATUS_SECONDS = 5.0  # from one account of itself that a replica gives to the next
TICK_SECONDS = {"spark": 1.0}


class Message(msgspec.Struct, frozen=True, tag=True, tag_field="message"):
    """A command or a response."""


# --- what a dataflow is --------------------------------------------------------------------


class IndexExport(msgspec.Struct, frozen=True, tag="index"):
    """The output as an arrangement by `key`, scalars over the output's columns."""

    id: GlobalId
    key: tuple[Scalar, ...]


class SinkExport(msgspec.Struct, frozen=True, tag="sink"):
    """The output as the contents of a materialised view's shard, whose id is the view's."""

    shard: GlobalId

    @property
    def id(self) -> GlobalId:
        """The id of the collection that is exported."""
        return self.shard


class SubscribeExport(msgspec.Struct, frozen=True, tag="subscribe"):
    """The output as a stream of updates to one client."""

    id: GlobalId


Export: TypeAlias = IndexExport | SinkExport | SubscribeExport


class DataflowDescription(msgspec.Struct, frozen=True):
    """A plan to be kept up to date from `as_of` on, and what becomes of its output."""

    id: GlobalId
    relation: Relation  # lowered, optimised, over shards
    imports: tuple[GlobalId, ...]  # the shards that it reads
    exports: tuple[Export, ...]
    as_of: int


# --- commands ------------------------------------------------------------------------------


class Hello(Message, frozen=True):
    """The first message of a connection: who knows `secret` may command. Nothing else is read."""

    secret: str
    replica: str


class CreateInstance(Message, frozen=True):
    """The first command: with which engine to work, and for which database."""

    engine: str
    options: dict[str, str]
    database: str = ""

    @property
    def tick_seconds(self) -> float:
        """How long it takes at least from one step of a dataflow to the next."""
        seconds = TICK_SECONDS.get(self.engine, 0.0)
        return float(self.options.get("tick_interval_ms", seconds * 1000)) / 1000


class InitializationComplete(Message, frozen=True):
    """The history has been sent; what runs and is not in it is dropped."""


class InputFile(msgspec.Struct, frozen=True, array_like=True):
    """A batch file, which a replica reads from the blob store by its key.

    `bytes` is its length and `checksum` the CRC-32 of all of it.
    """

    key: str
    bytes: int
    checksum: int
    lower: int
    upper: int
    since: int
    rows: int


class InputSnapshot(msgspec.Struct, frozen=True):
    """All updates of a collection before `upper`, exact at times at or beyond `since`.

    They are the rows of `files` and the message's next `tables` tables; `schema` is that of the
    rows (an Arrow IPC schema message).
    """

    id: GlobalId
    since: int
    upper: int
    files: tuple[InputFile, ...]
    tables: int
    schema: bytes


class CreateDataflow(Message, frozen=True):
    """Hydrate the dataflow as of its `as_of` from the snapshots, then keep it up to date by Feed.

    `persisted` holds, for sinks that have to correct themselves, what their shards hold.
    """

    description: DataflowDescription
    snapshots: tuple[InputSnapshot, ...]
    persisted: tuple[InputSnapshot, ...] = ()


class AllowCompaction(Message, frozen=True):
    """Nobody reads the export `id` before `since` any more; None: nobody reads it at all."""

    id: GlobalId
    since: int | None


class Follow(Message, frozen=True):
    """Send the updates of an index as `id`: its contents as of `as_of`, then each change.

    With `lower` only those at or beyond it. AllowCompaction of `id` ends it.
    """

    id: GlobalId
    index: GlobalId
    as_of: int
    lower: int


class Feed(Message, frozen=True):
    """What shards have sealed: for each its id, lower and upper, and whether a table follows.

    A table holds all updates with lower <= time < upper; without one there are none.
    """

    shards: tuple[tuple[GlobalId, int, int, bool], ...]


class Peek(Message, frozen=True):
    """Answer a query as of a time. Exactly one of the two ways is meant.

    With `index`: `relation` is Map, Filter and Project over the Get of what the index arranges;
    the rows are those whose key is one of `keys`, all rows if that is None. Without: `relation` is
    evaluated by the engine over the snapshots, and over the local index `indexes[id]` for an `id`
    that has one.
    """

    number: int
    as_of: int
    relation: Relation
    finishing: Finishing | None
    index: GlobalId | None = None
    keys: tuple[tuple[Literal, ...], ...] | None = None
    snapshots: tuple[InputSnapshot, ...] = ()
    indexes: dict[GlobalId, GlobalId] = {}


class CancelPeek(Message, frozen=True):
    """Nobody waits for the peek any more."""

    number: int


# --- responses -----------------------------------------------------------------------------


class Frontiers(Message, frozen=True):
    """The exports' new uppers: all before them has been computed, and for sinks has been sent."""

    uppers: dict[GlobalId, int]


class Failure(msgspec.Struct, frozen=True):
    """A DatabaseError on its way through the protocol."""

    sqlstate: str
    message: str
    detail: str | None = None
    hint: str | None = None


class PeekResponse(Message, frozen=True):
    """The rows, as the tables that follow, or what went wrong."""

    number: int
    tables: int = 0
    failure: Failure | None = None


class SinkUpdates(Message, frozen=True):
    """The updates in [lower, upper) of a sink: of its rows, and of its errors (two tables).

    An `initial` one tells all errors as of upper - 1, and of the rows what has to be added to the
    shard's contents for them to be right then.
    """

    id: GlobalId
    lower: int
    upper: int
    initial: bool = False


class SubscribeResponse(Message, frozen=True):
    """The updates in [lower, upper) for a client: of the rows, and of the errors (two tables)."""

    id: GlobalId
    lower: int
    upper: int


class IndexStatus(msgspec.Struct, frozen=True):
    """How large an arrangement is."""

    id: GlobalId
    since: int
    upper: int
    rows: int
    runs: int
    bytes: int


class DataflowStatus(msgspec.Struct, frozen=True):
    """What a dataflow is doing; `failure` says why it stands still, or last did, by `sqlstate`.

    `busy_ms` is for how long it has been at the hydration or step at hand, 0 if there is none;
    `failures` how often in a row that has failed.
    """

    id: GlobalId
    state: str  # pending, hydrating, running, failed
    hydration_ms: int
    steps: int
    step_ms: float
    busy_ms: int
    failure: str | None
    indexes: tuple[IndexStatus, ...]
    sqlstate: str | None = None
    failures: int = 0


class Status(Message, frozen=True):
    """The replica's account of itself: when a dataflow's state changes, and every few seconds."""

    ready: bool  # the engine is up
    dataflows: tuple[DataflowStatus, ...]
    failure: str | None = None


Command: TypeAlias = (
    Hello
    | CreateInstance
    | InitializationComplete
    | CreateDataflow
    | AllowCompaction
    | Follow
    | Feed
    | Peek
    | CancelPeek
)
Response: TypeAlias = Frontiers | PeekResponse | SinkUpdates | SubscribeResponse | Status
