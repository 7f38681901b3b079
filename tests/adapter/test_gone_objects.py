"""Dropped objects and ended sessions leave no Python objects and no growing containers."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter

import pytest

from tests.adapter.harness import TestEnvironment

# Each is made and goes, as often as it is asked for with another {n}.
KINDS = {
    "table": (
        "CREATE TABLE gone{n} (k int PRIMARY KEY, v text)",
        "INSERT INTO gone{n} VALUES (1, 'x')",
        "DROP TABLE gone{n}",
    ),
    "materialized view": (
        "CREATE MATERIALIZED VIEW gone{n} AS SELECT v, count(*) FROM base GROUP BY v",
        "SELECT * FROM gone{n}",
        "DROP MATERIALIZED VIEW gone{n}",
    ),
    "view": (
        "CREATE VIEW gone{n} AS SELECT v FROM base",
        "SELECT * FROM gone{n}",
        "DROP VIEW gone{n}",
    ),
    "index": ("CREATE INDEX gone{n} ON base (v)", "DROP INDEX gone{n}"),
    "temporary table": ("CREATE TEMP TABLE gone{n} (k int)", "DROP TABLE gone{n}"),
    "column": ("ALTER TABLE base ADD COLUMN c{n} int", "ALTER TABLE base DROP COLUMN c{n}"),
    "role": ("CREATE ROLE gone{n}", "DROP ROLE gone{n}"),
    "schema": ("CREATE SCHEMA gone{n}", "DROP SCHEMA gone{n}"),
    "prepared statement": (
        "PREPARE p AS SELECT 1 + k FROM base",
        "EXECUTE p",
        "DEALLOCATE p",
    ),
    "subscription": (
        "BEGIN",
        "DECLARE c CURSOR FOR SUBSCRIBE base",
        "FETCH 1 c WITH (timeout = '0s')",
        "COMMIT",
    ),
    "session": (),
}
MORE, ROUNDS = 12, 10
# What is bounded by a number of its own: the last statements, and what was computed for the last;
# SQLite looks at its weak references after 200 statements.
BOUNDED = (
    "weakref",
    "foreshore.statement_history",
    "foreshore.adapter.session.shaped_texts",
    "foreshore.storage.controller.StorageController, in containers",  # the ids of dropped shards
)


async def make_and_end(env: TestEnvironment, kind: str, numbers: range) -> None:
    for n in numbers:
        if kind == "session":
            await env.ran(f"session {n}", "SELECT count(*) FROM base")
            await env.sessions.pop(f"session {n}").close()
        for sql in KINDS[kind]:
            await env.ran("a", sql.format(n=n))


async def settle(env: TestEnvironment) -> None:
    """Let history be given up, and what was dropped be forgotten."""
    for value in range(3):
        await env.ran("a", f"UPDATE base SET v = {value}")
        await env.environment.coordinator.allow_compaction()
    env.environment.forget_retired()
    await env.storage.settle()
    await forget_cancelled_timers()


async def forget_cancelled_timers() -> None:
    """Let the loop forget its cancelled timers; it keeps them until most of its timers are."""
    loop = asyncio.get_running_loop()
    for timer in [loop.call_later(3600, gc.collect) for _ in range(500)]:
        timer.cancel()
    await asyncio.sleep(0)


def kept() -> Counter[str]:
    """Return how many objects there are of each type, and how much is in containers of each."""
    for _ in range(3):
        gc.collect()
    found: Counter[str] = Counter()
    for each in gc.get_objects():
        kind = f"{type(each).__module__}.{type(each).__qualname__}"
        found[kind] += 1
        if kind.startswith("foreshore."):
            for held in gc.get_referents(each):
                if isinstance(held, dict | set | list):
                    found[f"{kind}, in containers"] += len(held)
    return found


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
async def test_what_has_gone_leaves_no_objects(own_env: TestEnvironment, kind: str) -> None:
    env = own_env
    env.lag_ms = 0
    await env.reopen()
    await env.ran("a", "CREATE TABLE base (k int PRIMARY KEY, v text)")
    await env.ran("a", "INSERT INTO base VALUES (1, 'x')")
    grown = {""}
    for number in range(ROUNDS):  # what is made once, as a kernel is, grows in some of them only
        before = kept()
        await make_and_end(env, kind, range(number * MORE, (number + 1) * MORE))
        await settle(env)
        more = {name for name, n in (kept() - before).items() if n >= MORE}
        more = {name for name in more if not name.startswith(BOUNDED)}
        grown = grown & more if number else more
        if not grown:
            return
    raise AssertionError(f"these grow in each of {ROUNDS} rounds: {sorted(grown)}")
