"""Capabilities: who holds a shard's frontiers back.

A read capability keeps what is at or beyond its frontier readable: the shard's `since` is the meet
of the frontiers of all that are live. A write capability is the right to say what comes at or
beyond its frontier. Each has a token that is never given out twice, and is durable: it outlives its
process, until `acquire_capabilities` of a later epoch takes the shard over.

    clone       another capability that holds the same or less
    downgrade   the same capability holds less from now on
    drop        it holds nothing, and its token is invalid from now on

A frontier only advances. What is presented is checked against what is live, so a token that was
dropped, or a frontier that was given up, is refused.
"""

from dataclasses import dataclass, replace
from typing import TypeVar

from foreshore.errors import InternalError, ObjectNotInPrerequisiteState
from foreshore.ids import GlobalId
from foreshore.storage.record import Grant
from foreshore.update import Timestamp


class InvalidCapability(InternalError):
    """The capability is not live, or holds less than was asked of it."""


@dataclass(frozen=True, slots=True)
class ReadCapability:
    """Holds the since of a shard back to `frontier`."""

    token: str
    id: GlobalId
    frontier: Timestamp


@dataclass(frozen=True, slots=True)
class WriteCapability:
    """The right to write a shard at or beyond `frontier`."""

    token: str
    id: GlobalId
    frontier: Timestamp


Capability = TypeVar("Capability", ReadCapability, WriteCapability)
AnyCapability = ReadCapability | WriteCapability


def grant_of(capability: AnyCapability) -> Grant:
    """Return the capability as the log keeps it."""
    mode = "read" if isinstance(capability, ReadCapability) else "write"
    return Grant(capability.token, mode, capability.frontier)  # type: ignore[arg-type]


class Capabilities:
    """The live capabilities of one shard."""

    def __init__(self, id: GlobalId) -> None:
        self.id = id
        self._live: dict[str, Grant] = {}

    @property
    def grants(self) -> tuple[Grant, ...]:
        """Return all that are live."""
        return tuple(self._live.values())

    def meet(self) -> Timestamp | None:
        """Return the least frontier of those that read, None if there are none."""
        return min((g.frontier for g in self._live.values() if g.mode == "read"), default=None)

    def add(self, grant: Grant) -> None:
        """Let a new capability live."""
        assert grant.token not in self._live, grant
        self._live[grant.token] = grant

    def remove_before(self, epoch: int) -> None:
        """End those of earlier epochs."""
        self._live = {t: g for t, g in self._live.items() if epoch_of(t) >= epoch}

    def remove(self, token: str) -> None:
        """End a capability, if it is live."""
        self._live.pop(token, None)

    def advance(self, token: str, frontier: Timestamp) -> None:
        """Let a capability hold no more than what is at or beyond `frontier`."""
        grant = self._live.get(token)
        if grant is not None and grant.frontier < frontier:
            self._live[token] = Grant(token, grant.mode, frontier)

    def check(self, capability: AnyCapability) -> Grant:
        """Return what is live of the capability; raises InvalidCapability."""
        grant = self._live.get(capability.token)
        mode = "read" if isinstance(capability, ReadCapability) else "write"
        if grant is None or grant.mode != mode or capability.id != self.id:
            raise InvalidCapability(
                f'{mode} capability "{capability.token}" on {capability.id} is not valid'
            )
        if capability.frontier < grant.frontier:
            raise InvalidCapability(
                f'{mode} capability "{capability.token}" on {capability.id} has been downgraded'
                f" to {grant.frontier} and no longer holds {capability.frontier}"
            )
        return grant


class Tokens:
    """Tokens of one epoch, no two the same."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._next = 0

    def take(self) -> str:
        """Return a token never given out before."""
        self._next += 1
        return f"{self._epoch}-{self._next}"


def epoch_of(token: str) -> int:
    """Return the epoch in which the token was given out."""
    return int(token.partition("-")[0])


def downgraded(capability: Capability, frontier: Timestamp) -> Capability:
    """Return the capability as it is after its downgrade."""
    if frontier < capability.frontier:
        raise ObjectNotInPrerequisiteState(
            f"a capability at {capability.frontier} cannot go back to {frontier}"
        )
    return replace(capability, frontier=frontier)
