"""Services that fail like real ones, controlled by a seed.

    faults = Faults(seed, Rates(refused=0.1, answer_lost=0.1, late=0.05, delayed=0.5))
    consensus, blob = FaultyConsensus(inner, faults), FaultyBlob(other, faults)

The fate of a request is drawn when it is made, in request order. So one seed, with callers in one
order, gives one run. `faults.log` records it. Callers supply `sleep`, so a simulation can have its
own clock. Rates may change at any time; at zero the services do not fail.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from random import Random

from foreshore.storage.blob import Blob
from foreshore.storage.consensus import Committed, Consensus, Mismatch, Versioned
from foreshore.storage.fault import Determinate, DiskFull, Indeterminate


class Fate(Enum):
    """The fate of a request."""

    DONE = "done"
    REFUSED = "refused"  # it surely fails
    REQUEST_LOST = "request lost"  # it has no effect, and no answer
    ANSWER_LOST = "answer lost"  # it has an effect, but no answer
    FULL = "full"  # it surely fails because the disk is full
    LATE = "late"  # it takes effect, if at all, after its sender has given up


@dataclass(slots=True)
class Rates:
    """The probability of each fate of a change except `DONE`; pauses take up to `seconds`.

    Reads are refused at a rate of their own. `full` applies to changes.
    """

    refused: float = 0.0
    request_lost: float = 0.0
    answer_lost: float = 0.0
    late: float = 0.0
    full: float = 0.0
    reads: float = 0.0
    delayed: float = 0.0
    seconds: float = 0.01

    @classmethod
    def even(cls, rate: float) -> "Rates":
        """Return rates whose fates of changes, except DONE and FULL, add up to `rate`."""
        return cls(rate / 4, rate / 4, rate / 4, rate / 4)

    @classmethod
    def every(cls, rate: float) -> "Rates":
        """Return rates whose fates, except DONE, add up to `rate`, including those of reads."""
        each = rate / 5
        return cls(each, each, each, each, each, reads=rate, delayed=rate)


@dataclass(slots=True)
class Faults:
    """The source of fates; services that share one share its sequence."""

    seed: int
    rates: Rates
    log: list[tuple[str, str, Fate]] = field(default_factory=list)  # method, key, fate
    random: Random = field(init=False)

    def __post_init__(self) -> None:
        self.random = Random(self.seed)

    def fate(self, method: str, key: str, *, changes: bool) -> Fate:
        """Draw the fate of a request."""
        rates, drawn = self.rates, self.random.random()
        found = Fate.DONE
        of_changes = (
            (rates.refused, Fate.REFUSED),
            (rates.request_lost, Fate.REQUEST_LOST),
            (rates.answer_lost, Fate.ANSWER_LOST),
            (rates.late, Fate.LATE),
            (rates.full, Fate.FULL),
        )
        for rate, fate in of_changes if changes else ((rates.reads, Fate.REFUSED),):
            if drawn < rate:
                found = fate
                break
            drawn -= rate
        self.log.append((method, key, found))
        return found

    def pause(self) -> float:
        """Draw a request's duration in seconds."""
        delayed = self.random.random() < self.rates.delayed
        return self.random.random() * self.rates.seconds if delayed else 0.0

    def arrives(self) -> bool:
        """Draw whether a late request arrives now."""
        return self.random.random() < 0.5

    @property
    def count(self) -> int:
        """Return how many requests were not simply done."""
        return sum(fate is not Fate.DONE for _, _, fate in self.log)


def _refused(method: str, key: str) -> Determinate:
    return Determinate(f"{method} of {key} was refused")


def _full(method: str, key: str) -> DiskFull:
    return DiskFull(f"{method} of {key} found no room")


def _unknown(method: str, key: str) -> Indeterminate:
    return Indeterminate(f"{method} of {key} had no answer")


Change = tuple[str, int | None, bytes]


