"""A view whose replica makes a step for each tick: reads that wait for it do not wait for the tick."""

import asyncio
from pathlib import Path

from foreshore.compute.protocol import SinkExport
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Get
from tests.compute.runtime.harness import (
    COUNT_SCHEMA,
    counts_of,
    environment,
    id_,
    index_on,
    run,
    table,
)

HOUR = {"tick_interval_ms": "3600000"}


def test_a_read_does_not_wait_for_the_tick(tmp_path: Path) -> None:
    """Of the view itself, and of an index over it in a cluster without ticks."""

    async def scenario() -> None:
        async with environment(tmp_path) as env:
            env.compute.create_cluster("ticks", "duckdb", HOUR)
            env.compute.create_cluster("other")
            for cluster in ("ticks", "other"):
                env.compute.create_replica(cluster, "r1")
            await env.create("u1")
            await env.create("u8", schema=COUNT_SCHEMA)
            relation = counts_of(*table("u1"))
            over = Get(id_("u8"), columns_of(relation))
            first = await env.write({"u1": [((n, f"w{n % 3}"), 1) for n in range(9)]})
            await env.maintain("ticks", "u80", relation, SinkExport(id_("u8")), as_of=first)
            await env.compute.wait_upper(id_("u8"), first)
            await env.maintain("other", "u90", over, index_on("u7", 0, of=over), as_of=first)
            for id in ("u8", "u7", "u8", "u7"):
                time = await env.write({"u1": [((9, "w0"), 1)]})
                await env.compute.wait_upper(id_(id), time, patient=False)
            rows = await env.shard_rows("u8", time)
            assert rows == {("w0", 7): 1, ("w1", 3): 1, ("w2", 3): 1}
            # Without a read that waits it is not made.
            time = await env.write({"u1": [((9, "w1"), 1)]})
            await asyncio.sleep(0.3)
            assert env.compute.upper(id_("u8")) <= time

    run(scenario, 60)
