"""Indexes that are read again and again are answered here, as a replica would answer."""

import asyncio
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from foreshore.compute.controller import mirror as mirror_module
from foreshore.compute.controller import mirrors as mirrors_module
from foreshore.compute.controller.mirror import Mirror
from foreshore.compute.controller.peeks import PeekRequest
from foreshore.errors import DatabaseError
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Get, Relation
from foreshore.update import EMPTY
from tests.compute.in_process import InProcessLauncher
from tests.compute.runtime.harness import (
    Environment,
    contents,
    counts_of,
    environment,
    id_,
    index_on,
    run,
    table,
)

RELATION = counts_of(*table("u1"))


async def begin(env: Environment, replicas: int = 1) -> int:
    """Maintain an index of counts; return its first time."""
    env.compute.create_cluster("c")
    for number in range(replicas):
        env.compute.create_replica("c", f"r{number}")
    await env.create("u1")
    first = await env.write({"u1": [((1, "a"), 1), ((2, "a"), 1), ((3, "b"), 1)]})
    await env.maintain("c", "u9", RELATION, index_on("u9", 0, of=RELATION), as_of=first)
    await env.compute.wait_upper(id_("u9"), first)
    return first


async def mirrored(env: Environment, time: int) -> None:
    """Read the index until it has a mirror that knows `time`."""
    async with asyncio.timeout(60):
        while not is_mirrored(env, time):
            await env.index_rows("c", "u9", RELATION, time)
            await asyncio.sleep(0.01)


def is_mirrored(env: Environment, time: int) -> bool:
    found = env.compute.mirrors.of(id_("u9"), time)
    return found is not None and found.knows(time)


async def of_replica(env: Environment, of: Relation, time: int, name: str) -> "Counter[object]":
    request = PeekRequest(time, Get(id_("u0"), columns_of(of)), index=id_("u9"), replica=name)
    return Counter(contents((await env.compute.peek("c", request)).whole()))


@pytest.mark.parametrize("seed", range(3))
def test_answers_equal_those_of_the_replicas_at_every_time(tmp_path: Path, seed: int) -> None:
    choose = Random(seed)

    async def scenario() -> None:
        async with environment(tmp_path, launcher=InProcessLauncher()) as env:
            first = await begin(env, replicas=2)
            there: Counter[tuple[int, str]] = Counter({(1, "a"): 1, (2, "a"): 1, (3, "b"): 1})
            await mirrored(env, first)
            since, answered = first, 0
            for _ in range(25):
                changes: list[tuple[tuple[int, str], int]] = []
                for _ in range(choose.randrange(4)):
                    row = (choose.randrange(5), choose.choice("abc"))
                    changes.append((row, -1 if there[row] and choose.random() < 0.5 else 1))
                    there[row] += changes[-1][1]
                if changes:
                    last = await env.write({"u1": changes})
                action = choose.random()
                if action < 0.15:
                    name = f"r{choose.randrange(2)}"
                    await env.compute.drop_replica("c", name)
                    env.compute.create_replica("c", name)
                elif action < 0.4:
                    since = choose.randrange(since, env.time)
                    env.compute.allow_compaction(id_("u9"), since)
                for time in {max(env.time - 1, since), choose.randrange(since, env.time)}:
                    ours = await env.index_rows("c", "u9", RELATION, time)
                    answered += is_mirrored(env, time)
                    assert ours == await of_replica(env, RELATION, time, "r0")
                    for key in "abc":
                        mine = Counter({row: n for row, n in ours.items() if row[0] == key})
                        assert await env.index_rows("c", "u9", RELATION, time, key) == mine
            expected: Counter[tuple[str, int]] = Counter()
            by_value: Counter[str] = Counter()
            for (_, value), count in there.items():
                by_value[value] += count
            for value, count in by_value.items():
                expected[value, count] += count > 0
            assert await env.index_rows("c", "u9", RELATION, env.time - 1) == +expected
            assert answered > 10, last

    run(scenario)


def test_an_index_is_answered_without_replicas_where_its_rows_are_known(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path, launcher=InProcessLauncher()) as env:
            first = await begin(env)
            await mirrored(env, first)
            await env.compute.drop_replica("c", "r0")
            assert await env.index_rows("c", "u9", RELATION, first) == {("a", 2): 1, ("b", 1): 1}
            later = await env.write({"u1": [((3, "b"), -1)]})
            reading = asyncio.create_task(env.index_rows("c", "u9", RELATION, later))
            await asyncio.sleep(0.15)
            assert not reading.done()  # nobody knows it
            env.compute.create_replica("c", "r1")
            assert await reading == {("a", 2): 1}
            await mirrored(env, later)

    run(scenario)


def test_an_index_with_many_rows_has_no_mirror(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path, launcher=InProcessLauncher()) as env:
            first = await begin(env)
            env.compute.mirrors.bounds = replace(env.compute.mirrors.bounds, rows=1)
            for _ in range(10):
                assert len(await env.index_rows("c", "u9", RELATION, first)) == 2
            assert not list(env.compute.mirrors.sizes())
            assert not env.compute.clusters["c"].history.follows

    run(scenario)


