"""Changelogs: what a subscription needs of those that it shares with others."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from foreshore.catalog.watch import Watch
from foreshore.compute.changelog import Changelog, End, Reader
from foreshore.compute.envelope import Form, Rendering
from foreshore.errors import DatabaseError, ObjectNotInPrerequisiteState
from foreshore.expr.ir import Relation
from foreshore.ids import GlobalId
from foreshore.update import Timestamp


@dataclass(frozen=True, slots=True)
class Source:
    """What a changelog is of: the updates of `relation`, which is computed from `inputs`.

    Without a cluster, that is a shard. Otherwise it is an indexed view if there is an `index`,
    which is the only input then, or a query that the cluster computes.
    """

    relation: Relation
    inputs: frozenset[GlobalId]
    cluster: str | None = None
    index: GlobalId | None = None
    memory: int | None = None  # the most bytes that the query's state may take

    @property
    def is_shard(self) -> bool:
        """Whether the updates come from a shard, which can be read itself."""
        return self.cluster is None

    def end(self, reasons: Mapping[str, str]) -> DatabaseError | None:
        """Return the error for the end of objects that it needs, if there are any in `reasons`."""
        needed = {*self.inputs, self.cluster}
        found = sorted(reason for id, reason in reasons.items() if id in needed)
        return ended_because(found[0]) if found else None


def ended_because(reason: str) -> DatabaseError:
    """Return the error with which a subscription ends."""
    return ObjectNotInPrerequisiteState(f"the subscription has ended because {reason}")


class Follower(Reader, Protocol):
    """A subscription that runs."""

    @property
    def source(self) -> Source:
        """The relation it subscribes to."""

    @property
    def watch(self) -> Watch | None:
        """The rights that it needs."""

    @property
    def constrained(self) -> frozenset[GlobalId]:
        """The tables whose constraints its plan may need."""

    def limit(self, end: End) -> None:
        """End the stream at `end`, if it does not end before."""

    def interrupt(self, error: DatabaseError) -> None:
        """End the stream if it waits for what was dropped."""

    def revoke(self, error: DatabaseError) -> None:
        """End the stream with the next call: its role has lost a right that it needs."""


class Changelogs(Protocol):
    """The open changelogs, and the subscriptions that run."""

    def rendering(self, relation: Relation | None, form: Form) -> Rendering:
        """Return the one rendering for these, so that its subscribers share their rows."""

    def add(self, subscriber: Follower) -> None:
        """Register a subscription that is starting."""

    def join(self, subscriber: Follower, source: Source, as_of: Timestamp) -> Changelog:
        """Return a changelog with all changes later than `as_of` for a subscriber."""

    def leave(self, subscriber: Follower, log: Changelog | None) -> None:
        """Remove a subscription; the last one closes its changelog."""
