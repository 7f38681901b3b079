"""A cluster on Spark uses the same protocol and gives the same answers."""

import asyncio
from pathlib import Path

import pytest

from foreshore.compute.protocol import SinkExport
from tests.compute.runtime.harness import (
    COUNT_SCHEMA,
    counts_of,
    environment,
    id_,
    index_on,
    run,
    table,
)
from tests.harness import java

pytestmark = pytest.mark.full


def test_views_are_equal_on_spark_and_duckdb(tmp_path: Path) -> None:
    java()

    async def scenario() -> None:
        async with environment(tmp_path) as env:
            env.compute.create_cluster("s", "spark:local[2]", {"tick_interval_ms": "200"})
            env.compute.create_replica("s", "r1")
            env.compute.create_cluster("d")
            env.compute.create_replica("d", "r1")
            await env.create("u1")
            for shard in ("u8", "u9"):
                await env.create(shard, schema=COUNT_SCHEMA)
            relation = counts_of(*table("u1"))
            first = await env.write({"u1": [((n, f"w{n % 3}"), 1) for n in range(10)]})
            for cluster, shard, index in (("s", "u8", "u6"), ("d", "u9", "u7")):
                exports = SinkExport(id_(shard)), index_on(index, 0, of=relation)
                await env.maintain(cluster, f"{shard}0", relation, *exports, as_of=first)
            times = [first]
            for n in range(6):
                times.append(await env.write({"u1": [((n, "w0"), -1 if n % 3 == 0 else 1)]}))
                await asyncio.sleep(0.1)
            for time in times:
                rows = await env.shard_rows("u9", time)
                assert await env.shard_rows("u8", time) == rows
                assert await env.index_rows("s", "u6", relation, time) == rows
                assert await env.index_rows("d", "u7", relation, time) == rows
            last = times[-1]
            assert await env.query("s", relation, last) == await env.query("d", relation, last)

    run(scenario, 180)
