"""The process: what it counts, and what it was told by its options."""

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Protocol

from foreshore.adapter.client import ServerConfiguration
from foreshore.adapter.services.copies import Copies
from foreshore.adapter.services.usage import Usage
from foreshore.ids import GlobalId
from foreshore.loop_latency import LoopLatency
from foreshore.notifications import Channels
from foreshore.statement_history import StatementHistory
from foreshore.update import Timestamp


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit: the number of distinct rows that differ, or why it failed."""

    time: Timestamp
    finished_at: int  # microseconds since 1970
    seconds: float
    differences: int | None
    error: str | None = None


class Process(Protocol):
    """The process of the environment."""

    @property
    def started(self) -> int:
        """When it started, in microseconds since 1970."""

    @property
    def environment_id(self) -> str:
        """The environment, as Materialize writes it: the provider, the region, a UUID, a number."""

    @property
    def configuration(self) -> ServerConfiguration | None:
        """The configuration files of who serves it."""

    @property
    def channels(self) -> Channels:
        """The channels of NOTIFY."""

    @property
    def copies(self) -> Copies:
        """The COPYs with files that run."""

    @property
    def audits(self) -> MutableMapping[GlobalId, Audit]:
        """The last audit of each view."""

    @property
    def statement_history(self) -> StatementHistory:
        """The statements that have ended."""

    @property
    def usage(self) -> Usage:
        """The usage of replicas, sources and sinks."""

    @property
    def loop_latency(self) -> LoopLatency:
        """How late the event loop was."""
