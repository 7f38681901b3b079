"""The protocol between the environment and its replicas: commands and responses.

A message is a msgspec struct with a tag, followed by Arrow tables (`foreshore.processes.transport`
encodes both as frames). A replica receives its dataflows, snapshots of their imports as of one
time, and from then on, as `Feed`, every later update of the imported shards. It reports the
frontiers and contents of its exports.

All replicas of a cluster receive the same commands. A command's meaning depends only on earlier
commands, so a replica that starts late is brought up to date by a compacted history of the same
commands (`foreshore.compute.controller.history`).
"""

from typing import TypeAlias

import msgspec

from foreshore.compute.span import Span
from foreshore.expr.ir import Finishing, Literal, Relation, Scalar
from foreshore.hydrate_mode import HydrateMode
from foreshore.ids import GlobalId
from foreshore.processes.messages import Hello, Message
from foreshore.refresh import Refresh
from foreshore.sizes import bytes_of

STATUS_SECONDS = 5.0  # the interval of status reports
MOST_ERRORS = 20  # texts of errors in a status report
PEEK_WINDOW = 4  # parts of an answer that are sent before one is known to have been taken
TICK_SECONDS = {"spark": 1.0}


# --- what a dataflow is --------------------------------------------------------------------


class IndexExport(msgspec.Struct, frozen=True, tag="index"):
    """The output as an arrangement by `key`, scalars over the output's columns."""

    id: GlobalId
    key: tuple[Scalar, ...]


class SinkExport(msgspec.Struct, frozen=True, tag="sink"):
    """The output as the contents of a materialized view's shard, which has the view's id."""

    shard: GlobalId

    @property
    def id(self) -> GlobalId:
        """Return the id of the exported collection."""
        return self.shard


class SubscribeExport(msgspec.Struct, frozen=True, tag="subscribe"):
    """The output as a stream of updates to one client."""

    id: GlobalId


Export: TypeAlias = IndexExport | SinkExport | SubscribeExport


class DataflowDescription(msgspec.Struct, frozen=True):
    """A plan to maintain from `as_of` on, and the exports of its output.

    With a `refresh` schedule, changes of the imports count from the next refresh on.
    """

    id: GlobalId
    relation: Relation  # lowered and optimized, over shards
    imports: tuple[GlobalId, ...]  # the shards that it reads
    exports: tuple[Export, ...]
    as_of: int
    memory_limit: int | None = None  # in bytes
    refresh: Refresh | None = None  # of a sink that does not follow every change at once
    hydrate: HydrateMode | None = None  # by which engine; None: as the replica says


# --- commands ------------------------------------------------------------------------------


class CreateInstance(Message, frozen=True):
    """The first command: the engine to use, and the database."""

    engine: str
    options: dict[str, str]
    database: str = ""

    @property
    def tick_seconds(self) -> float:
        """Return the minimum time between two steps of a dataflow."""
        seconds = TICK_SECONDS.get(self.engine, 0.0)
        return float(self.options.get("tick_interval_ms", seconds * 1000)) / 1000

    @property
    def memory_limit(self) -> int | None:
        """Return the bytes that the replica may take, None if nothing was said."""
        text = self.options.get("memory_limit")
        return None if text is None else bytes_of(text)


class InitializationComplete(Message, frozen=True):
    """The history is complete; running dataflows that are not in it are dropped."""


class InputFile(msgspec.Struct, frozen=True, array_like=True):
    """A batch file, which a replica reads from the blob store by its key.

    `bytes` is its length and `checksum` the CRC-32 of the whole file.
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

    They are the rows of `files` and of the message's next `tables` tables; `schema` is that of the
    rows (an Arrow IPC schema message).
    """

    id: GlobalId
    since: int
    upper: int
    files: tuple[InputFile, ...]
    tables: int
    schema: bytes


class CreateDataflow(Message, frozen=True):
    """Hydrate the dataflow as of its `as_of` from the snapshots, then maintain it from Feed.

    It replaces one that is stalled; no effect if it runs already.

    `persisted` has the contents of the shards of sinks that have to correct them. The `number` is
    that of no other command to the replica.
    """

    description: DataflowDescription
    snapshots: tuple[InputSnapshot, ...]
    persisted: tuple[InputSnapshot, ...] = ()
    number: int = 0


class AllowCompaction(Message, frozen=True):
    """Export `id` is not read before `since` any more; None: it is not read at all."""

    id: GlobalId
    since: int | None


class MergeTimes(Message, frozen=True):
    """Index `id` is not read at `lower <= t < upper`, so changes may take effect at `upper`."""

    id: GlobalId
    lower: int
    upper: int


