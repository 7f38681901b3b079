"""Usage: samples of what replicas, sources and sinks take and do."""

from collections.abc import Collection, Sequence
from typing import Protocol

import msgspec


class ReplicaSample(msgspec.Struct, frozen=True, gc=False):
    """The usage of a replica at a time in milliseconds; `cpu` is in billionths of a core."""

    at: int
    replica: str
    cpu: int | None
    memory: int


class ReplicaChange(msgspec.Struct, frozen=True, gc=False):
    """The state that a replica had from a time on, in milliseconds."""

    at: int
    replica: str
    status: str
    reason: str | None


class FlowSample(msgspec.Struct, frozen=True, gc=False):
    """Counters of a source or sink, from the start of the server to a time in milliseconds."""

    at: int
    id: str
    updates: int
    bytes: int
    messages: int | None
    lag: int | None  # a source's in offsets, a sink's in milliseconds


class Usage(Protocol):
    """The samples of the environment, the oldest first."""

    @property
    def replicas(self) -> Sequence[ReplicaSample]:
        """The usage of replicas."""

    @property
    def changes(self) -> Collection[ReplicaChange]:
        """The states that replicas had."""

    @property
    def sources(self) -> Collection[FlowSample]:
        """The statistics of sources."""

    @property
    def sinks(self) -> Collection[FlowSample]:
        """The statistics of sinks."""
