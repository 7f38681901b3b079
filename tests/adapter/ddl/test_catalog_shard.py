"""The catalog's shard: its size follows the present objects, not the past ones."""

import asyncio
from pathlib import Path

from foreshore.catalog.durable import CATALOG_SHARD
from tests.adapter.harness import TestEnvironment


async def updates(env: TestEnvironment) -> int:
    """Return how many updates the shard has when all that may be compacted is."""
    coordinator = env.environment.coordinator
    await coordinator.group.advance()
    await coordinator.allow_compaction()
    await env.storage.settle()
    read, _ = coordinator.capabilities[CATALOG_SHARD]
    snapshot = env.storage.snapshot(read, env.storage.upper(CATALOG_SHARD) - 1)
    try:
        counts = [file.rows for file in snapshot.files]
        return sum(counts) + sum(int(part.num_rows) for part in snapshot.tail)
    finally:
        snapshot.release()


def test_created_and_dropped_item_leaves_no_rows(tmp_path: Path) -> None:
    async def main() -> None:
        env = TestEnvironment(tmp_path, lag_ms=50)
        for _ in range(2):
            await env.open()
            grants = env.storage._shards[CATALOG_SHARD].capabilities.grants
            assert sum(grant.mode == "read" for grant in grants) == 1, grants
            before = await updates(env)
            for number in range(20):
                await env.query("a", f"CREATE TABLE t{number} (k int); DROP TABLE t{number}")
            assert await updates(env) <= before + 10  # counters
            await env.close()

    asyncio.run(main())