class FaultyConsensus:
    """A consensus service with faults.

    `late` are requests that have not arrived yet. They can be passed to another service, as if
    their sender had died.
    """

    def __init__(
        self,
        inner: Consensus,
        faults: Faults,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        late: list[Change] | None = None,
    ) -> None:
        self.inner = inner
        self.faults = faults
        self.late = [] if late is None else late
        self._sleep = sleep

    async def head(self, key: str) -> Versioned | None:
        await self._read("head", key)
        return await self.inner.head(key)

    async def compare_and_set(
        self, key: str, expected: int | None, new: bytes
    ) -> Committed | Mismatch:
        await self._arrive()
        fate = self.faults.fate("compare_and_set", key, changes=True)
        await self._sleep(self.faults.pause())
        match fate:
            case Fate.REFUSED:
                raise _refused("compare_and_set", key)
            case Fate.FULL:
                raise _full("compare_and_set", key)
            case Fate.LATE:
                self.late.append((key, expected, new))
            case Fate.DONE:
                outcome = await self.inner.compare_and_set(key, expected, new)
                await self._sleep(self.faults.pause())
                return outcome
            case Fate.ANSWER_LOST:
                await self.inner.compare_and_set(key, expected, new)
        raise _unknown("compare_and_set", key)

    async def scan(self, key: str, start: int) -> list[Versioned]:
        await self._read("scan", key)
        return await self.inner.scan(key, start)

    async def truncate(self, key: str, start: int) -> None:
        await self._arrive()
        if self.faults.fate("truncate", key, changes=True) is not Fate.DONE:
            raise _refused("truncate", key)  # which a repeat of does no harm
        await self.inner.truncate(key, start)

    async def heads(self, prefix: str) -> dict[str, Versioned]:
        await self._read("heads", prefix)
        return await self.inner.heads(prefix)

    async def close(self) -> None:
        await self.inner.close()

    async def _read(self, method: str, key: str) -> None:
        await self._arrive()
        fate = self.faults.fate(method, key, changes=False)
        await self._sleep(self.faults.pause())
        if fate is not Fate.DONE:
            raise _refused(method, key)

    async def _arrive(self) -> None:
        for request in self.late[:]:
            if self.faults.arrives() and request in self.late:
                self.late.remove(request)
                await self.inner.compare_and_set(*request)


class FaultyBlob:
    """A blob store with faults; used by one thread at a time, for reproducible runs."""

    def __init__(
        self, inner: Blob, faults: Faults, sleep: Callable[[float], object] = time.sleep
    ) -> None:
        self.inner = inner
        self.faults = faults
        self._sleep = sleep
        self._late: list[Callable[[], object]] = []

    def get(self, key: str) -> bytes | None:
        self._read("get", key)
        return self.inner.get(key)

    def put(self, key: str, data: bytes) -> None:
        self._change("put", key, lambda: self.inner.put(key, data))

    def put_file(self, key: str, file: Path) -> None:
        data = file.read_bytes()
        try:
            self._change("put_file", key, lambda: self.inner.put(key, data))
        finally:
            file.unlink()

    def create(self, key: str, data: bytes) -> bool:
        created: list[bool] = []
        self._change("create", key, lambda: created.append(self.inner.create(key, data)))
        return created[0]

    def fetch(self, key: str, file: Path) -> bool:
        self._read("fetch", key)
        return self.inner.fetch(key, file)

    def delete(self, key: str) -> None:
        self._change("delete", key, lambda: self.inner.delete(key))

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        self._read("list", prefix)
        return self.inner.list(prefix)

    def local(self, key: str) -> Path | None:
        return self.inner.local(key)

    def _change(self, method: str, key: str, work: Callable[[], object]) -> None:
        self._arrive()
        fate = self.faults.fate(method, key, changes=True)
        self._sleep(self.faults.pause())
        match fate:
            case Fate.REFUSED:
                raise _refused(method, key)
            case Fate.FULL:
                raise _full(method, key)
            case Fate.LATE:
                self._late.append(work)
            case Fate.DONE:
                work()
                self._sleep(self.faults.pause())
                return
            case Fate.ANSWER_LOST:
                work()
        raise _unknown(method, key)

    def _read(self, method: str, key: str) -> None:
        self._arrive()
        fate = self.faults.fate(method, key, changes=False)
        self._sleep(self.faults.pause())
        if fate is not Fate.DONE:
            raise _refused(method, key)

    def _arrive(self) -> None:
        late, self._late = self._late, []
        for work in late:
            if self.faults.arrives():
                work()
            else:
                self._late.append(work)
