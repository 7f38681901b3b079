"""Indexes, maintained by a replica in its own process, are read by key and as a whole."""

import asyncio
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from foreshore.errors import DatabaseError
from tests.compute.runtime.harness import counts_of, environment, id_, index_on, run, table


def test_an_index_is_exact_at_every_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path) as env:
            # A mirror keeps its index from compacting until it has begun.
            env.compute.mirrors.bounds = replace(env.compute.mirrors.bounds, rows=0)
            env.compute.create_cluster("c")
            env.compute.create_replica("c", "r1")
            await env.create("u1")
            relation = counts_of(*table("u1"))
            first = await env.write({"u1": [((1, "a"), 1), ((2, "a"), 1), ((3, "b"), 1)]})
            await env.maintain("c", "u9", relation, index_on("u9", 0, of=relation), as_of=first)
            assert await env.index_rows("c", "u9", relation, first) == {("a", 2): 1, ("b", 1): 1}
            second = await env.write({"u1": [((3, "b"), -1), ((4, "a"), 1)]})
            third = await env.write({"u1": [((5, "c"), 2)]})
            assert await env.index_rows("c", "u9", relation, third) == {("a", 3): 1, ("c", 2): 1}
            assert await env.index_rows("c", "u9", relation, second) == {("a", 3): 1}
            assert await env.index_rows("c", "u9", relation, first, "b", "a", "x") == Counter(
                [("a", 2), ("b", 1)]
            )
            await env.compute.wait_upper(id_("u9"), third)
            assert env.compute.upper(id_("u9")) == env.time
            env.compute.allow_compaction(id_("u9"), third)
            with pytest.raises(DatabaseError, match="cannot be read"):
                await env.index_rows("c", "u9", relation, second)

    run(scenario)


def test_replica_reports_status(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path) as env:
            env.compute.create_cluster("c")
            env.compute.create_replica("c", "r1")
            await env.create("u1")
            relation = counts_of(*table("u1"))
            first = await env.write({"u1": [((1, "a"), 1), ((3, "b"), 1)]})
            await env.maintain("c", "u9", relation, index_on("u9", 0, of=relation), as_of=first)
            await env.compute.wait_upper(id_("u9"), first)
            status = env.compute.clusters.status()[0]
            while not any(d["state"] == "running" for d in status["dataflows"]):
                await asyncio.sleep(0.02)
                status = env.compute.clusters.status()[0]
            json.dumps(status)  # plain data
            assert (status["state"], status["engine"], status["ready"]) == (
                "connected",
                "embedded",
                True,
            )
            (index,) = status["dataflows"][0]["indexes"]
            assert (index["id"], index["since"], index["rows"]) == ("u9", first, 2)

    run(scenario)
