"""Capabilities against a plain model, over random histories.

Since is never beyond a live read capability; upper passes a live write capability only by an
append. Neither goes back, except that after a crash since is where it was last confirmed, or later.
A holder of a time reads what was written there; without a capability reads are refused.
"""

import asyncio
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.clock import ManualClock
from foreshore.errors import ObjectNotInPrerequisiteState
from foreshore.storage import compacter
from foreshore.storage.capability import (
    AnyCapability,
    ExpiredCapability,
    InvalidCapability,
    ReadCapability,
    WriteCapability,
)
from foreshore.storage.controller import StorageController, UpperMismatch
from foreshore.update import EMPTY
from tests.effort import examples
from tests.storage.harness import ROWS, U1, Row, Update, abandon, open_at, put, table, write

LEASE_MS = 3_000
STEPS = (
    "append append_at append_at clone clone lease downgrade downgrade downgrade drop drop pass pass"
    " heartbeat acquire confirm settle close kill"
).split()
STEP = st.tuples(st.sampled_from(STEPS), st.integers(0, 9), st.integers(0, 9))


@dataclass(frozen=True)
class Held:
    """A held capability; `left_ms` is the time until a heartbeat is due, None: never."""

    capability: AnyCapability
    left_ms: int | None = None


class Machine:
    """A database with a shard, and its model."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = ManualClock()
        self.held: dict[str, Held] = {}
        self.gone: dict[str, AnyCapability] = {}
        self.since = self.upper = 0
        self.confirmed: dict[str, Held] = {}  # as it is after a crash at the worst
        self.confirmed_since = 0
        self.updates: list[Update] = []
        self.controller: StorageController

    async def start(self) -> None:
        await self.open()
        for capability in await self.controller.create(U1, ROWS):
            self.held[capability.token] = Held(capability)
        self.confirm()

    async def open(self) -> None:
        self.controller = await open_at(self.directory, clock=self.clock, segment_records=4)

    # --- the model ---

    def of(self, kind: type[AnyCapability]) -> list[Held]:
        return [each for each in self.held.values() if isinstance(each.capability, kind)]

    def move(self) -> None:
        """Move the frontiers to where the capabilities allow."""
        if reads := self.of(ReadCapability):
            self.since = max(self.since, min(each.capability.frontier for each in reads))
        if writes := self.of(WriteCapability):
            self.upper = max(self.upper, min(each.capability.frontier for each in writes))

    def lose(self, token: str) -> None:
        self.gone[token] = self.held.pop(token).capability

    def confirm(self) -> None:
        self.confirmed, self.confirmed_since = dict(self.held), self.since

    # --- what can happen ---

    async def step(self, kind: str, which: int, by: int) -> None:
        held = list(self.held.values())
        one = held[which % len(held)] if held else None
        match kind:
            case "append":
                await self.append(by)
            case "append_at" if writes := self.of(WriteCapability):
                await self.append_at(writes[which % len(writes)], by)
            case "clone" | "lease" if one is not None:
                lease_ms = LEASE_MS if kind == "lease" or one.left_ms is not None else None
                clone = await self.controller.clone_capability(
                    one.capability, LEASE_MS if kind == "lease" else None
                )
                assert clone == replace(one.capability, token=clone.token)
                self.held[clone.token] = Held(clone, lease_ms)
                self.confirm()  # durable on return, and all that was before it
            case "downgrade" if one is not None:
                await self.downgrade(one, by)
            case "drop" if one is not None:
                await self.drop(one)
            case "pass":
                await self.let_time_pass(by % 3)
            case "heartbeat":
                heard = held[: by + 1]
                self.controller.heartbeat([each.capability for each in heard])
                for each in heard:
                    if each.left_ms is not None:
                        self.held[each.capability.token] = replace(each, left_ms=LEASE_MS)
            case "acquire":
                await self.acquire(LEASE_MS if by % 2 else None)
            case "confirm":
                await self.controller.confirm()
                self.confirm()
            case "settle":
                await self.controller.settle()
                self.confirm()
            case "close" | "kill":
                await self.reopen(cleanly=kind == "close")

    async def append(self, by: int) -> None:
        if self.upper == EMPTY:
            assert await self.controller.append([write(U1, 7, 8)]) == UpperMismatch(U1, EMPTY)
            return
        updates, upper = self.some(self.upper, by)
        await put(self.controller, write(U1, self.upper, upper, *updates))
        self.appended(updates, upper)

    async def append_at(self, one: Held, by: int) -> None:
        lower = one.capability.frontier
        updates, upper = self.some(lower, by)
        assert isinstance(one.capability, WriteCapability)
        outcome = await self.controller.append_at(one.capability, table(updates), upper)
        if lower != self.upper:
            assert outcome == UpperMismatch(U1, self.upper)
            return
        assert outcome == replace(one.capability, frontier=upper)
        self.held[one.capability.token] = replace(one, capability=outcome)
        self.appended(updates, upper)
        self.move()

    def some(self, lower: int, by: int) -> tuple[list[Update], int]:
        row: Row = (by % 3, "a")
        return [(row, lower + by // 2, 1)], lower + by // 2 + 1

    def appended(self, updates: list[Update], upper: int) -> None:
        self.updates += updates
        self.upper = upper
        self.confirm()

    async def downgrade(self, one: Held, by: int) -> None:
        frontier = one.capability.frontier + by
        with pytest.raises(ObjectNotInPrerequisiteState, match="cannot go back"):
            await self.controller.downgrade_capability(one.capability, frontier - by - 1)
        capability = await self.controller.downgrade_capability(one.capability, frontier)
        assert capability == replace(one.capability, frontier=frontier)
        self.held[capability.token] = replace(one, capability=capability)
        if isinstance(capability, WriteCapability):
            self.move()
            self.confirm()

    async def drop(self, one: Held) -> None:
        await self.controller.drop_capability(one.capability)
        self.lose(one.capability.token)
        last = not self.of(type(one.capability))
        if isinstance(one.capability, ReadCapability):
            self.since = EMPTY if last else self.since
        else:
            self.upper = EMPTY if last else self.upper
            self.move()
        if last or isinstance(one.capability, WriteCapability):
            self.confirm()

    async def let_time_pass(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance(1_000)
            self.controller.expire()
            for token, each in list(self.held.items()):
                if each.left_ms is not None:
                    self.held[token] = replace(each, left_ms=each.left_ms - 1_000)
                    if each.left_ms <= 1_000:
                        self.lose(token)
        await self.controller.confirm()
        self.move()
        self.confirm()

    async def acquire(self, lease_ms: int | None) -> None:
        pair = (await self.controller.acquire_capabilities([U1], lease_ms))[U1]
        assert [each.frontier for each in pair] == [self.since, self.upper]
        for each in pair:
            if each.frontier == EMPTY:
                self.gone[each.token] = each
            else:
                self.held[each.token] = Held(each, lease_ms)
        self.confirm()

    async def reopen(self, *, cleanly: bool) -> None:
        await (self.controller.close() if cleanly else abandon(self.controller))
        if cleanly:
            self.confirm()
        self.clock.advance(-10_000_000)
        await self.open()
        since = self.controller.since(U1)
        assert self.confirmed_since <= since <= self.since, (self.confirmed_since, self.since)
        self.since = since
        grants = {g.token: g for g in self.controller._shards[U1].capabilities.grants}
        grants = {token: grant for token, grant in grants.items() if grant.frontier != EMPTY}
        assert self.held.keys() <= grants.keys() <= self.confirmed.keys() | self.held.keys()
        for token, grant in grants.items():
            was = self.confirmed[token].capability
            if isinstance(was, ReadCapability):
                now = self.held[token].capability if token in self.held else was
                assert was.frontier <= grant.frontier <= now.frontier or token not in self.held
                was = replace(was, frontier=grant.frontier)
                self.held[token] = Held(was, grant.lease_ms)
        await self.acquire(None)
        for token, each in list(self.held.items()):
            if each.left_ms is not None:
                self.held[token] = replace(each, left_ms=LEASE_MS)
            elif not token.startswith(f"{self.controller.epoch}-"):
                self.lose(token)
        self.gone = {token: each for token, each in self.gone.items() if token not in self.held}

    # --- what holds ---

    async def check(self) -> None:
        self.move()
        assert (self.controller.since(U1), self.controller.upper(U1)) == (self.since, self.upper)
        for read in self.of(ReadCapability):
            time = read.capability.frontier
            assert self.since <= time
            assert isinstance(read.capability, ReadCapability)
            if time >= self.upper:
                with pytest.raises(ObjectNotInPrerequisiteState):
                    self.controller.snapshot(read.capability, time)
                continue
            snapshot = self.controller.snapshot(read.capability, time)
            found = (await snapshot.rows()).to_pydict()
            snapshot.release()
            rows = zip(found["k"], found["v"], strict=True)
            expected = Counter(row for row, at, _ in self.updates if at <= time)
            assert dict(zip(rows, found["__diff"], strict=True)) == dict(expected)
        for gone in self.gone.values():
            with pytest.raises((InvalidCapability, ExpiredCapability)):
                self.controller.heartbeat([gone])


@settings(max_examples=examples(25))
@given(st.lists(STEP, max_size=14))
def test_capabilities_match_model(steps: list[tuple[str, int, int]]) -> None:
    async def main(directory: Path) -> None:
        machine = Machine(directory)
        await machine.start()
        for step in steps:
            await machine.step(*step)
            await machine.check()
        await machine.controller.close()

    with (
        tempfile.TemporaryDirectory() as directory,
        patch.object(compacter, "MANY", 2),  # so that it is also at work while others are
    ):
        asyncio.run(main(Path(directory)))
