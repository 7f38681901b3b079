"""What may be forgotten: never what somebody holds, and otherwise all that is older than the lag."""

import asyncio
from pathlib import Path

import pytest

from foreshore.adapter.transaction.read_holds import ReadHolds
from foreshore.errors import UndefinedObject
from foreshore.ids import GlobalId
from foreshore.storage.controller import ReadCapability
from foreshore.update import Timestamp
from tests.adapter.harness import TestEnvironment, in_environment

T, V = GlobalId("u1"), GlobalId("u2")


def test_since_follows_upper_at_the_lag() -> None:
    upper = {T: 100}
    holds = ReadHolds(lag_ms=10)
    holds.add(T, 0, lambda: upper[T])
    assert holds.due() == {T: 89}
    assert holds.due() == {}
    upper[T] = 150
    assert holds.due() == {T: 139}


def test_a_hold_holds_until_it_is_released() -> None:
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


def test_a_view_holds_its_inputs_just_before_its_upper() -> None:
    upper = {T: 100, V: 40}
    holds = ReadHolds(lag_ms=10)
    holds.add(T, 0, lambda: upper[T])
    holds.add(V, 5, lambda: upper[V], [T])
    assert holds.due() == {T: 39, V: 29}
    holds.remove(V)
    assert holds.due() == {T: 89}


def test_holds_of_what_was_dropped_hold_nothing() -> None:
    holds = ReadHolds(lag_ms=10)
    holds.add(T, 0, lambda: 100)
    hold = holds.acquire([T], 20)
    holds.remove(T)
    hold.release()
    holds.add(T, 0, lambda: 100)
    assert holds.due() == {T: 89}


def test_what_fails_for_one_collection_keeps_no_other_back(
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