@pytest.mark.parametrize("most", [4, 8])
def test_a_mirror_that_outgrows_its_bounds_ends(tmp_path: Path, most: int) -> None:
    """With `most` 4 one window is too large to be sent, with 8 the mirror becomes too large."""

    async def scenario() -> None:
        async with environment(tmp_path, launcher=InProcessLauncher()) as env:
            first = await begin(env)
            env.compute.mirrors.bounds = replace(env.compute.mirrors.bounds, rows=most)
            await mirrored(env, first)
            later = await env.write({"u1": [((n, f"v{n}"), 1) for n in range(7)]})
            assert len(await env.index_rows("c", "u9", RELATION, later)) == 9
            async with asyncio.timeout(60):
                while list(env.compute.mirrors.sizes()):
                    await env.write({"u1": [((9, "z"), 1)]})
                    await asyncio.sleep(0.01)
            assert len(await env.index_rows("c", "u9", RELATION, later)) == 9
            assert not env.compute.clusters["c"].history.follows

    run(scenario)


def test_a_mirror_that_receives_nothing_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with environment(tmp_path, launcher=InProcessLauncher()) as env:
            first = await begin(env)
            env.compute.mirrors.bounds = replace(
                env.compute.mirrors.bounds, patience_s=0.01, late_s=0.1
            )
            await mirrored(env, first)
            for name in ("put", "progress"):
                monkeypatch.setattr(Mirror, name, lambda *_: None)
            last = await env.write({"u1": [((1, "a"), 1)]})
            async with asyncio.timeout(60):
                while list(env.compute.mirrors.sizes()):
                    assert await env.index_rows("c", "u9", RELATION, last) == {
                        ("a", 3): 1,
                        ("b", 1): 1,
                    }

    run(scenario)


def test_an_index_too_large_to_be_read_whole_gets_a_mirror_for_reads_by_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (mirror_module, mirrors_module):
        monkeypatch.setattr(module, "FEW_ROWS", 1)

    async def scenario() -> None:
        async with environment(tmp_path, launcher=InProcessLauncher()) as env:
            last = await begin(env)
            for _ in range(10):
                assert len(await env.index_rows("c", "u9", RELATION, last)) == 2
                await asyncio.sleep(0.05)  # a status may come
            assert not list(env.compute.mirrors.sizes())
            async with asyncio.timeout(60):
                while not is_mirrored(env, last):
                    await env.index_rows("c", "u9", RELATION, last, "a")
                    await asyncio.sleep(0.01)
            env.compute.mirrors.bounds = replace(env.compute.mirrors.bounds, unread=6)
            async with asyncio.timeout(60):  # what it does not answer is no use of it
                while list(env.compute.mirrors.sizes()):
                    last = await env.write({"u1": [((1, "a"), 1)]})
                    assert len(await env.index_rows("c", "u9", RELATION, last)) == 2

    run(scenario)


def test_a_complete_index_gets_no_mirror(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path, launcher=InProcessLauncher()) as env:
            first = await begin(env)
            env.compute._uppers.advance(id_("u9"), EMPTY)
            for _ in range(10):
                assert len(await env.index_rows("c", "u9", RELATION, first)) == 2
                await asyncio.sleep(0.05)  # a status may come
            assert not list(env.compute.mirrors.sizes())
            assert not env.compute.clusters["c"].history.follows

    run(scenario)


def test_a_mirror_that_nobody_reads_ends_when_much_changes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path, launcher=InProcessLauncher()) as env:
            first = await begin(env)
            env.compute.mirrors.bounds = replace(env.compute.mirrors.bounds, unread=6)
            await mirrored(env, first)
            async with asyncio.timeout(60):
                while list(env.compute.mirrors.sizes()):
                    last = await env.write({"u1": [((1, "a"), 1)]})
                    await asyncio.sleep(0.01)
            await mirrored(env, last)

    run(scenario)


def test_contents_of_an_index_are_no_changes_that_nobody_reads(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path, launcher=InProcessLauncher()) as env:
            first = await begin(env)
            env.compute.mirrors.bounds = replace(env.compute.mirrors.bounds, unread=1)
            await mirrored(env, first)
            assert [each.records for each in env.compute.mirrors.sizes()] == [2]

    run(scenario)


def test_the_mirror_read_last_keeps_its_place(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path, launcher=InProcessLauncher()) as env:
            first = await begin(env)
            await env.maintain("c", "u8", RELATION, index_on("u8", 1, of=RELATION), as_of=first)
            await env.compute.wait_upper(id_("u8"), first)
            await mirrored(env, first)
            (size,) = env.compute.mirrors.sizes()
            most = size.bytes * 3 // 2
            env.compute.mirrors.bounds = replace(env.compute.mirrors.bounds, all_bytes=most)
            async with asyncio.timeout(60):
                while [each.index for each in env.compute.mirrors.sizes()] != [id_("u8")]:
                    await env.index_rows("c", "u8", RELATION, first)
                    await asyncio.sleep(0.01)

    run(scenario)


def test_a_dropped_index_has_no_mirror(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path, launcher=InProcessLauncher()) as env:
            first = await begin(env)
            await mirrored(env, first)
            env.compute.drop_dataflow(id_("u9"))
            assert not list(env.compute.mirrors.sizes())
            with pytest.raises(DatabaseError, match="does not exist"):
                await env.index_rows("c", "u9", RELATION, first)

    run(scenario)


def test_read_holds_are_kept_for_another_replica(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path, launcher=InProcessLauncher()) as env:
            first = await begin(env)
            await mirrored(env, first)
            last = await env.write({"u1": [((1, "a"), 1)]})
            assert await env.index_rows("c", "u9", RELATION, last) == {("a", 3): 1, ("b", 1): 1}
            env.compute.allow_compaction(id_("u9"), env.time + 5)
            assert env.compute.since(id_("u9")) <= last
            await env.compute.drop_replica("c", "r0")
            env.compute.create_replica("c", "r1")
            later = await env.write({"u1": [((1, "a"), -1)]})
            await mirrored(env, later)
            assert len(list(env.compute.mirrors.sizes())) == 1

    run(scenario)
