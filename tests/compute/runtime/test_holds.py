"""The controller's holds on inputs follow the outputs, and end with their dataflows."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from foreshore.compute.controller import input_holds
from foreshore.compute.controller.peeks import PeekRequest
from foreshore.compute.protocol import SinkExport
from foreshore.expr.ir import Union
from foreshore.storage.capability import InvalidCapability
from tests.compute.runtime.harness import (
    KV_SCHEMA,
    Environment,
    environment,
    id_,
    index_on,
    run,
    table,
)


async def until_held_at(env: Environment, time: int) -> None:
    """Wait until no dataflow holds anything before `time`."""
    while any(hold.frontier < time for _, hold in env.compute.holds()):  # noqa: ASYNC110
        await asyncio.sleep(0.02)


def test_holds_advance_after_input_was_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_holds, "HOLDS_SECONDS", 0.01)

    async def scenario() -> None:
        async with environment(tmp_path) as env:
            env.compute.create_cluster("c")
            await env.create("u1", "u2")
            await env.create("u9", schema=KV_SCHEMA)
            (dropped,), (kept,) = table("u1"), table("u2")
            first = await env.write({"u1": [((1, "a"), 1)], "u2": [((1, "a"), 1)]})
            await env.maintain("c", "u10", dropped, SinkExport(id_("u9")), as_of=first)
            await env.maintain("c", "u20", kept, index_on("u21", 0, of=kept), as_of=first)
            env.storage.advance([id_("u9")], first + 1)  # as if a replica had reported it

            write, writing = env.storage._wal._write, threading.Event()

            def write_slowly(contents: Any) -> None:
                writing.wait()
                write(contents)

            monkeypatch.setattr(env.storage._wal, "_write", write_slowly)
            dropping = asyncio.create_task(env.storage.drop(id_("u1")))
            await asyncio.sleep(0.1)  # several rounds of holds, while the shard is being dropped
            assert not env.storage.exists(id_("u1"))
            writing.set()
            await dropping
            env.compute.drop_dataflow(id_("u10"))
            env.compute.allow_compaction(id_("u21"), first + 5)
            await until_held_at(env, first + 5)

    run(scenario)


def test_holds_advance_after_failed_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(input_holds, "HOLDS_SECONDS", 0.01)

    async def scenario() -> None:
        async with environment(tmp_path) as env:
            env.compute.create_cluster("c")
            await env.create("u1")
            (kept,) = table("u1")
            first = await env.write({"u1": [((1, "a"), 1)]})
            with monkeypatch.context() as patched:
                patched.setattr(env.storage, "exists", lambda id: {}[id])
                await env.maintain("c", "u20", kept, index_on("u21", 0, of=kept), as_of=first)
                env.compute.allow_compaction(id_("u21"), first + 5)
                while "read holds could not be downgraded" not in caplog.messages:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            await until_held_at(env, first + 5)

    run(scenario)


def test_failed_peek_holds_no_files(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with environment(tmp_path) as env:
            env.compute.create_cluster("c")
            await env.create("u1", "u2")
            first = await env.write({"u1": [((1, "a"), 1)], "u2": [((1, "a"), 1)]})
            await env.storage.settle()
            env.reads[id_("u2")] = replace(env.reads[id_("u2")], token="1-999")
            request = PeekRequest(first, Union(table("u1", "u2")), imports=(id_("u1"), id_("u2")))
            with pytest.raises(InvalidCapability):
                await env.compute.peek("c", request)
            assert not +env.storage._leases._held

    run(scenario)
