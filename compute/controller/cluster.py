"""A cluster in the controller: its replicas, and the commands sent to all of them.

A replica that connects receives the cluster's history, and from then on every command together with
the others. Feeds are collected and encoded once for all replicas. The first one goes at the end of
its turn of the event loop, and others follow `FEED_SECONDS` apart unless somebody waits for them:
commits that come one by one are few steps of dataflows.
"""

import asyncio
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import msgspec
import pyarrow as pa

from foreshore import blocking
from foreshore.compute.controller.history import Entry, History
from foreshore.compute.inputs import describe
from foreshore.compute.protocol import (
    ArrangementStatus,
    CheckpointStatus,
    CreateDataflow,
    CreateInstance,
    DataflowDescription,
    DataflowStatus,
    Feed,
    InitializationComplete,
    InputSnapshot,
    OperatorStatus,
    Peek,
    Response,
    StageStatus,
    Status,
)
from foreshore.errors import CollectionCorrupted, DatabaseError, InvalidParameterValue
from foreshore.ids import GlobalId
from foreshore.processes.link import Link
from foreshore.processes.messages import Message
from foreshore.processes.outbox import are_large
from foreshore.processes.transport import Connection, Sent, Tables, encode_frame
from foreshore.storage.controller import ListenEvent, Snapshot
from foreshore.update import T0, Timestamp

logger = logging.getLogger(__name__)

FEED_SECONDS = 0.005  # between feeds that nobody waits for
SOON_MS = 1_000  # a wait for a time further ahead is not hurried
ENCODED_IN_PASSING = 1 << 20  # bytes of rows that are encoded on the event loop

# Valid Spark masters. An invalid one would fail at each start of a replica.
_NO_OPTIONS: Mapping[str, str | None] = MappingProxyType({})
_MASTER = re.compile(
    r"local|local\[([1-9][0-9]*|\*)(\s*,\s*[0-9]+)?\]"
    r"|local-cluster\[\s*[0-9]+\s*,\s*[0-9]+\s*,\s*[0-9]+\s*\]"
    r"|(spark|k8s)://.+|yarn"
)

SPARK_OPTIONS = ("master", "driver_memory", "executor_memory", "shuffle_partitions")

Prepared = tuple[tuple[Snapshot, ...], tuple[InputSnapshot, ...], list[pa.Table]]


def engine_of(size: str) -> tuple[str, dict[str, str]]:
    """Return the engine that a cluster's size names, and the options that the size implies.

    `embedded` is one process with the arrangement engine, `duckdb` one that maintains everything by
    DuckDB; `spark` is Spark on the configured master, and
    `spark:MASTER` on another one.
    """
    name, _, rest = size.partition(":")
    match name:
        case "embedded" | "duckdb" if not rest:
            return name, {}
        case "spark":
            return "spark", {"master": rest} if rest else {}
        case _:
            raise InvalidParameterValue(
                f"unknown cluster replica size {size}",
                hint="Valid sizes are: embedded, duckdb, spark",
            )


def workers_of(options: Mapping[str, str]) -> int:
    """Return how many workers a replica with these options has."""
    return int(options.get("workers", "1"))


def check_size(size: str, options: Mapping[str, str | None] = _NO_OPTIONS) -> None:
    """Raise InvalidParameterValue for an unknown size, or options that it cannot have."""
    engine, implied = engine_of(size)
    if engine != "embedded" and options.get("workers") not in (None, "1"):
        raise InvalidParameterValue(
            f"a replica of size {size} cannot have several WORKERS",
            hint="Only replicas of size embedded have workers.",
        )
    for name in SPARK_OPTIONS:
        if engine != "spark" and options.get(name) is not None:
            raise InvalidParameterValue(
                f"a replica of size {size} cannot have a {name.replace('_', ' ').upper()}",
                hint="Only replicas of size spark can.",
            )
    master = options.get("master") or implied.get("master", "local")
    if engine == "spark" and _MASTER.fullmatch(master) is None:
        raise InvalidParameterValue(
            f'invalid Spark master "{master}"',
            hint="Valid masters are such as local[2], local[*] and spark://HOST:PORT.",
        )