class LimitMemory(Message, frozen=True):
    """A dataflow may take `limit` bytes from now on; None: as many as there are.

    If it is stalled, it reports that; then CreateDataflow follows with new snapshots.
    """

    id: GlobalId
    limit: int | None


class AddRefresh(Message, frozen=True):
    """Refresh the dataflow at `time` too, which is not before the upper of any of its imports."""

    dataflow: GlobalId
    time: int


class Awaited(Message, frozen=True):
    """Somebody waits until the dataflow has passed `time`: it makes the step before its tick."""

    dataflow: GlobalId
    time: int


class SubscribeIndex(Message, frozen=True):
    """Subscribe to an index as `id`: its contents as of `as_of`, then each change.

    With `lower`, only changes at or beyond it. With `most`, the response is `overflow` if the
    index, or one window of its changes, has more updates. AllowCompaction of `id` ends it.
    """

    id: GlobalId
    index: GlobalId
    as_of: int
    lower: int
    most: int | None = None


class Feed(Message, frozen=True):
    """New data of shards: for each its id, lower and upper, and whether a table follows.

    A table holds all updates with lower <= time < upper; without one there are none.
    """

    shards: tuple[tuple[GlobalId, int, int, bool], ...]


class BulkChoice(msgspec.Struct, frozen=True):
    """Which engine evaluates a query: `duckdb`, `spark`, or `auto`.

    That is Spark if the query reads `threshold` bytes of files or more. `work` names the query
    where its progress is shown.
    """

    engine: str = "auto"
    threshold: int = 1 << 62
    work: str = "query"


class Peek(Message, frozen=True):
    """Answer a query as of a time, by one of two access paths.

    With `index`, `relation` is Map, Filter and Project over the Get of the indexed collection; the
    rows are those whose key is in `keys`, or if that is None those in `span`, or all. Without, the
    engine evaluates `relation` over the snapshots, and over the local index `indexes[id]` for each
    `id` that has one; with `bulk` the replica chooses between its engines. The evaluation takes
    `memory` bytes at most.
    """

    number: int
    as_of: int
    relation: Relation
    finishing: Finishing | None
    index: GlobalId | None = None
    keys: tuple[tuple[Literal, ...], ...] | None = None
    snapshots: tuple[InputSnapshot, ...] = ()
    indexes: dict[GlobalId, GlobalId] = msgspec.field(default_factory=dict)
    span: Span | None = None
    bulk: BulkChoice | None = None
    memory: int | None = None


class CancelPeek(Message, frozen=True):
    """The peek was cancelled."""

    number: int


class PeekPartTaken(Message, frozen=True):
    """One more part of the answer to a peek may be sent."""

    number: int


# --- responses -----------------------------------------------------------------------------


class Frontiers(Message, frozen=True):
    """The exports' new uppers: everything before them is computed and, for sinks, sent."""

    uppers: dict[GlobalId, int]


class Failure(msgspec.Struct, frozen=True):
    """A DatabaseError in its protocol form, with the `collection` whose data has the error."""

    sqlstate: str
    message: str
    detail: str | None = None
    hint: str | None = None
    collection: str | None = None


class PeekResponse(Message, frozen=True):
    """The rows, as the table that follows, or the error.

    If there are `more`, other responses follow with the rest of the rows. `PEEK_WINDOW` of these
    are sent at once, one more for each PeekPartTaken.
    """

    number: int
    tables: int = 0
    failure: Failure | None = None
    more: bool = False


class SinkUpdates(Message, frozen=True):
    """The updates in [lower, upper) of a sink: of its rows, and of its errors (two tables).

    An `initial` one has all errors as of upper - 1, and the rows to add to the shard's contents to
    make them correct at that time.

    They are of the dataflow that was created by the command with that `number`: one that was
    dropped meanwhile may have written the same sink.
    """

    id: GlobalId
    lower: int
    upper: int
    number: int = 0
    initial: bool = False


class SubscribeResponse(Message, frozen=True):
    """The updates in [lower, upper) for a client: of the rows, and of the errors (two tables).

    If it is an `overflow`, there are more than the subscriber takes, and no tables follow.
    """

    id: GlobalId
    lower: int
    upper: int
    overflow: bool = False


class IndexStatus(msgspec.Struct, frozen=True):
    """The size of an arrangement."""

    id: GlobalId
    since: int
    upper: int
    rows: int
    runs: int
    bytes: int


class HydrationStatus(msgspec.Struct, frozen=True):
    """What an engine has done to hydrate a dataflow: bulk statements, and their milliseconds.

    The statements read `updates`, of which the columns that they read have so many `bytes` in
    files, and gave `rows`. The note says why this engine did what another one was chosen for.
    """

    engine: str
    statements: int = 0
    updates: int = 0
    bytes: int = 0
    rows: int = 0
    ms: int = 0
    note: str | None = None


