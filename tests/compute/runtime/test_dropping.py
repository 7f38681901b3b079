"""Dropping objects in use fails their waiters and leaves nothing behind."""

import asyncio
from pathlib import Path

import pytest

from foreshore.compute.controller.peeks import PeekRequest
from foreshore.errors import UndefinedObject
from foreshore.storage.controller import ReadCapability
from tests.compute.runtime.harness import environment, id_, index_on, run, table


def test_wait_for_dropped_table_fails(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path) as env:
            await env.create("u1")
            time = await env.write({"u1": [((1, "a"), 1)]})
            waiting = asyncio.create_task(env.compute.wait_upper(id_("u1"), time + 100))
            await asyncio.sleep(0)
            await env.storage.drop(id_("u1"))
            with pytest.raises(UndefinedObject, match='"u1" was dropped'):
                await waiting

    run(scenario)


def test_nothing_starts_in_dropped_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with environment(tmp_path) as env:
            env.compute.create_cluster("c")
            await env.create("u1")
            time = await env.write({"u1": [((1, "a"), 1)]})
            (u1,) = table("u1")
            clone = env.storage.clone_capability
            may_clone = asyncio.Event()
            before = len(env.storage._shard(id_("u1")).capabilities.grants)
            holds: list[ReadCapability] = []

            async def slowly(capability: ReadCapability) -> ReadCapability:
                await may_clone.wait()
                holds.append(await clone(capability))
                return holds[-1]

            monkeypatch.setattr(env.storage, "clone_capability", slowly)
            index = index_on("u3", 0, of=u1)
            creating = asyncio.create_task(env.maintain("c", "u2", u1, index, as_of=time))
            asking = asyncio.create_task(
                env.compute.peek("c", PeekRequest(time + 1, u1, imports=(id_("u1"),)))
            )
            await asyncio.sleep(0)
            await env.compute.drop_cluster("c")
            may_clone.set()
            with pytest.raises(UndefinedObject, match='cluster "c" was dropped'):
                await creating
            assert not env.compute.exports(id_("u3"))
            await env.write({})  # the query was waiting for it
            with pytest.raises(UndefinedObject, match='cluster "c" was dropped'):
                await asking
            assert holds
            while len(env.storage._shard(id_("u1")).capabilities.grants) > before:  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # until the hold has been released

    run(scenario)
