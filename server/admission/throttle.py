"""Slows down those who guess passwords, with bounded memory.

Failures are counted by address and role, and by address alone. The first ones are free: FREE with
one role, FREE_OF_ADDRESS in all. After each further one the next attempt has to wait, up to SLOWEST
seconds, and attempts of many connections wait in line. One that would wait longer than PATIENCE is
refused at once. A success forgives the failures with its role, and CALM seconds without a failure
forgive all. An address of IPv6 counts as its network of 64 bits. A role that has proven its
password at the address within PROVEN seconds waits only for its own failures: many share an
address, and one of them who guesses does not keep out the others.

An attempt waits when its client has sent its proof, before it hears whether that is right. So
however many exchanges are open, no client learns of more guesses than one after the other would
tell. Clients that prove their passwords never wait, however
many they are, unless somebody at their address has guessed.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from foreshore.errors import TooManyConnections
from foreshore.server.admission.crowd import network_number
from foreshore.server.admission.rules import Address

FREE = 5
FREE_OF_ADDRESS = 50
FIRST = 0.25  # seconds of the first wait, which doubles with each failure
SLOWEST = 4.0
PATIENCE = 8.0
CALM = 60.0
PROVEN = 86_400.0
MOST = 10_000  # of the counts kept, and of the roles that have proven their passwords

_Key: TypeAlias = tuple[int, str | None]  # an address, and a role


@dataclass(slots=True)
class _Failures:
    count: int
    last: float
    next_attempt: float
    slowed: int = 0  # attempts since the count has reached what is free


class Throttle:
    """The failures of all addresses; `now` is a clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._failures: OrderedDict[_Key, _Failures] = OrderedDict()  # the oldest failure first
        self._proven: OrderedDict[_Key, float] = OrderedDict()  # when, the longest ago first

    async def attempt(self, address: Address | None, role: str) -> None:
        """Wait until the address may hear whether a password is right; raises TooManyConnections.

        The caller counts the outcome without another await.
        """
        wait = self.reserve(address, role)
        if wait > 0:
            await asyncio.sleep(wait)

    def check(self, address: Address | None, role: str) -> None:
        """Raise TooManyConnections if an attempt would have to wait for too long."""
        if address is not None:
            self._begin(address, self._line(address, role))

    def reserve(self, address: Address | None, role: str) -> float:
        """Return the seconds to wait before an attempt, which has its place in line with that."""
        line = self._line(address, role)
        if address is None or not line:
            return 0.0
        begin = self._begin(address, line)
        for found in line:
            found.next_attempt = begin + min(SLOWEST, FIRST * 2 ** min(found.slowed, 10))
            found.slowed += 1
        return begin - self._now()

    def _line(self, address: Address | None, role: str) -> list[_Failures]:
        """Return the failures for which an attempt has to wait."""
        if address is None or not self._failures:
            return []
        now = self._now()
        return [
            found
            for key, free in _counted(address, role)
            if (found := self._failures.get(key)) is not None
            and found.count >= free
            and now - found.last <= CALM
            and (key[1] is not None or not self._has_proven(address, role))
        ]

    def _has_proven(self, address: Address, role: str) -> bool:
        """Return whether a role has lately proven its password at an address."""
        proven = self._proven.get((network_number(address), role))
        return proven is not None and self._now() - proven <= PROVEN

    def _begin(self, address: Address, line: list[_Failures]) -> float:
        """Return the time of the next attempt."""
        now = self._now()
        begin = max((found.next_attempt for found in line), default=now)
        if begin - now > PATIENCE:
            raise TooManyConnections(
                f'too many failed authentication attempts from "{address}"',
                hint="Try again in a minute.",
            )
        return max(begin, now)

    def failed(self, address: Address | None, role: str) -> None:
        """Note that a client at this address could not prove to be this role."""
        if address is None:
            return
        now = self._now()
        for key, free in _counted(address, role):
            found = self._failures.pop(key, None)
            if found is None or now - found.last > CALM:
                found = _Failures(0, now, now)
            found.count += 1
            found.last = now
            if found.count == free:
                found.next_attempt = now + FIRST
            self._failures[key] = found
        while len(self._failures) > MOST:
            self._failures.popitem(last=False)

    def succeeded(self, address: Address | None, role: str) -> None:
        """Forget the failures of an address with a role, which has proven its password."""
        if address is None:
            return
        number = network_number(address)
        self._proven.pop((number, role), None)
        self._proven[number, role] = self._now()
        if len(self._proven) > MOST:
            self._proven.popitem(last=False)
        self._failures.pop((number, role), None)
        if (of_address := self._failures.get((number, None))) is not None:
            of_address.slowed = max(0, of_address.slowed - 1)


def _counted(address: Address, role: str) -> Iterator[tuple[_Key, int]]:
    """Yield what a failure counts for, and how many are free."""
    number = network_number(address)
    yield (number, role), FREE
    yield (number, None), FREE_OF_ADDRESS
