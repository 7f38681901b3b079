"""Capabilities: the rights that hold a shard's frontiers back.

A read capability keeps times at or beyond its frontier readable: the shard's `since` is the meet of
all live read capabilities. A write capability is the right to append at or beyond its frontier.
Each capability has a unique token and is durable: it outlives the process that acquired it.

    clone       create another capability at the same frontier
    downgrade   advance the frontier of a capability
    drop        give the capability up; its token becomes invalid
    expire      end a lease whose holder sent no heartbeat in time

Presenting the token is enough: a holder passes a capability on by sending its three values. A
capability with a lease may be held by any process. One without a lease belongs to its environment,
needs no heartbeat, and ends when a later environment takes the shard over.

Frontiers only advance. When the last holder drops its capability, the shard's frontier advances to
EMPTY: with since = {} the shard is never read again, with upper = {} it is never written again.
When the last capability is lost instead (expired, or left behind by an earlier environment), the
frontier stays and a new capability can be acquired.

Every capability presented is checked against the live ones. An unknown token, a token of another
shard, a dropped or expired token, and a frontier already given up are rejected.
"""

from collections import deque
from dataclasses import dataclass, replace
from typing import TypeVar

from foreshore.errors import ObjectNotInPrerequisiteState
from foreshore.ids import GlobalId
from foreshore.storage.record import Grant, Mode
from foreshore.update import EMPTY, Timestamp

EXPIRED_REMEMBERED = 256  # per shard, so that holders get a specific error


class InvalidCapability(ObjectNotInPrerequisiteState):
    """The capability is not live, or its frontier is beyond the requested time."""


class ExpiredCapability(InvalidCapability):
    """The capability's lease ended because no heartbeat arrived in time."""


@dataclass(frozen=True, slots=True)
class ReadCapability:
    """Holds the since of a shard back to `frontier`."""

    token: str
    id: GlobalId
    frontier: Timestamp


@dataclass(frozen=True, slots=True)
class WriteCapability:
    """The right to append to a shard at or beyond `frontier`."""

    token: str
    id: GlobalId
    frontier: Timestamp


AnyCapability = ReadCapability | WriteCapability
Capability = TypeVar("Capability", bound=AnyCapability)


def mode_of(capability: AnyCapability) -> Mode:
    """Return whether the capability is for reading or writing."""
    return "read" if isinstance(capability, ReadCapability) else "write"


def grant_of(capability: AnyCapability, lease_ms: int | None = None) -> Grant:
    """Return the capability in the form the log stores."""
    return Grant(capability.token, mode_of(capability), capability.frontier, lease_ms)


class Capabilities:
    """The live capabilities of one shard."""

    def __init__(self, id: GlobalId) -> None:
        self.id = id
        self._live: dict[str, Grant] = {}
        self._expired: deque[str] = deque(maxlen=EXPIRED_REMEMBERED)

    @property
    def grants(self) -> tuple[Grant, ...]:
        """Return all live capabilities."""
        return tuple(self._live.values())

    def meet(self, mode: Mode, otherwise: Timestamp) -> Timestamp:
        """Return the least frontier of the live capabilities, EMPTY if the last one was dropped.

        Returns `otherwise` if there are none because all were lost.
        """
        return min((g.frontier for g in self._live.values() if g.mode == mode), default=otherwise)

    def is_last(self, token: str) -> bool:
        """Whether this live capability is the only one of its mode."""
        mode = self._live[token].mode
        return sum(grant.mode == mode for grant in self._live.values()) == 1

    def has(self, token: str) -> bool:
        """Whether a capability is live."""
        return token in self._live

    def add(self, grant: Grant) -> None:
        """Add a new live capability."""
        assert grant.token not in self._live, grant
        self._live[grant.token] = grant

    def end_earlier_epochs(self, epoch: int) -> None:
        """End the capabilities of earlier epochs, except leases, whose holders may still run.

        A mode whose last holder dropped its capability stays at EMPTY.
        """
        self._live = {
            token: grant
            for token, grant in self._live.items()
            if epoch_of(token) >= epoch or grant.lease_ms is not None or grant.frontier == EMPTY
        }

    def drop(self, token: str) -> None:
        """End a capability, if it is live, on behalf of its holder.

        The last capability of a mode is kept at EMPTY, which records the frontier.
        """
        if token in self._live:
            if self.is_last(token):
                self._live[token] = Grant(token, self._live[token].mode, EMPTY)
            else:
                del self._live[token]

    def end_writers(self) -> list[str]:
        """End all write capabilities of a complete shard; return their tokens."""
        ended = [token for token, grant in self._live.items() if grant.mode == "write"]
        for token in ended:
            del self._live[token]
        return ended

    def expire(self, token: str) -> Mode | None:
        """End a capability whose holder sent no heartbeat; return its mode if it was live."""
        grant = self._live.pop(token, None)
        if grant is None:
            return None
        self._expired.append(token)
        return grant.mode

    def advance(self, token: str, frontier: Timestamp) -> None:
        """Advance a capability's frontier to `frontier`."""
        grant = self._live.get(token)
        if grant is not None and grant.frontier < frontier:
            self._live[token] = Grant(token, grant.mode, frontier, grant.lease_ms)

    def check(self, capability: AnyCapability) -> Grant:
        """Return the live grant of the capability.

        Raises ExpiredCapability, or InvalidCapability if it is invalid for another reason.
        """
        mode = mode_of(capability)
        grant = self._live.get(capability.token)
        fits = grant is not None and grant.mode == mode and capability.id == self.id
        if grant is None or not fits or grant.frontier == EMPTY:
            what = f'{mode} capability "{capability.token}" on {capability.id}'
            if capability.token in self._expired:
                raise ExpiredCapability(
                    f"{what} has expired", detail="No heartbeat came for as long as its lease."
                )
            raise InvalidCapability(f"{what} is not valid")
        if capability.frontier < grant.frontier:
            raise InvalidCapability(
                f'{mode} capability "{capability.token}" on {capability.id} has been downgraded'
                f" to {grant.frontier} and no longer holds {capability.frontier}"
            )
        return grant

    def check_write(self, token: str, lower: Timestamp) -> None:
        """Raise as `check` does unless `token` gives the right to write from `lower` on.

        Every commit calls this, so it does no more than necessary.
        """
        grant = self._live.get(token)
        if grant is None or grant.mode != "write" or lower < grant.frontier:
            self.check(WriteCapability(token, self.id, lower))


class Tokens:
    """Unique tokens of one epoch."""

    def __init__(self, epoch: int) -> None:
        self._epoch = epoch
        self._next = 0

    def issue(self) -> str:
        """Return a new, unused token."""
        self._next += 1
        return f"{self._epoch}-{self._next}"


def epoch_of(token: str) -> int:
    """Return the epoch in which the token was issued."""
    return int(token.partition("-")[0])


def downgraded(capability: Capability, frontier: Timestamp) -> Capability:
    """Return the capability with its frontier advanced to `frontier`."""
    if frontier < capability.frontier:
        raise ObjectNotInPrerequisiteState(
            f"a capability at {capability.frontier} cannot go back to {frontier}"
        )
    return replace(capability, frontier=frontier)