class StepStatus(msgspec.Struct, frozen=True):
    """The work of one engine in a step of a dataflow that may choose between engines.

    `step` counts the steps since the dataflow was made, `updates` those of its inputs in the step.
    The engines are kernels, duckdb and spark, of whose statements each is a job. Statements read
    `files` of the `files_there` that their contents have, and give `rows`. `anew` of them computed
    all anew. `note` says why the largest statement was left to this engine.
    """

    step: int
    engine: str
    updates: int
    statements: int
    anew: int
    files: int
    files_there: int
    bytes: int
    rows: int
    ms: int
    note: str | None


class ErrorCount(msgspec.Struct, frozen=True):
    """An error in the data, its SQLSTATE before its message, and the number of rows with it."""

    text: str
    rows: int


class DataflowStatus(msgspec.Struct, frozen=True):
    """The state of a dataflow. `failure`, with `sqlstate`, is its current or last error.

    `busy_ms` is the duration of the current hydration or step, 0 if there is none; `failures`
    counts its consecutive failures. The times in ns are CPU of the threads that hydrated it, made
    its steps, and merged its batches. `errors` are the most frequent errors in the data of its
    indexes, and `error_rows` is the number of rows with any.
    """

    id: GlobalId
    state: str  # pending, hydrating, running, failed, stalled
    hydration_ms: int
    steps: int
    step_ms: float
    busy_ms: int
    failure: str | None
    indexes: tuple[IndexStatus, ...]
    sqlstate: str | None = None
    failures: int = 0
    hydration_ns: int = 0
    step_ns: int = 0
    merge_ns: int = 0
    hint: str | None = None
    memory_limit: int | None = None  # that it has, or has exceeded
    hydrations: tuple[HydrationStatus, ...] = ()
    last_steps: tuple[StepStatus, ...] = ()
    errors: tuple[ErrorCount, ...] = ()
    error_rows: int = 0


class ArrangementStatus(msgspec.Struct, frozen=True):
    """The size of an arrangement of an object, or of what all dataflows share if that is None.

    `operator` is its operator's number in EXPLAIN PHYSICAL PLAN; `worker` has it if the replica has
    several.
    """

    object: GlobalId | None
    operator: int | None
    name: str
    records: int
    batches: int
    bytes: int
    merges: int = 0
    worker: int | None = None


class OperatorWork(msgspec.Struct, frozen=True):
    """The work of an operator since its dataflow began.

    Times are nanoseconds of CPU of the thread that ran it: in the first step, in all later steps,
    and for merging batches of a shared collection between them. `inputs` are the numbers of other
    operators. Rows are updates.
    """

    operator: int
    name: str
    inputs: tuple[int, ...]
    hydration_ns: int
    step_ns: int
    merge_ns: int
    steps: int
    rows_in: int
    rows_out: int


class OperatorStatus(OperatorWork, frozen=True):
    """The work of an operator of `dataflow`."""

    dataflow: GlobalId


class CheckpointStatus(msgspec.Struct, frozen=True):
    """The newest checkpoint of a dataflow: before which time it has all updates, and its files.

    `saved_at` is in milliseconds since 1970.
    """

    id: GlobalId
    upper: int
    saved_at: int
    bytes: int


class Checkpoints(Message, frozen=True):
    """The dataflows of the replica's newest checkpoint; another one is being made if `begun`.

    The inputs of these dataflows stay readable from the time before `upper` on, and while a
    checkpoint is being made those of all from where they are.
    """

    dataflows: tuple[CheckpointStatus, ...]
    begun: bool = False


class StageStatus(msgspec.Struct, frozen=True):
    """A stage of a Spark job, what the job is for, and the numbers of the stage's tasks."""

    work: str
    job: int
    stage: int
    name: str
    tasks: int
    active: int
    completed: int
    failed: int


class Status(Message, frozen=True):
    """The replica's status report, sent when a dataflow's state changes and periodically.

    Only periodical reports have the sizes of all arrangements, and what all operators have done.
    """

    ready: bool  # the engine is running
    dataflows: tuple[DataflowStatus, ...]
    failure: str | None = None
    arrangements: tuple[ArrangementStatus, ...] | None = None
    operators: tuple[OperatorStatus, ...] | None = None
    stages: tuple[StageStatus, ...] | None = None


Command: TypeAlias = (
    Hello
    | CreateInstance
    | InitializationComplete
    | CreateDataflow
    | AllowCompaction
    | MergeTimes
    | LimitMemory
    | AddRefresh
    | Awaited
    | SubscribeIndex
    | Feed
    | Peek
    | CancelPeek
    | PeekPartTaken
)
Response: TypeAlias = (
    Frontiers | PeekResponse | SinkUpdates | SubscribeResponse | Status | Checkpoints
)
