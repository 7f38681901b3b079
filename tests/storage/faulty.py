"""Services that fail as real ones do, from a seed: before it happened, or without saying that it did."""

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from foreshore.storage.blob import Blob
from foreshore.storage.consensus import Committed, Consensus, Mismatch, Versioned
from foreshore.storage.fault import Determinate, Indeterminate


class FaultyConsensus:
    """Consensus whose compare-and-sets fail now and then."""

    def __init__(self, inner: Consensus, seed: int, rate: float) -> None:
        self.inner = inner
        self.random = random.Random(seed)
        self.rate = rate
        self.faults = 0

    async def head(self, key: str) -> Versioned | None:
        return await self.inner.head(key)

    async def compare_and_set(
        self, key: str, expected: int | None, new: bytes
    ) -> Committed | Mismatch:
        if self.random.random() >= self.rate:
            return await self.inner.compare_and_set(key, expected, new)
        self.faults += 1
        match self.random.randrange(3):
            case 0:
                raise Determinate("refused")
            case 1:
                raise Indeterminate("lost on the way")
            case _:
                await self.inner.compare_and_set(key, expected, new)
                raise Indeterminate("the answer was lost")

    async def scan(self, key: str, start: int) -> list[Versioned]:
        return await self.inner.scan(key, start)

    async def truncate(self, key: str, start: int) -> None:
        if self.random.random() < self.rate:
            raise Determinate("refused")
        await self.inner.truncate(key, start)

    async def keys(self, prefix: str) -> list[str]:
        return await self.inner.keys(prefix)

    async def close(self) -> None:
        await self.inner.close()


class FaultyBlob:
    """A blob store whose changes fail now and then."""

    def __init__(self, inner: Blob, seed: int, rate: float) -> None:
        self.inner = inner
        self.random = random.Random(seed)
        self.rate = rate

    def get(self, key: str) -> bytes | None:
        return self.inner.get(key)

    def put(self, key: str, data: bytes) -> None:
        self._fail_before()
        self.inner.put(key, data)
        self._fail_after()

    def put_file(self, key: str, file: Path) -> None:
        self._fail_before()
        self.inner.put_file(key, file)
        self._fail_after()

    def delete(self, key: str) -> None:
        self._fail_before()
        self.inner.delete(key)
        self._fail_after()

    def list(self, prefix: str) -> Iterator[tuple[str, int]]:
        return self.inner.list(prefix)

    def location(self, key: str) -> str:
        return self.inner.location(key)

    def open(self, key: str) -> pa.NativeFile:
        return self.inner.open(key)

    def _fail_before(self) -> None:
        if self.random.random() < self.rate / 2:
            raise Determinate("refused")

    def _fail_after(self) -> None:
        if self.random.random() < self.rate / 2:
            raise Indeterminate("the answer was lost")
