"""Waits of the tests of sinks, each for a condition."""

import asyncio
from collections.abc import Callable

from tests.adapter.harness import TestEnvironment
from tests.kafka_topics import Message, TopicReader

STATUS = "SELECT status, error FROM mz_internal.mz_sink_statuses"


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something that takes a while to find out holds."""
    while True:
        if await asyncio.to_thread(holds):
            return
        await asyncio.sleep(0.02)


async def until_state(env: TestEnvironment, begins: str) -> str:
    """Wait until the state of the only sink begins so; return it."""
    while True:
        found = await env.query("a", STATUS)
        if found.startswith(begins):
            return found
        await asyncio.sleep(0.05)


async def until_read(reader: TopicReader, count: int) -> list[Message]:
    """Wait until the topic has so many messages."""
    while True:
        found = await asyncio.to_thread(reader.read)
        if len(found) >= count:
            return found
        await asyncio.sleep(0.02)
