"""Views with a schedule equal their query as of the last refresh, at every time."""

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.compute.protocol import DataflowDescription, SinkExport
from foreshore.expr.ir import Relation
from foreshore.refresh import NEVER, Refresh
from tests.compute.in_process import InProcessLauncher
from tests.compute.runtime.harness import (
    COUNT_SCHEMA,
    Environment,
    Row,
    counts_of,
    environment,
    id_,
    run,
    table,
)
from tests.effort import examples

times = st.integers(0, 60)
schedules = st.builds(
    Refresh,
    every_ms=st.none() | st.integers(1, 9),
    aligned_to=times,
    at=st.lists(times, max_size=3).map(tuple),
    policy=st.sampled_from(["incremental", "full"]),
)


def is_refresh(schedule: Refresh, time: int) -> bool:
    every = schedule.every_ms
    return time in schedule.at or (every is not None and (time - schedule.aligned_to) % every == 0)


@given(schedules, times, times)
def test_schedule_finds_neighbouring_refreshes(schedule: Refresh, time: int, added: int) -> None:
    far = range(time, time + 100)
    assert schedule.at_or_after(time) == next((t for t in far if is_refresh(schedule, t)), NEVER)
    before = next((t for t in range(time, -1, -1) if is_refresh(schedule, t)), None)
    if before is not None:
        assert schedule.at_or_before(time) == before
    else:
        assert schedule.at_or_before(time) < 0
    every = np.arange(80)
    assert list(schedule.round_up(every)) == [schedule.at_or_after(int(t)) for t in every]
    more = schedule.and_at(added, time)
    for each in range(time, 80):
        assert is_refresh(more, each) == (each == added or is_refresh(schedule, each))


async def maintain(
    env: Environment, relation: Relation, as_of: int, refresh: Refresh, shard: str = "u9"
) -> None:
    export = SinkExport(id_(shard))
    imports = (id_("u1"),)
    description = DataflowDescription(
        id_(shard), relation, imports, (export,), as_of, None, refresh
    )
    await env.compute.create_dataflow("c", description)


Step = tuple[Any, ...]
steps = st.lists(
    st.tuples(st.just("write"), st.integers(0, 3), st.integers(1, 6))
    | st.just(("refresh",))
    | st.just(("restart",))
    | st.just(("settle",)),
    min_size=1,
    max_size=14,
)


@pytest.mark.full
@settings(max_examples=examples(10), deadline=None)
@given(schedules, steps)
def test_random_views_equal_their_last_refresh(
    tmp_path_factory: pytest.TempPathFactory, schedule: Refresh, steps: list[Step]
) -> None:
    follow(tmp_path_factory.mktemp("env"), schedule, steps)


@pytest.mark.parametrize("policy", ["incremental", "full"])
def test_view_equals_its_last_refresh(tmp_path: Path, policy: Any) -> None:
    some: list[Step] = [
        ("write", 1, 1),
        ("write", 2, 1),
        ("settle",),
        ("write", 0, 4),
        ("settle",),
        ("restart",),
        ("write", 1, 2),
        ("refresh",),
        ("write", 3, 1),
        ("settle",),
        ("write", 3, 9),
        ("restart",),
        ("refresh",),
        ("write", 1, 1),
        ("settle",),
    ]
    follow(tmp_path, Refresh(every_ms=5, aligned_to=3, policy=policy), some)
    follow(tmp_path / "at", Refresh(at=(12,), policy=policy), some)
    follow(tmp_path / "never", Refresh(policy=policy), some)


def follow(path: Path, schedule: Refresh, steps: list[Step]) -> None:
    """Run the steps, and compare the view with its query at every time."""

    async def scenario() -> None:
        async with environment(path, launcher=InProcessLauncher()) as env:
            env.compute.create_cluster("c")
            env.compute.create_replica("c", "r1")
            await env.create("u1")
            await env.create("u9", schema=COUNT_SCHEMA)
            begin = await env.write({"u1": [((0, "a"), 1)]})
            await maintain(env, counts_of(*table("u1")), begin, schedule)
            contents: Counter[str] = Counter("a")
            history = {begin: +contents}  # by time, of each write
            refreshes = {begin}
            replicas = 1
            for step in steps:
                match step:
                    case ("write", n, ahead):
                        words = [f"w{n}", "a"]
                        time = await env.write(
                            {"u1": [((n, word), 1) for word in words]}, step=ahead
                        )
                        contents.update(words)
                        history[time] = +contents
                    case ("refresh",):
                        time = env.compute.refresh_now(id_("u9"), env.time - 1)
                        assert time >= env.time - 1
                        refreshes.add(time)
                        env.time = max(env.time, time + 1)
                        env.advance()
                        await env.compute.wait_upper(id_("u9"), time)
                    case ("restart",):
                        await env.compute.drop_replica("c", f"r{replicas}")
                        replicas += 1
                        env.compute.create_replica("c", f"r{replicas}")
                    case ("settle",):
                        await env.compute.wait_upper(id_("u9"), env.time - 1)
            last = env.time - 1
            await env.compute.wait_upper(id_("u9"), last)
            for time in range(begin, last + 1):
                refreshed = max(
                    t for t in range(begin, time + 1) if t in refreshes or is_refresh(schedule, t)
                )
                expected = history[max(t for t in history if t <= refreshed)]
                rows: Counter[Row] = Counter({(w, n): 1 for w, n in expected.items()})
                assert await env.shard_rows("u9", time) == rows, (time, refreshed)

    run(scenario, 60)
