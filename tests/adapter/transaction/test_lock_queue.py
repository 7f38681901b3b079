"""Locks in any order of requests, releases and cancellations: nobody waits for ever, or for nobody."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import combinations
from random import Random
from typing import Any, cast

import pytest

from foreshore.adapter.transaction.advisory_locks import AdvisoryLocks, Had, Key, Mode, Scope
from foreshore.adapter.transaction.group_commit import GroupCommit
from foreshore.adapter.transaction.locks import Locks
from foreshore.compute.keys.key_sets import keys_of
from foreshore.errors import Conflict
from foreshore.lock_queue import LockQueue
from tests.compute.runtime.harness import id_

OWNERS = range(1, 6)
MODES: tuple[Mode, ...] = ("exclusive", "shared")
SCOPES: tuple[Scope, ...] = ("transaction", "session")
Work = Coroutine[Any, Any, None]


class NoGroup:
    """A group commit without shards."""

    def __contains__(self, id: object) -> bool:
        return False

    def unblock(self, ids: object) -> None:
        """Do nothing: no writes are blocked."""


class OfTables:
    """Locks of two tables and of four keys of each."""

    def __init__(self) -> None:
        self.queue = Locks(cast(GroupCommit, NoGroup()), lambda: cast(Any, None))

    def request(self, owner: int, choose: Random) -> Work:
        table = id_(choose.choice(("u1", "u2")))
        tables = frozenset([table]) if choose.random() < 0.3 else frozenset()
        keys = keys_of(id_(choose.choice(("u1", "u2"))), "", choose.sample(range(4), 2))
        return self.queue._acquire(tables, keys, owner, 0)

    def release(self, owner: int, choose: Random) -> None:
        self.queue.release(owner, choose.choice((0, self.queue.mark(owner) // 2)))

    def release_all(self, owner: int) -> None:
        self.queue.release(owner)

    def check_holders(self) -> None:
        for id, owner in self.queue.tables.items():
            assert set(self.queue._with_keys.get(id, ())) <= {owner}

    def is_empty(self) -> bool:
        queue = self.queue
        return not (queue.tables or queue._keys or queue._with_keys or queue.held)


class OfApplications:
    """Three advisory locks."""

    def __init__(self) -> None:
        self.queue = AdvisoryLocks()

    def request(self, owner: int, choose: Random) -> Work:
        had = Had(choose.choice(MODES), choose.choice(SCOPES))
        return self.queue.take(owner, Key("d", 0, choose.randrange(3), 1), had, 0)

    def release(self, owner: int, choose: Random) -> None:
        if choose.random() < 0.5:
            self.queue.release_transaction(owner, choose.choice((0, self.queue.mark(owner) // 2)))
        else:
            self.queue.release_session(owner)

    def release_all(self, owner: int) -> None:
        self.queue.release_transaction(owner)
        self.queue.release_session(owner)

    def check_holders(self) -> None:
        for holders in self.queue._holders.values():
            for one, other in combinations(holders.values(), 2):
                assert "exclusive" not in {had.mode for had in (*one, *other)}

    def is_empty(self) -> bool:
        return not (self.queue._holders or self.queue.held or self.queue.by_transactions)


def check_waits(queue: LockQueue[Any]) -> None:
    """Check that each request waits for somebody, and that no circle of them does."""
    waits: dict[object, set[object]] = {}
    for place, each in enumerate(queue._waiting):
        waits[each.owner] = set(queue._before(each, place))
        assert waits[each.owner], "it waits for nobody"
    while waits:
        free = [owner for owner, others in waits.items() if not others & waits.keys()]
        assert free, f"a circle: {waits}"
        for owner in free:
            del waits[owner]


@pytest.mark.parametrize("kind", [OfTables, OfApplications])
async def test_nobody_waits_for_nobody_or_in_a_circle(
    kind: Callable[[], OfTables | OfApplications],
) -> None:
    granted = deadlocks = cancelled = 0
    for seed in range(60):
        choose, locks = Random(seed), kind()
        running: dict[int, asyncio.Task[None]] = {}

        async def settle() -> None:
            for _ in range(4):
                await asyncio.sleep(0)
            for owner, task in list(running.items()):  # noqa: B023
                if task.done():
                    del running[owner]  # noqa: B023
                    if task.cancelled() or task.exception() is not None:
                        assert task.cancelled() or isinstance(task.exception(), Conflict)
                        if choose.random() < 0.5:  # noqa: B023 - else it ends later
                            locks.release_all(owner)  # noqa: B023

        for _ in range(80):
            owner = choose.choice(OWNERS)
            if owner not in running:
                if choose.random() < 0.7:
                    running[owner] = asyncio.ensure_future(locks.request(owner, choose))
                else:
                    locks.release(owner, choose)
            elif choose.random() < 0.3:
                running[owner].cancel()
                if choose.random() < 0.5:  # in the same turn as others let it go on
                    for other in OWNERS:
                        if other not in running:
                            locks.release(other, choose)
                cancelled += 1
            await asyncio.sleep(0)
            deadlocks += sum(
                task.done() and not task.cancelled() and task.exception() is not None
                for task in running.values()
            )
            before = len(running)
            await settle()
            granted += before - len(running)
            check_waits(locks.queue)
            locks.check_holders()
        while running:
            for owner in OWNERS:
                if owner not in running:
                    locks.release_all(owner)
            left = len(running)
            await settle()
            assert len(running) < left, "all wait"
            check_waits(locks.queue)
        for owner in OWNERS:
            locks.release_all(owner)
        assert not locks.queue._waiting
        assert locks.is_empty()
    assert min(granted, deadlocks, cancelled) > 20
