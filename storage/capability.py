"""Capabilities: who holds a shard's frontiers back.

A read capability keeps what is at or beyond its frontier readable: the shard's `since` is the meet
of the frontiers of all that are live. A write capability is the right to say what comes at or
beyond its frontier: nobody else closes the times there. Each has a token that is never given out
twice, and is durable: it outlives its process.

    clone       another capability that holds the same
    downgrade   the same capability holds less from now on
    drop        it holds nothing, and its token is invalid from now on
    expire      so is it if it is a lease and nothing is heard of its holder

Whoever presents a capability has it; handing it on is telling another its three values. One with a
lease may be held by anybody anywhere. One without is held by its environment, which no heartbeat is
needed of: it ends when a later one takes the shard over.

A frontier only advances. The last holder who drops his capability lets it advance to the end, the
empty frontier: since = {} is never read again, upper = {} never written. Where the last one is lost
instead, expired or left behind, it stays where it was, and may be acquired again.

What is presented is checked against what is live, so a token that nobody was given, that is another
shard's, was dropped or has expired, and a frontier that was given up, are refused.
"""

from collections import deque
from dataclasses import dataclass, replace
from typing import TypeVar

from foreshore.errors import ObjectNotInPrerequisiteState
from foreshore.ids import GlobalId
from foreshore.storage.record import Grant, Mode
from foreshore.update import EMPTY, Timestamp

EXPIRED_REMEMBERED = 256  # of a shard, so that their holders hear what became of them


class InvalidCapability(ObjectNotInPrerequisiteState):
    """The capability is not live, or holds less than was asked of it."""


class ExpiredCapability(InvalidCapability):
    """Nothing was heard of the capability's holder for as long as its lease."""


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


AnyCapability = ReadCapability | WriteCapability
Capability = TypeVar("Capability", bound=AnyCapability)


def mode_of(capability: AnyCapability) -> Mode:
    """Return what the capability is for."""
    return "read" if isinstance(capability, ReadCapability) else "write"


def grant_of(capability: AnyCapability, lease_ms: int | None = None) -> Grant:
    """Return the capability as the log keeps it."""
    return Grant(capability.token, mode_of(capability), capability.frontier, lease_ms)


class Capabilities:
    """The live capabilities of one shard."""

    def __init__(self, id: GlobalId) -> None:
        self.id = id
        self._live: dict[str, Grant] = {}
        self._expired: deque[str] = deque(maxlen=EXPIRED_REMEMBERED)

    @property
    def grants(self) -> tuple[Grant, ...]:
        """Return all that are live."""
        return tuple(self._live.values())

    def meet(self, mode: Mode, otherwise: Timestamp) -> Timestamp:
        """Return the least frontier of those that are live, EMPTY if the last one was dropped.

        `otherwise` is where it stays if all were lost.
        """
        return min((g.frontier for g in self._live.values() if g.mode == mode), default=otherwise)

    def is_last(self, token: str) -> bool:
        """Whether a live capability is the only one of its mode."""
        mode = self._live[token].mode
        return sum(grant.mode == mode for grant in self._live.values()) == 1

    def has(self, token: str) -> bool:
        """Whether a capability is live."""
        return token in self._live

    def add(self, grant: Grant) -> None:
        """Let a new capability live."""
        assert grant.token not in self._live, grant
        self._live[grant.token] = grant

    def remove_before(self, epoch: int) -> None:
        """End those of earlier epochs, but for leases: their holders are still there.

        What the last holder gave up stays so, too.
        """
        self._live = {
            token: grant
            for token, grant in self._live.items()
            if epoch_of(token) >= epoch or grant.lease_ms is not None or grant.frontier == EMPTY
        }

    def drop(self, token: str) -> None:
        """End a capability, if it is live, as its holder wants.

        The last of its mode stays, at EMPTY: so it is known that the frontier is.
        """
        if token in self._live:
            if self.is_last(token):
                self._live[token] = Grant(token, self._live[token].mode, EMPTY)
            else:
                del self._live[token]

    def end_writers(self) -> list[str]:
        """End all write capabilities, as the shard is complete; return their tokens."""
        ended = [token for token, grant in self._live.items() if grant.mode == "write"]
        for token in ended:
            del self._live[token]
        return ended

    def expire(self, token: str) -> Mode | None:
        """End a capability of whose holder nothing was heard; return its mode if it was live."""
        grant = self._live.pop(token, None)
        if grant is None:
            return None
        self._expired.append(token)
        return grant.mode

    def advance(self, token: str, frontier: Timestamp) -> None:
        """Let a capability hold no more than what is at or beyond `frontier`."""
        grant = self._live.get(token)
        if grant is not None and grant.frontier < frontier:
            self._live[token] = Grant(token, grant.mode, frontier, grant.lease_ms)

    def check(self, capability: AnyCapability) -> Grant:
        """Return what is live of the capability.

        Raises ExpiredCapability, or InvalidCapability if it is not valid for another reason.
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

        This is on the way of every commit.
        """
        grant = self._live.get(token)
        if grant is None or grant.mode != "write" or lower < grant.frontier:
            self.check(WriteCapability(token, self.id, lower))


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