@dataclass(frozen=True, slots=True)
class Created:
    """A dataflow that a replica was sent: its `as_of`, and the number of the command."""

    as_of: Timestamp
    number: int


@dataclass(slots=True)
class Replica:
    """One replica of a cluster."""

    name: str
    link: Link[Response]
    instance: CreateInstance
    connection: Connection[Response] | None = None
    uppers: dict[GlobalId, Timestamp] = field(default_factory=dict)
    # Of the snapshots it hydrates from.
    leases: dict[GlobalId, list[Snapshot]] = field(default_factory=dict)
    status: Status | None = None
    status_at: float = 0.0  # when it sent its last status, by the loop's clock
    arrangements: tuple[ArrangementStatus, ...] = ()  # as it last reported them
    operators: tuple[OperatorStatus, ...] = ()
    stages: tuple[StageStatus, ...] = ()  # of its Spark
    # Dataflows over corrupt files, by its last status.
    suspected: set[GlobalId] = field(default_factory=set)
    # Dataflows that failed repeatedly.
    failing: dict[GlobalId, DataflowStatus] = field(default_factory=dict)
    # Of its newest checkpoint, and whether it makes another one.
    checkpoints: dict[GlobalId, CheckpointStatus] = field(default_factory=dict)
    saving: bool = False
    # Stalled dataflows that it was sent again, until it reports that they are not.
    restarted: set[GlobalId] = field(default_factory=set)
    # Dataflows that it was sent over this connection.
    created: dict[GlobalId, Created] = field(default_factory=dict)
    commands: int = 0  # that it was sent to create dataflows
    begun: set[GlobalId] = field(default_factory=set)  # sinks whose initial updates it has sent
    # See `report`: the status, and the dataflows that it has started.
    _reported: tuple[Status | None, Mapping[GlobalId, DataflowStatus]] = (
        None,
        MappingProxyType({}),
    )
    away_since: float = 0.0  # when it was created or last disconnected, by the loop's clock
    task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        """Whether it is connected and its engine is running."""
        return self.connection is not None and self.status is not None and self.status.ready

    def report(self, dataflow: GlobalId) -> DataflowStatus | None:
        """Return its last report of a dataflow that it has started, None if there is none."""
        if self.status is None:
            return None
        if self._reported is None or self._reported[0] is not self.status:
            started = {
                each.id: each
                for each in self.status.dataflows
                if each.state in ("running", "failed")
            }
            self._reported = self.status, started
        return self._reported[1].get(dataflow)

    def number_of(self, dataflow: GlobalId) -> int:
        """Return the number of the command that created a dataflow; 0 if it has none."""
        created = self.created.get(dataflow)
        return 0 if created is None else created.number

    def release(self, dataflow: GlobalId) -> None:
        """Release the snapshots from which the dataflow hydrates."""
        for snapshot in self.leases.pop(dataflow, ()):
            snapshot.release()


@dataclass(frozen=True, slots=True)
class PendingPeek:
    """An unanswered peek, of one `replica` or (None) of all."""

    peek: Peek
    tables: Sequence[pa.Table]
    replica: str | None


