"""Read holds: history is forgotten after the lag, but never while it is held."""

import asyncio
from pathlib import Path

import pytest

from foreshore.errors import UndefinedObject
from foreshore.ids import GlobalId
from foreshore.storage.controller import ReadCapability
from foreshore.storage.read_holds import ReadHolds
from foreshore.update import Timestamp
from tests.adapter.harness import TestEnvironment, in_environment

T, V = GlobalId("u1"), GlobalId("u2")


def test_since_follows_upper_at_its_lag() -> None:
    upper = {T: 100}
    holds = ReadHolds(lag_ms=10)
    holds.add(T, 0, lambda: upper[T])
    assert holds.due() == {T: 89}
    assert holds.due() == {}
    upper[T] = 150
    assert holds.due() == {T: 139}


def test_hold_keeps_since_until_released() -> None:
    upper = {T: 100}
    holds = ReadHolds(lag_ms=10)
    holds.add(T, 0, lambda: upper[T])
    hold = holds.acquire([T], 20)
    other = holds.acquire([T], 50)
    assert holds.due() == {T: 20}
    hold.release()
    hold.release()
    assert holds.due() == {T: 50}
    other.release()
    assert holds.due() == {T: 89}
    holds.check()


def test_view_holds_inputs_just_before_its_upper() -> None:
    upper = {T: 100, V: 40}
    holds = ReadHolds(lag_ms=10)
    holds.add(T, 0, lambda: upper[T])
    holds.add(V, 5, lambda: upper[V], [T])
    assert holds.due() == {T: 39, V: 29}
    holds.remove(V)
    assert holds.due() == {T: 89}


def test_holds_on_dropped_collection_have_no_effect() -> None:
    holds = ReadHolds(lag_ms=10)
    holds.add(T, 0, lambda: 100)
    hold = holds.acquire([T], 20)
    holds.remove(T)
    hold.release()
    holds.add(T, 0, lambda: 100)
    assert holds.due() == {T: 89}


def test_failure_for_one_collection_does_not_delay_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(env: TestEnvironment) -> None:
        coordinator = env.environment.coordinator
        downgrade = env.storage.downgrade_capability

        async def failing(capability: ReadCapability, since: Timestamp) -> ReadCapability:
            if capability.id == T:
                raise UndefinedObject("not this one")
            lower = await downgrade(capability, since)
            assert isinstance(lower, ReadCapability)
            return lower

        monkeypatch.setattr(env.storage, "downgrade_capability", failing)
        await env.query("a", "CREATE TABLE t (k int); CREATE TABLE s (k int)")
        await asyncio.sleep(0.1)
        await coordinator.group.advance()
        with pytest.raises(UndefinedObject, match="not this one"):
            await coordinator.allow_compaction()
        moved = coordinator.holds.since(V)
        assert moved == coordinator.holds.since(T) > env.storage.since(T)
        assert env.storage.since(V) == moved

    in_environment(tmp_path, scenario, lag_ms=50)
