"""Requests of webhooks are bounded by their bytes, headers included."""

import asyncio

import pytest

from foreshore.adapter.client import TooManyRequests
from foreshore.adapter.sources import webhooks
from foreshore.adapter.sources.webhook_rows import Request
from tests.adapter.harness import TestEnvironment

NAME = ("foreshore", "public", "hook")


async def test_headers_count_and_writes_are_bounded(
    own_env: TestEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = own_env
    await env.ran("a", "CREATE SOURCE hook FROM WEBHOOK BODY FORMAT BYTES")
    taken = env.environment.coordinator.webhooks
    written: list[int] = []
    write = taken._write

    async def counting(id: str, waiting: object, requests: list[Request]) -> object:
        written.append(len(requests))
        return await write(id, waiting, requests)  # type: ignore[arg-type]

    monkeypatch.setattr(taken, "_write", counting)
    monkeypatch.setattr(webhooks, "BYTES_AT_ONCE", 1_000)
    monkeypatch.setattr(webhooks, "MOST_BYTES", 5_000)
    sending = [
        asyncio.ensure_future(taken.receive(NAME, {"x": b"y" * 399}, b"z" * size))
        for size in (50, 50, 50, 2_000, 50)
    ]
    await asyncio.sleep(0)
    with pytest.raises(TooManyRequests):
        await taken.receive(NAME, {"x": b"y" * 2_000}, b"z")
    await asyncio.gather(*sending)
    assert written == [2, 1, 1, 1]
    await taken.receive(NAME, {"x": b"y" * 2_000}, b"z")
