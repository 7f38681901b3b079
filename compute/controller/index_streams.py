"""Streams of indexes: the contents of an index as of a time, then each change, as replicas send it.

All replicas send the same updates, in windows of their own. A stream takes what is new to it.
"""

import asyncio
from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Protocol

import msgspec
import pyarrow as pa

from foreshore.compute.protocol import AllowCompaction, SubscribeIndex
from foreshore.errors import DatabaseError, UndefinedObject
from foreshore.ids import GlobalId
from foreshore.update import Timestamp

if TYPE_CHECKING:
    from foreshore.compute.controller.maintained import Dataflow


class Stream(Protocol):
    """A receiver of the updates of a dataflow's output."""

    @property
    def upper(self) -> Timestamp:
        """The time before which it has received all updates."""
        ...

    @property
    def failed(self) -> bool:
        """Whether it has stopped receiving."""
        ...

    @property
    def since(self) -> Timestamp:
        """The time from which its input must be readable for another replica to continue."""
        ...

    def put(self, lower: Timestamp, upper: Timestamp, rows: pa.Table, errors: pa.Table) -> None:
        """Receive the updates in [lower, upper) from a replica."""
        ...

    def progress(self, upper: Timestamp) -> None:
        """Record that a replica has sent all updates before `upper`."""
        ...

    def fail(self, error: DatabaseError) -> None:
        """End it with `error`."""
        ...


async def begin(
    exporters: "MutableMapping[GlobalId, Dataflow]", stream: Stream, request: SubscribeIndex
) -> None:
    """Let the replicas of the index's cluster send what `request` asks for to `stream`.

    Raises UndefinedObject if there is no such index.
    """
    dataflow = exporters.get(request.index)
    if dataflow is None or request.index in dataflow.writers:
        raise UndefinedObject(f'index "{request.index}" does not exist')
    dataflow.index_subscriptions[request.id] = stream
    exporters[request.id] = dataflow
    follows = dataflow.cluster.history.follows
    follows[request.id] = request
    await asyncio.shield(dataflow.created)
    if request.id in follows:  # otherwise it was ended meanwhile
        dataflow.cluster.send(follows[request.id])


def end(exporters: "MutableMapping[GlobalId, Dataflow]", id: GlobalId) -> None:
    """End the stream `id`; no effect if it has ended."""
    dataflow = forget(exporters, id)
    if dataflow is not None:
        dataflow.cluster.send(AllowCompaction(id, None))


def forget(exporters: "MutableMapping[GlobalId, Dataflow]", id: GlobalId) -> "Dataflow | None":
    """Forget the stream `id`; return the dataflow that it was of, None if it has ended."""
    dataflow = exporters.pop(id, None)
    if dataflow is not None:
        del dataflow.index_subscriptions[id]
        del dataflow.cluster.history.follows[id]
    return dataflow


def note_received(dataflow: "Dataflow") -> None:
    """Note in the history from where on another replica has to send to streams."""
    follows = dataflow.cluster.history.follows  # only dataflows of sinks move
    for id, stream in dataflow.index_subscriptions.items():
        follows[id] = msgspec.structs.replace(follows[id], lower=stream.upper)


def holds(dataflow: "Dataflow", index: GlobalId) -> Iterator[Timestamp]:
    """Yield the times from which the streams of an index need it to be readable."""
    follows = dataflow.cluster.history.follows
    for id, stream in dataflow.index_subscriptions.items():
        if follows[id].index == index and not stream.failed:
            yield stream.since