class Cluster:
    """The replicas of one cluster, and the commands sent to them.

    `instance` is that of replicas without a size of their own.

    `snapshots` returns what a dataflow hydrates from: snapshots of its imports, and of its shard if
    that has to be corrected. It is called for each replica when the command is sent.
    """

    def __init__(
        self,
        id: str,
        instance: CreateInstance,
        snapshots: Callable[[DataflowDescription], tuple[Prepared, Prepared]],
    ) -> None:
        self.id = id
        self.instance = instance
        self.history = History()
        self.replicas: dict[str, Replica] = {}
        self.ready: set[GlobalId] = set()  # dataflows whose imports are readable at their as_of
        self.peeks: dict[int, PendingPeek] = {}  # by number
        self._snapshots = snapshots
        self._feed: list[ListenEvent] = []
        self._feeding: asyncio.Handle | None = None  # which sends them
        self._is_paced = False  # it does so after a while
        self._fed = T0  # the upper of the newest of them
        self._fed_at = 0.0  # by the clock of the loop
        self._awaited = T0  # all before it is sent at once

    @property
    def connections(self) -> list[Connection[Response]]:
        """Return the open connections."""
        return [r.connection for r in self.replicas.values() if r.connection is not None]

    def status(self) -> Iterator[dict[str, Any]]:
        """Yield the status of each replica, for builtin relations."""
        for replica in self.replicas.values():
            yield {
                "cluster": self.id,
                "replica": replica.name,
                "engine": replica.instance.engine,
                "state": replica.link.state,
                "pid": replica.link.pid,
                "starts": replica.link.starts,
                "ready": replica.status is not None and replica.status.ready,
                "failure": replica.status.failure if replica.status is not None else None,
                "uppers": dict(replica.uppers),
                "dataflows": msgspec.to_builtins(replica.status.dataflows)
                if replica.status is not None
                else [],
            }

    def arrangements(self) -> Iterator[tuple[str, ArrangementStatus]]:
        """Yield the names of replicas with the arrangements of each."""
        for replica in self.replicas.values():
            for each in replica.arrangements:
                yield replica.name, each

    def operators(self) -> Iterator[tuple[str, OperatorStatus]]:
        """Yield the names of replicas with the operators of each."""
        for replica in self.replicas.values():
            for each in replica.operators:
                yield replica.name, each

    def connected(self, replica: Replica, connection: Connection[Response]) -> None:
        """Send a new connection the history, pending peeks included."""
        self._flush()
        replica.connection = connection
        replica.uppers = {}
        connection.send(replica.instance)
        for id, entry in self.history.dataflows.items():
            # One with a schedule begins at its next refresh.
            if id in self.ready and entry.description.refresh is None:
                self._create_on(replica, entry)
        for command in self.history.compactions():
            connection.send(command)
        for subscribe_index in self.history.follows.values():
            connection.send(subscribe_index)
        connection.send(InitializationComplete())
        for asked in self.peeks.values():
            if asked.replica in (None, replica.name):
                connection.send(asked.peek, asked.tables)

    def lost(self, replica: Replica) -> None:
        """Note that a replica's connection has ended."""
        replica.connection = None
        replica.uppers = {}
        replica.restarted = set()
        replica.status = None
        replica.arrangements, replica.operators, replica.stages = (), (), ()
        replica.saving = False
        replica.created = {}
        for id in list(replica.leases):
            replica.release(id)

    def create(self, entry: Entry) -> None:
        """Send a dataflow whose imports are readable to all replicas that do not have it."""
        self._flush()
        self.ready.add(entry.description.id)
        for replica in self.replicas.values():
            if replica.connection is not None and entry.description.id not in replica.created:
                self._create_on(replica, entry)

    def _create_on(self, replica: Replica, entry: Entry) -> None:
        assert replica.connection is not None
        description = entry.current()
        try:
            imports, persisted = self._snapshots(description)
        except DatabaseError as error:
            # other replicas continue; this one stands still until it reconnects
            logger.error(
                "a dataflow cannot be begun: %s",
                error,
                exc_info=not isinstance(error, CollectionCorrupted),
                extra={"dataflow": description.id, "cluster": self.id},
            )
            return
        replica.commands += 1
        replica.created[description.id] = Created(description.as_of, replica.commands)
        replica.leases[description.id] = [*imports[0], *persisted[0]]
        command = CreateDataflow(description, imports[1], persisted[1], replica.commands)
        replica.connection.send(command, [*imports[2], *persisted[2]])

    def restart(self, replica: Replica, entry: Entry) -> None:
        """Send a dataflow anew to a replica where it is stalled, and who follows its indexes."""
        id = entry.description.id
        self._flush()
        replica.restarted.add(id)
        replica.release(id)
        for export in entry.description.exports:
            replica.uppers.pop(export.id, None)
            replica.begun.discard(export.id)
        if entry.description.refresh is None:
            self._create_on(replica, entry)
            indexes = {export.id for export in entry.description.exports}
            for subscribe_index in self.history.follows.values():
                if subscribe_index.index in indexes and replica.connection is not None:
                    replica.connection.send(subscribe_index)
        else:
            replica.created.pop(id, None)  # it begins at the next refresh

    def drop(self, dataflow: GlobalId) -> None:
        """Forget a dropped dataflow."""
        self.ready.discard(dataflow)
        for replica in self.replicas.values():
            replica.created.pop(dataflow, None)
            replica.release(dataflow)

    def send(self, message: Message, tables: Sequence[Sent] = ()) -> None:
        """Send a command to all replicas."""
        large, frame = are_large(tables) if tables else False, None
        for replica in self.replicas.values():
            connection = replica.connection
            if connection is not None and large:
                connection.send(message, tables)
            elif connection is not None:
                frame = frame or encode_frame(message, tables)
                connection.send_frame(frame)

    async def ask(self, asked: PendingPeek) -> None:
        """Send a peek to all replicas, also to those that connect later, until `forget_peek`.

        Many rows beside it are encoded on a thread.
        """
        large = are_large(asked.tables)
        if large:
            frame = []
        elif sum(table.nbytes for table in asked.tables) > ENCODED_IN_PASSING:
            frame = await blocking.run(None, encode_frame, asked.peek, asked.tables)
        else:
            frame = encode_frame(asked.peek, asked.tables)
        connections = self.connections
        if asked.replica is not None:
            replica = self.replicas.get(asked.replica)
            connection = None if replica is None else replica.connection
            connections = [] if connection is None else [connection]
        self.peeks[asked.peek.number] = asked
        for connection in connections:
            if large:
                connection.send(asked.peek, asked.tables)
            else:
                connection.send_frame(frame)

    def forget_peek(self, number: int) -> None:
        """Forget a peek that was answered or cancelled."""
        self.peeks.pop(number, None)

    def feed(self, event: ListenEvent) -> None:
        """Send a shard's new data to all replicas, now or a little later."""
        self._feed.append(event)
        is_awaited = self._fed < self._awaited
        self._fed = max(self._fed, event.upper)
        loop = asyncio.get_running_loop()
        due = self._fed_at + FEED_SECONDS
        if is_awaited or due <= loop.time():
            self._feed_soon()
        elif self._feeding is None:
            self._feeding, self._is_paced = loop.call_at(due, self._flush), True

    def hurry(self, upper: Timestamp) -> None:
        """Send all up to `upper` at once, as somebody waits for it."""
        self._awaited = max(self._awaited, min(upper, self._fed + SOON_MS))
        if self._feed:
            self._feed_soon()

    def _feed_soon(self) -> None:
        """Send what is collected at the end of this turn of the event loop."""
        if self._feeding is None or self._is_paced:
            if self._feeding is not None:
                self._feeding.cancel()
            self._feeding = asyncio.get_running_loop().call_soon(self._flush)
            self._is_paced = False

    def _flush(self) -> None:
        if self._feeding is not None:
            self._feeding.cancel()
            self._feeding = None
        events, self._feed = self._feed, []
        if not events:
            return
        self._fed_at = asyncio.get_running_loop().time()
        shards, tables = [], []
        for event in events:
            has_updates = event.written is not None
            shards.append((event.id, event.lower, event.upper, has_updates))
            if has_updates:
                tables.append(event.written)
        self.send(Feed(tuple(shards)), tables)


def prepare(snapshots: Sequence[Snapshot]) -> Prepared:
    """Return storage's snapshots as parts of a message."""
    described = [describe(snapshot) for snapshot in snapshots]
    tables = [table for _, tail in described for table in tail]
    return tuple(snapshots), tuple(message for message, _ in described), tables


__all__ = [
    "Cluster",
    "PendingPeek",
    "Prepared",
    "Replica",
    "Tables",
    "check_size",
    "engine_of",
    "prepare",
]
