"""The faulty services fail as their seed determines, and their users recover."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from foreshore.errors import Fenced
from foreshore.storage import epoch
from foreshore.storage.blob import MemoryBlob
from foreshore.storage.consensus import Committed, MemoryConsensus, Mismatch
from foreshore.storage.epoch import EpochState, Register
from foreshore.storage.fault import Determinate, Indeterminate
from tests.storage.faulty import Fate, Faults, FaultyBlob, FaultyConsensus, Rates


async def trace(seed: int) -> tuple[list[tuple[str, str, Fate]], list[bytes], list[float]]:
    """Return the fate of each request, the final contents, and the pauses."""
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    rates = Rates.every(0.4)
    rates.delayed = 0.5
    rates.reads = 0.1
    inner = MemoryConsensus()
    faults = Faults(seed, rates)
    consensus = FaultyConsensus(inner, faults, sleep)
    for i in range(50):
        try:
            head = await consensus.head("k")
            await consensus.compare_and_set("k", head.seqno if head else None, bytes([i]))
        except (Determinate, Indeterminate):
            continue
    return faults.log, [version.data for version in await inner.scan("k", 0)], pauses


def test_same_seed_repeats_run() -> None:
    first, again, other = (asyncio.run(trace(seed)) for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert {fate for _, _, fate in first[0]} == set(Fate)


def test_refused_requests_have_no_effect_and_lost_ones_may(tmp_path: Path) -> None:
    for seed in range(30):
        inner = MemoryBlob()
        faults = Faults(seed, Rates.even(0.9))
        blob = FaultyBlob(inner, faults, lambda _: None)
        try:
            blob.put("a", b"1")
            assert inner.get("a") == b"1"
        except Determinate:
            assert inner.get("a") is None
            assert faults.log[-1][2] is Fate.REFUSED
        except Indeterminate:
            fate = faults.log[-1][2]
            assert (inner.get("a") is not None) == (fate is Fate.ANSWER_LOST)
            faults.rates = Rates()
            for _ in range(30):
                blob.get("b")
            assert (inner.get("a") is None) == (fate is Fate.REQUEST_LOST)


class Overtaken(MemoryConsensus):
    """Loses the first request to take an epoch; another environment then takes it."""

    def __init__(self) -> None:
        super().__init__()
        self.taken_by_another: int | None = None

    async def compare_and_set(
        self, key: str, expected: int | None, new: bytes
    ) -> Committed | Mismatch:
        if self.taken_by_another is None:
            self.taken_by_another = 0
            self.taken_by_another = (await epoch.take_epoch(self)).epoch
            raise Indeterminate("no answer")
        return await super().compare_and_set(key, expected, new)


def test_lost_answer_does_not_reuse_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epoch, "PAUSE_SECONDS", 0.0)
    consensus = Overtaken()
    mine = asyncio.run(epoch.take_epoch(consensus)).epoch
    assert (consensus.taken_by_another, mine) == (1, 2)


@pytest.mark.parametrize("seed", range(25))
def test_registers_that_race_over_faulty_consensus_agree(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An acknowledged change persists; others take effect at most once, and in order."""
    monkeypatch.setattr(epoch, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(epoch, "RETRY_SECONDS", 0.0)

    async def main() -> None:
        inner = MemoryConsensus()
        faults = Faults(seed, Rates.even(0.5))
        acknowledged: list[int] = []
        monkeypatch.setattr(epoch, "VERSIONS_KEPT", 1 << 30)

        async def environment(number: int) -> None:
            register = Register(FaultyConsensus(inner, faults), "k", EpochState)
            while True:
                try:
                    await register.claim(number, EpochState(epoch=number))
                    break
                except (Determinate, Indeterminate):
                    register = Register(FaultyConsensus(inner, faults), "k", EpochState)
                except Fenced:
                    return
            for _ in range(5):
                try:
                    await register.change_with_retry(EpochState(epoch=number))
                except Fenced:
                    return
                acknowledged.append(number)

        await asyncio.gather(*(environment(number) for number in (1, 2, 3)))
        stored = [version.data for version in await inner.scan("k", 0)]
        epochs = [msgspec.json.decode(data, type=EpochState).epoch for data in stored]
        assert epochs == sorted(epochs), "an older environment wrote after a newer one"
        assert acknowledged == sorted(acknowledged)
        for number in set(acknowledged):
            assert epochs.count(number) >= acknowledged.count(number)
        assert acknowledged.count(3) == 5
        assert isinstance(
            await inner.compare_and_set("k", len(stored), b"{}"), Committed
        )  # seqnos count the versions

    asyncio.run(main())
